#include "ext/convert.h"

typedef unsigned long long ull;

PyObject *gb_py_pages(const struct gb_page_figures *figures) {
  return Py_BuildValue("{s:K,s:K,s:K}", "whole", (ull)figures->whole, "resident", (ull)figures->resident,
                       "swapped", (ull)figures->swapped);
}

PyObject *gb_py_arena(const struct gb_arena_account *arena) {
  const struct gb_look *look = &arena->look;
  return Py_BuildValue("{s:K,s:O,s:i,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:O,s:O,s:O,s:I,s:I,s:K,s:K,s:N,s:N}", //
                       "address", (ull)arena->address, //
                       "is_main", arena->is_main ? Py_True : Py_False, //
                       "status", (int)arena->status, //
                       "system_bytes", (ull)look->system_bytes, //
                       "max_system_bytes", (ull)look->max_system_bytes, //
                       "attached_threads", (ull)look->attached_threads, //
                       "bins_bytes", (ull)look->bins_bytes, //
                       "bins_chunks", (ull)look->bins_chunks, //
                       "fastbins_bytes", (ull)look->fastbins_bytes, //
                       "fastbins_chunks", (ull)look->fastbins_chunks, //
                       "top_bytes", (ull)look->top_bytes, //
                       "contiguous", look->contiguous ? Py_True : Py_False, //
                       "settled", look->settled ? Py_True : Py_False, //
                       "complete", look->complete ? Py_True : Py_False, //
                       "holds", (unsigned)look->holds, //
                       "tries_busy", (unsigned)look->tries_busy, //
                       "longest_hold_ns", (ull)look->longest_hold_ns, //
                       "held_ns", (ull)look->held_ns, //
                       "bins_pages", gb_py_pages(&arena->bins), //
                       "top_pages", gb_py_pages(&arena->top));
}

PyObject *gb_py_glibc(const struct gb_glibc *glibc) {
  return Py_BuildValue("{s:K,s:I,s:I,s:K,s:O}", //
                       "main_arena", (ull)glibc->main_arena, //
                       "bins_offset", (unsigned)glibc->layout.bins, //
                       "arena_bytes", (unsigned)glibc->layout.size, //
                       "heap_header", (ull)glibc->heap_header, //
                       "fastbins", glibc->layout.fastbins != 0 ? Py_True : Py_False);
}

static PyObject *parameters(const struct gb_parameters *parameters) {
  if (!parameters->known)
    Py_RETURN_NONE;
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K}", //
                       "trim_threshold", (ull)parameters->trim_threshold, //
                       "top_pad", (ull)parameters->top_pad, //
                       "mmap_threshold", (ull)parameters->mmap_threshold, //
                       "thp_pagesize", (ull)parameters->thp_pagesize, //
                       "hp_pagesize", (ull)parameters->hp_pagesize, //
                       "mmapped_chunks", (ull)parameters->mmapped_chunks, //
                       "mmapped_bytes", (ull)parameters->mmapped_bytes);
}

static PyObject *tcache(const struct gb_tcache *tcache) {
  if (!tcache->visible)
    Py_RETURN_NONE;
  return Py_BuildValue("{s:K,s:K}", "bytes", (ull)tcache->bytes, "chunks", (ull)tcache->chunks);
}

PyObject *gb_py_account(const struct gb_account *account) {
  PyObject *arenas = PyList_New(0);
  if (arenas == NULL)
    return NULL;
  for (size_t i = 0; i < account->count; ++i) {
    PyObject *arena = gb_py_arena(&account->arenas[i]);
    if (arena == NULL || PyList_Append(arenas, arena) != 0) {
      Py_XDECREF(arena);
      Py_DECREF(arenas);
      return NULL;
    }
    Py_DECREF(arena);
  }
  return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:s,s:K,s:K,s:N}", //
                       "libc", PyUnicode_DecodeFSDefault(account->location.libc), //
                       "provider", PyUnicode_DecodeFSDefault(account->location.provider), //
                       "glibc", gb_py_glibc(&account->glibc), //
                       "parameters", parameters(&account->parameters), //
                       "tcache", tcache(&account->tcache), //
                       "residency", gb_os_residency_name(account->source), //
                       "wall_ns", (ull)account->wall_ns, //
                       "cpu_ns", (ull)account->cpu_ns, //
                       "arenas", arenas);
}

PyObject *gb_py_comparison(const struct gb_comparison *comparison) {
  return Py_BuildValue("{s:s,s:O,s:I,s:{s:K,s:K,s:K,s:K,s:K,s:K},s:{s:K,s:K,s:K,s:K,s:K,s:K}}", //
                       "verdict", gb_verdict_name(comparison->verdict), //
                       "wide", comparison->wide ? Py_True : Py_False, //
                       "tries", comparison->tries, //
                       "ours", //
                       "arena", (ull)comparison->ours.arena, //
                       "ordblks", (ull)comparison->ours.ordblks, //
                       "smblks", (ull)comparison->ours.smblks, //
                       "fsmblks", (ull)comparison->ours.fsmblks, //
                       "fordblks", (ull)comparison->ours.fordblks, //
                       "keepcost", (ull)comparison->ours.keepcost, //
                       "glibcs", //
                       "arena", (ull)comparison->glibcs.arena, //
                       "ordblks", (ull)comparison->glibcs.ordblks, //
                       "smblks", (ull)comparison->glibcs.smblks, //
                       "fsmblks", (ull)comparison->glibcs.fsmblks, //
                       "fordblks", (ull)comparison->glibcs.fordblks, //
                       "keepcost", (ull)comparison->glibcs.keepcost);
}
