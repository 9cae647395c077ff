#include "heap/look.h"

#include <string.h>

#include "base/align.h"
#include "base/clock.h"

/* New snapshots of the mappings, or larger tables, in one look. */
#define MAX_REFRESHES 16u
/* Between two tries for a busy lock: from 20 us, doubling to 1 ms. */
#define BACKOFF_FIRST_NS UINT64_C(20000)
#define BACKOFF_LAST_NS UINT64_C(1000000)

/* Lists in the order of the walk: fastbins, then bins 1 to 127. */
#define LISTS (GB_FASTBINS + GB_BINS)

struct walk {
  struct gb_looker *looker;
  uintptr_t arena;
  bool is_main;
  struct gb_look *look;
  unsigned number; /* of the current list */
  unsigned restarts; /* of it */
  uint64_t unsorted_chunks; /* once that list was walked */
  bool pages_only;
  bool remembered; /* `before` is filled in */
  struct gb_hold hold;
  unsigned char before[GB_ARENA_MAX_SIZE]; /* the arena when the last hold ended */
};

/* ---- lists ----------------------------------------------------------------- */

static void begin_list(struct walk *walk) {
  struct gb_free_list *list = walk->looker->list;
  const struct gb_layout *layout = &walk->looker->layout;
  gb_free_list_begin(list);
  list->strands_from = GB_STRANDS_FROM;
  if (walk->number < GB_FASTBINS) {
    list->bin = 0;
    list->fast_index = walk->number;
    list->head = walk->arena + layout->fastbins + (uintptr_t)walk->number * 8;
  } else {
    list->bin = walk->number - GB_FASTBINS + 1;
    /* Strands of this list are likely to begin among unsorted chunks, which would be walked once more. */
    if (walk->unsorted_chunks / 4 > GB_STRANDS_FROM)
      list->strands_from = walk->unsorted_chunks / 4;
    list->head = gb_bin_head(layout, walk->arena, list->bin);
  }
}

static bool is_wanted(const struct walk *walk) {
  return !walk->pages_only || walk->number == GB_FASTBINS ||
         walk->number - GB_FASTBINS + 1 >= gb_bin_of_page(walk->hold.page);
}

static void next_list(struct walk *walk) {
  walk->restarts = 0;
  do
    ++walk->number;
  while (walk->number < LISTS && !is_wanted(walk));
  begin_list(walk);
}

static void add_list(struct walk *walk, uint64_t chunks, uint64_t bytes) {
  if (walk->number < GB_FASTBINS) {
    walk->look->fastbins_chunks += chunks;
    walk->look->fastbins_bytes += bytes;
  } else {
    if (walk->looker->list->bin == GB_BIN_UNSORTED)
      walk->unsorted_chunks = chunks;
    walk->look->bins_chunks += chunks;
    walk->look->bins_bytes += bytes;
  }
}

/* The list cannot be followed further: begin it anew, or leave it out (C6). */
static void restart_list(struct walk *walk) {
  walk->look->settled = false;
  if (walk->restarts++ < GB_LIST_RESTARTS) {
    begin_list(walk);
    return;
  }
  walk->look->complete = false;
  next_list(walk);
}

/* What the members of the current list may sum up to (C3). */
static uint64_t budget_left(const struct gb_look *look) {
  const uint64_t counted = look->bins_bytes + look->fastbins_bytes;
  /* The arena may have shrunk since the lists before this one were counted. */
  return counted <= look->system_bytes ? look->system_bytes - counted : look->system_bytes;
}

/* ---- holds ----------------------------------------------------------------- */

enum gb_status gb_look_fields(struct gb_looker *looker, uintptr_t arena, bool is_main, struct gb_look *look) {
  const struct gb_layout *layout = &looker->layout;
  enum gb_status status =
      gb_ranges_of_arena(&looker->ranges, layout, arena, looker->heap_header, is_main, looker->maps);
  if (status != GB_OK)
    return status;

  look->system_bytes = gb_load(arena + layout->system_mem);
  look->max_system_bytes = gb_load(arena + layout->max_system_mem);
  look->attached_threads = gb_load(arena + layout->attached_threads);
  look->contiguous = is_main && (gb_load_half(arena + GB_ARENA_FLAGS) & GB_ARENA_NONCONTIGUOUS) == 0;
  look->start = look->contiguous && looker->ranges.count > 0 ? looker->ranges.sorted[0].start : 0;
  if (look->system_bytes > look->max_system_bytes)
    return GB_DOUBT_ARENA;
  if (look->system_bytes == 0)
    return GB_OK;

