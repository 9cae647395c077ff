/* giveback._testing: doors through which tests reach inside. Never installed for users.
 * Addresses are taken as they are given: the tests own that memory. */
#include "ext/convert.h"
#include "ext/testing_policy.h"

/* look(arena, is_main, bins_offset, heap_header, hold_ns, patience_ns)
 *   -> (status, look, [(start, end), ...]) over memory that a test made. */
struct span_list {
  struct gb_span *spans;
  size_t count;
  size_t capacity;
};

static void append_spans(void *context, const struct gb_span *spans, size_t count) {
  struct span_list *list = context;
  for (size_t i = 0; i < count && list->count < list->capacity; ++i)
    list->spans[list->count++] = spans[i];
}

static PyObject *look(PyObject *module, PyObject *arguments) {
  (void)module;
  unsigned long long arena;
  int is_main;
  unsigned bins_offset;
  unsigned long long heap_header;
  unsigned long long hold_ns;
  unsigned long long patience_ns;
  if (!PyArg_ParseTuple(arguments, "KpIKKK", &arena, &is_main, &bins_offset, &heap_header, &hold_ns,
                        &patience_ns))
    return NULL;
  struct gb_layout layout;
  if (!gb_layout_of_bins(bins_offset, &layout))
    return PyErr_Format(PyExc_ValueError, "no layout with bins at %u", bins_offset);

  struct gb_maps maps = {0};
  struct gb_looker looker = {0};
  struct span_list list = {.capacity = 65536};
  list.spans = gb_os_alloc(list.capacity * sizeof *list.spans);
  struct gb_arena_account taken = {.address = (uintptr_t)arena, .is_main = is_main != 0};
  const struct gb_look_options options = {
      .hold_ns = hold_ns, .patience_ns = patience_ns, .spans = append_spans, .context = &list};
  Py_BEGIN_ALLOW_THREADS;
  taken.status = list.spans == NULL ? GB_NO_MEMORY : gb_os_maps_read(&maps);
  if (taken.status == GB_OK)
    taken.status = gb_looker_init(&looker, &layout, heap_header, &maps);
  if (taken.status == GB_OK)
    taken.status = gb_look_at(&looker, (uintptr_t)arena, is_main != 0, &options, &taken.look);
  gb_looker_free(&looker);
  gb_os_maps_free(&maps);
  Py_END_ALLOW_THREADS;

  PyObject *spans = PyList_New((Py_ssize_t)list.count);
  for (size_t i = 0; spans != NULL && i < list.count; ++i)
    PyList_SET_ITEM(spans, (Py_ssize_t)i,
                    Py_BuildValue("(KK)", (unsigned long long)list.spans[i].start,
                                  (unsigned long long)list.spans[i].end));
  gb_os_free(list.spans, list.capacity * sizeof *list.spans);
  PyObject *figures = spans == NULL ? NULL : gb_py_arena(&taken);
  if (figures == NULL) {
    Py_XDECREF(spans);
    return NULL;
  }
  return Py_BuildValue("(iNN)", (int)taken.status, figures, spans);
}

/* derive(data_start, data_end) -> (status, glibc) over memory that a test made. */
static PyObject *derive(PyObject *module, PyObject *arguments) {
  (void)module;
  unsigned long long start;
  unsigned long long end;
  if (!PyArg_ParseTuple(arguments, "KK", &start, &end))
    return NULL;
  struct gb_maps maps = {0};
  struct gb_glibc glibc = {0};
  enum gb_status status = gb_os_maps_read(&maps);
  if (status == GB_OK) {
    struct gb_own_memory own;
    gb_own_memory_init(&own, &maps);
    status = gb_derive(&own.memory, (uintptr_t)start, (uintptr_t)end, &glibc);
  }
  gb_os_maps_free(&maps);
  return Py_BuildValue("(iN)", (int)status, gb_py_glibc(&glibc));
}

