#include "heap/account.h"

#include "base/clock.h"
#include "heap/find.h"

struct page_collection {
  struct gb_free_pages pages;
  enum gb_status status;
};

static void collect_spans(void *context, const struct gb_span *spans, size_t count) {
  struct page_collection *collection = context;
  for (size_t i = 0; i < count && collection->status == GB_OK; ++i)
    collection->status = gb_free_pages_add(&collection->pages, spans[i].start, spans[i].end);
}

static enum gb_status measure_top(const struct gb_look *look, const struct gb_residency *residency,
                                  struct gb_free_pages *pages, struct gb_page_figures *figures) {
  uintptr_t start;
  uintptr_t end;
  gb_interior(look->top, look->top_bytes, pages->page, &start, &end);
  if (look->top == 0 || start >= end)
    return GB_OK;
  gb_free_pages_clear(pages);
  enum gb_status status = gb_free_pages_add(pages, start, end);
  return status == GB_OK ? gb_free_pages_measure(pages, residency, figures) : status;
}

static void take_arena(struct gb_looker *looker, const struct gb_account_options *options,
                       const struct gb_residency *residency, struct page_collection *collection,
                       struct gb_arena_account *arena) {
  gb_free_pages_clear(&collection->pages);
  collection->status = GB_OK;
  arena->bins = (struct gb_page_figures){0};
  arena->top = (struct gb_page_figures){0};
  const struct gb_look_options look_options = {
      .hold_ns = options->hold_ns,
      .patience_ns = options->patience_ns,
      .spans = options->without_pages ? NULL : collect_spans,
      .context = collection,
  };
  arena->status = gb_look_at(looker, arena->address, arena->is_main, &look_options, &arena->look);
  if (options->without_pages)
    return;
  if (arena->status == GB_OK)
    arena->status = collection->status;
  if (arena->status == GB_OK)
    arena->status = gb_free_pages_measure(&collection->pages, residency, &arena->bins);
  if (arena->status == GB_OK)
    arena->status = measure_top(&arena->look, residency, &collection->pages, &arena->top);
}

/* Fills account->arenas with addresses, however many there are. */
static enum gb_status list_arenas(struct gb_account *account, struct gb_maps *maps) {
  struct gb_arena_list list = {0};
  enum gb_status status = gb_find_arenas(&account->glibc, maps, &list);
  if (status == GB_OK) {
    gb_account_free(account);
    account->arenas = gb_os_alloc(list.count * sizeof *account->arenas);
    status = account->arenas == NULL ? GB_NO_MEMORY : GB_OK;
  }
  if (status == GB_OK) {
    account->capacity = list.count;
    account->count = list.count;
    for (size_t i = 0; i < list.count; ++i)
      account->arenas[i] = (struct gb_arena_account){.address = list.addresses[i], .is_main = i == 0};
  }
  gb_arena_list_free(&list);
  return status;
}

enum gb_status gb_account_of(struct gb_account *account, const struct gb_account_options *options,
                             struct gb_maps *maps) {
  const uint64_t wall = gb_now_ns();
  const uint64_t cpu = gb_thread_cpu_ns();
  enum gb_status status = list_arenas(account, maps);
  if (status != GB_OK)
    return status;

  struct gb_residency residency = {0};
  struct page_collection collection = {0};
  struct gb_looker looker = {0};
  if (!options->without_pages)
    status = gb_os_residency_open(&residency, options->first_source);
  account->source = options->without_pages ? GB_RESIDENCY_NONE : residency.source;
  if (status == GB_OK)
    status = gb_free_pages_init(&collection.pages);
  if (status == GB_OK)
    status = gb_looker_init(&looker, &account->glibc.layout, account->glibc.heap_header, maps);
  if (status == GB_OK) {
    for (size_t i = 0; i < account->count; ++i)
      take_arena(&looker, options, &residency, &collection, &account->arenas[i]);
  }
  gb_looker_free(&looker);
  gb_free_pages_free(&collection.pages);
  gb_os_residency_close(&residency);
  account->wall_ns = gb_now_ns() - wall;
  account->cpu_ns = gb_thread_cpu_ns() - cpu;
  return status;
}

static enum gb_status take(struct gb_account *account, const struct gb_account_options *options) {
  *account = (struct gb_account){.source = GB_RESIDENCY_NONE};
  const uint64_t wall = gb_now_ns();
  const uint64_t cpu = gb_thread_cpu_ns();
  enum gb_status status = GB_OK;
  if (options->location != NULL)
    account->location = *options->location;
  else
    status = gb_locate(&account->location);
  if (status != GB_OK)
    return status;

  struct gb_maps maps = {0};
  status = gb_find_glibc(&account->location, !options->without_malloc, &maps, &account->glibc);
  if (status == GB_OK && !options->without_malloc)
    gb_tcache_look(&account->tcache);
  if (status == GB_OK)
    status = gb_account_of(account, options, &maps);
  if (status == GB_OK && account->arenas[0].look.start != 0) {
    struct gb_own_memory own;
    gb_own_memory_init(&own, &maps);
    gb_derive_parameters(&own.memory, &account->glibc, account->arenas[0].look.start, &account->parameters);
    if (account->parameters.known && account->parameters.hp_pagesize != 0)
      status = GB_HUGETLB;
  }
  gb_os_maps_free(&maps);
  account->wall_ns = gb_now_ns() - wall;
  account->cpu_ns = gb_thread_cpu_ns() - cpu;
  return status;
}

enum gb_status gb_account_take(struct gb_account *account, const struct gb_account_options *options) {
  const int cancellation = gb_os_cancellation_off();
  enum gb_status status = take(account, options);
  gb_os_cancellation_restore(cancellation);
  return status;
}

void gb_account_free(struct gb_account *account) {
  gb_os_free(account->arenas, account->capacity * sizeof *account->arenas);
  account->arenas = NULL;
  account->count = 0;
  account->capacity = 0;
}

void gb_account_totals(const struct gb_account *account, struct gb_totals *totals) {
  *totals = (struct gb_totals){.all_known = true};
  for (size_t i = 0; i < account->count; ++i) {
    const struct gb_arena_account *arena = &account->arenas[i];
    const struct gb_look *look = &arena->look;
    if (arena->status != GB_OK || !look->settled || !look->complete)
      totals->all_known = false;
    if (arena->status != GB_OK)
      continue;
    totals->system_bytes += look->system_bytes;
    totals->free_bytes += look->bins_bytes + look->fastbins_bytes + look->top_bytes;
    totals->chunks += look->bins_chunks;
    totals->fastbins_chunks += look->fastbins_chunks;
    totals->fastbins_bytes += look->fastbins_bytes;
    if (arena->is_main)
      totals->main_top_bytes = look->top_bytes;
  }
}