  look->top = gb_load(arena + layout->top);
  const struct gb_range *range = gb_ranges_find(&looker->ranges, look->top);
  if (range == NULL || !gb_is_aligned(look->top, GB_CHUNK_ALIGN) || range->end - look->top < GB_CHUNK_HEADER)
    return GB_DOUBT_TOP;
  look->top_bytes = gb_load(look->top + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  const uint64_t room = range->end - look->top;
  if (look->top_bytes < GB_CHUNK_MIN || look->top_bytes > room ||
      (look->top_bytes < room && (!is_main || look->contiguous)))
    return GB_DOUBT_TOP;
  return GB_OK;
}

static void note_changes(struct walk *walk) {
  const size_t bytes = walk->looker->layout.size - GB_ARENA_CONTENTS;
  const void *now = (const void *)(walk->arena + GB_ARENA_CONTENTS);
  if (walk->remembered && memcmp(walk->before, now, bytes) != 0)
    walk->look->settled = false;
}

static void remember(struct walk *walk) {
  const size_t bytes = walk->looker->layout.size - GB_ARENA_CONTENTS;
  memcpy(walk->before, (const void *)(walk->arena + GB_ARENA_CONTENTS), bytes);
  walk->remembered = true;
}

/* The ranges of a main arena that is not contiguous are only what the snapshot of the mappings says, and
 * what a kept position leads to could be gone from there. So each of its lists is walked in one
 * hold, or left out. */
static bool keeps_positions(const struct walk *walk) {
  return !walk->is_main || walk->look->contiguous;
}

/* One hold: from where the last one ended until its time is up. pre: the lock is ours. */
static enum gb_status walk_lists(struct walk *walk) {
  struct gb_free_list *list = walk->looker->list;
  enum gb_status status = gb_look_fields(walk->looker, walk->arena, walk->is_main, walk->look);
  if (status != GB_OK || walk->look->system_bytes == 0)
    return status;
  note_changes(walk);
  if (list->inside && !keeps_positions(walk)) {
    walk->look->complete = false;
    next_list(walk);
  }
  if (!gb_free_list_resume(list, &walk->hold))
    restart_list(walk);