/* pages([(start, end), ...], first_source) -> (status, figures, source name) */
static PyObject *pages(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *ranges;
  int first_source;
  if (!PyArg_ParseTuple(arguments, "O!i", &PyList_Type, &ranges, &first_source))
    return NULL;
  struct gb_free_pages set;
  struct gb_residency residency = {.fd = -1};
  struct gb_page_figures figures = {0};
  enum gb_status status = gb_free_pages_init(&set);
  for (Py_ssize_t i = 0; status == GB_OK && i < PyList_GET_SIZE(ranges); ++i) {
    unsigned long long start;
    unsigned long long end;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(ranges, i), "KK", &start, &end)) {
      gb_free_pages_free(&set);
      return NULL;
    }
    status = gb_free_pages_add(&set, (uintptr_t)start, (uintptr_t)end);
  }
  if (status == GB_OK)
    status = gb_os_residency_open(&residency, (enum gb_residency_source)first_source);
  const char *name = gb_os_residency_name(residency.source);
  if (status == GB_OK)
    status = gb_free_pages_measure(&set, &residency, &figures);
  gb_os_residency_close(&residency);
  gb_free_pages_free(&set);
  return Py_BuildValue("(iNs)", (int)status, gb_py_pages(&figures), name);
}

static PyObject *maps(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct gb_maps snapshot = {0};
  if (gb_os_maps_read(&snapshot) != GB_OK)
    return PyErr_Format(PyExc_OSError, "cannot read the mappings");
  PyObject *list = PyList_New((Py_ssize_t)snapshot.count);
  for (size_t i = 0; list != NULL && i < snapshot.count; ++i) {
    const struct gb_mapping *mapping = &snapshot.entries[i];
    PyList_SET_ITEM(list, (Py_ssize_t)i,
                    Py_BuildValue("(KKiii)", (unsigned long long)mapping->start,
                                  (unsigned long long)mapping->end, (int)mapping->kind, mapping->readable,
                                  mapping->writable));
  }
  gb_os_maps_free(&snapshot);
  return list;
}

static PyObject *bin_of_size(PyObject *module, PyObject *argument) {
  (void)module;
  const unsigned long long size = PyLong_AsUnsignedLongLong(argument);
  if (PyErr_Occurred())
    return NULL;
  return PyLong_FromUnsignedLong(gb_bin_of_size(size));
}

static PyObject *try_lock(PyObject *module, PyObject *argument) {
  (void)module;
  const unsigned long long arena = PyLong_AsUnsignedLongLong(argument);
  if (PyErr_Occurred())
    return NULL;
  return PyBool_FromLong(gb_arena_try_lock((uintptr_t)arena));
}

static PyObject *unlock(PyObject *module, PyObject *argument) {
  (void)module;
  const unsigned long long arena = PyLong_AsUnsignedLongLong(argument);
  if (PyErr_Occurred())
    return NULL;
  (void)gb_arena_unlock((uintptr_t)arena);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"look", look, METH_VARARGS, NULL},
    {"derive", derive, METH_VARARGS, NULL},
    {"pages", pages, METH_VARARGS, NULL},
    {"maps", maps, METH_NOARGS, NULL},
    {"bin_of_size", bin_of_size, METH_O, NULL},
    {"try_lock", try_lock, METH_O, NULL},
    {"unlock", unlock, METH_O, NULL},
    {"budget", gb_testing_budget, METH_VARARGS, NULL},
    {"duty", gb_testing_duty, METH_VARARGS, NULL},
    {"age", gb_testing_age, METH_VARARGS, NULL},
    {"batch", gb_testing_batch, METH_VARARGS, NULL},
    {"pace", gb_testing_pace, METH_VARARGS, NULL},
    {"turns", gb_testing_turns, METH_VARARGS, NULL},
    {"percentile", gb_testing_percentile, METH_VARARGS, NULL},
    {"page_sets", gb_testing_page_sets, METH_VARARGS, NULL},
    {0},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "giveback._testing",
    .m_doc = "Test-only.",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__testing(void); // NOLINT(misc-use-internal-linkage): looked up by name
PyMODINIT_FUNC PyInit__testing(void) {
  return PyModuleDef_Init(&definition);
}