  while (status == GB_OK && walk->number < LISTS) {
    uint64_t chunks = 0;
    uint64_t bytes = 0;
    list->budget = budget_left(walk->look);
    if (!keeps_positions(walk)) {
      list->strands_from = UINT64_MAX;
      walk->hold.end_ns = gb_now_ns() + GB_HOLD_WITHOUT_POSITIONS_NS;
    }
    if (list->bin != 0 || walk->looker->layout.fastbins != 0)
      status = gb_free_list_walk(list, &walk->hold, &chunks, &bytes);
    if (status == GB_OK) {
      add_list(walk, chunks, bytes);
      next_list(walk);
    }
  }
  if (status >= GB_DOUBT_ARENA && list->resumed) {
    /* The list may have been changed while we did not hold it, which need not show in the arena's
     * fields: realloc takes a chunk out of the middle of a list. Only what was read from its head
     * within one hold can be blamed on it. */
    restart_list(walk);
    status = GB_MORE;
  }
  if (status == GB_OK || status == GB_MORE)
    remember(walk);
  return status;
}

/* False if the lock was busy. *pause is for how long to leave it alone now: if somebody waited for
 * it, as long as we had it; else not at all, a sleep costs more than a hold. */
static bool hold_once(struct walk *walk, uint64_t hold_ns, enum gb_status *status, uint64_t *pause) {
  struct gb_signals signals;
  gb_ranges_prefetch(&walk->looker->ranges);
  gb_os_signals_block(&signals);
  const bool locked = gb_arena_try_lock(walk->arena);
  if (locked) {
    const uint64_t begin = gb_now_ns();
    walk->hold.end_ns = begin + hold_ns;
    walk->hold.until_clock = GB_MEMBERS_A_CLOCK;
    walk->hold.any = false;
    walk->hold.spans_count = 0;
    *status = walk_lists(walk);
    const bool awaited = gb_arena_unlock(walk->arena);
    const uint64_t held = gb_now_ns() - begin;
    *pause = awaited ? held : 0;
    ++walk->look->holds;
    walk->look->held_ns += held;
    if (held > walk->look->longest_hold_ns)
      walk->look->longest_hold_ns = held;
  }
  gb_os_signals_restore(&signals);
  return locked;
}

/* What was counted so far is of an arena that a new snapshot may show differently, but
 * the walk itself goes on: positions are checked anyway. */
static enum gb_status refresh(struct walk *walk, enum gb_status wanted, unsigned *refreshes) {
  if (++*refreshes > MAX_REFRESHES)
    return GB_STALE;
  if (wanted == GB_STALE)
    return gb_os_maps_read(walk->looker->maps);
  return gb_ranges_grow(&walk->looker->ranges);
}

static void deliver(const struct gb_hold *hold, const struct gb_look_options *options) {
  if (hold->spans_count > 0 && options->spans != NULL)
    options->spans(options->context, hold->spans, hold->spans_count);
}

enum gb_status gb_look_at(struct gb_looker *looker, uintptr_t arena, bool is_main,
                          const struct gb_look_options *options, struct gb_look *look) {
  *look = (struct gb_look){.settled = true, .complete = true};
  struct walk walk = {
      .looker = looker,
      .arena = arena,
      .is_main = is_main,
      .look = look,
      .pages_only = options->pages_only,
      .number = options->pages_only ? GB_FASTBINS : 0,
      .hold =
          {
              .ranges = &looker->ranges,
              .spans = options->spans != NULL ? looker->spans : NULL,
              .page = gb_os_page_size(),
          },
  };
  looker->list->links = GB_LINKS_UNKNOWN;
  begin_list(&walk);
  uint64_t backoff = BACKOFF_FIRST_NS;
  uint64_t busy_since = 0;
  unsigned refreshes = 0;
  for (;;) {
    enum gb_status status = GB_OK;
    uint64_t pause = 0;
    if (!hold_once(&walk, options->hold_ns, &status, &pause)) {
      ++look->tries_busy;
      const uint64_t now = gb_now_ns();
      if (busy_since == 0)
        busy_since = now;
      if (now - busy_since >= options->patience_ns)
        return GB_BUSY;
      gb_os_sleep_ns(backoff);
      backoff = backoff * 2 < BACKOFF_LAST_NS ? backoff * 2 : BACKOFF_LAST_NS;
      continue;
    }
    busy_since = 0;
    backoff = BACKOFF_FIRST_NS;
    deliver(&walk.hold, options);
    if (status == GB_OK)
      return GB_OK;
    if (status == GB_STALE || status == GB_NO_ROOM) {
      status = refresh(&walk, status, &refreshes);
      if (status != GB_OK)
        return status;
    } else if (status == GB_MORE) {
      if (pause > 0)
        gb_os_sleep_ns(pause);
    } else {
      return status;
    }
  }
}

enum gb_status gb_looker_init(struct gb_looker *looker, const struct gb_layout *layout, uint64_t heap_header,
                              struct gb_maps *maps) {
  *looker = (struct gb_looker){.layout = *layout, .heap_header = heap_header, .maps = maps};
  enum gb_status status = gb_ranges_init(&looker->ranges);
  if (status != GB_OK)
    return status;
  looker->spans = gb_os_alloc(GB_SPANS * sizeof *looker->spans);
  looker->list = gb_os_alloc(sizeof *looker->list);
  if (looker->spans == NULL || looker->list == NULL) {
    gb_looker_free(looker);
    return GB_NO_MEMORY;
  }
  /* Touched now: a page fault of ours under somebody's lock would lengthen the hold. */
  memset(looker->spans, 0, GB_SPANS * sizeof *looker->spans);
  memset(looker->list, 0, sizeof *looker->list);
  return GB_OK;
}

void gb_looker_free(struct gb_looker *looker) {
  gb_ranges_free(&looker->ranges);
  gb_os_free(looker->spans, GB_SPANS * sizeof *looker->spans);
  gb_os_free(looker->list, sizeof *looker->list);
  *looker = (struct gb_looker){0};
}
