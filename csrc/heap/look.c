#include "heap/look.h"

#include <string.h>

#include "base/align.h"
#include "base/clock.h"

/* Spans of one hold; 128 KiB of our own memory. */
#define SPANS 8192u
/* Chunks between two looks at the clock: 32 cache misses are about 3 us. */
#define CHUNKS_A_CLOCK 32u
/* Kept positions of the current list, and how far apart. */
#define TRAIL 8u
#define TRAIL_STEP 256u
/* New snapshots of the mappings, or larger tables, in one look. */
#define MAX_REFRESHES 16u
/* Between two tries for a busy lock: from 20 us, doubling to 1 ms. */
#define BACKOFF_FIRST_NS UINT64_C(20000)
#define BACKOFF_LAST_NS UINT64_C(1000000)

/* Lists in the order of the walk: fastbins, then bins 1 to 127. */
#define LISTS (GB_FASTBINS + GB_BINS)

/* The chunk to be visited next, and what its list summed up to before it. */
struct position {
  uintptr_t chunk;
  uintptr_t previous; /* the member before it; the list head if it is the first */
  uint64_t chunks;
  uint64_t bytes;
};

struct walk {
  struct gb_looker *looker;
  uintptr_t arena;
  bool is_main;
  bool wants_spans;
  struct gb_look *look;

  unsigned list;
  bool inside; /* `at` is a position in the list, not its beginning */
  struct position at;
  struct position trail[TRAIL]; /* older ones, newest at trail_count - 1 */
  unsigned trail_count;
  unsigned restarts;
  uint64_t budget_bytes;  /* what lists may still sum up to (C3) */
  uintptr_t fastbin_head; /* of the current fastbin when its walk began */
  enum { LINKS_UNKNOWN, LINKS_PLAIN, LINKS_PROTECTED } fastbin_links;

  uint64_t hold_end_ns;
  unsigned until_clock;
  bool any;                                /* this hold has visited a chunk */
  unsigned char before[GB_ARENA_MAX_SIZE]; /* the arena when the last hold ended */
};

/* ---- time ------------------------------------------------------------------ */

static bool hold_is_over(struct walk *walk) {
  if (--walk->until_clock > 0)
    return false;
  walk->until_clock = CHUNKS_A_CLOCK;
  return walk->any && gb_now_ns() >= walk->hold_end_ns;
}

/* ---- positions ------------------------------------------------------------- */

static void begin_list(struct walk *walk) {
  walk->inside = false;
  walk->at = (struct position){0};
  walk->trail_count = 0;
}

static void keep_in_trail(struct walk *walk) {
  if (walk->trail_count == TRAIL) {
    memmove(&walk->trail[0], &walk->trail[1], sizeof walk->trail - sizeof walk->trail[0]);
    --walk->trail_count;
  }
  walk->trail[walk->trail_count++] = walk->at;
}

static void end_list(struct walk *walk) {
  const bool fast = walk->list < GB_FASTBINS;
  if (fast) {
    walk->look->fastbins_chunks += walk->at.chunks;
    walk->look->fastbins_bytes += walk->at.bytes;
  } else {
    walk->look->bins_chunks += walk->at.chunks;
    walk->look->bins_bytes += walk->at.bytes;
  }
  walk->budget_bytes -= walk->at.bytes;
  walk->restarts = 0;
  ++walk->list;
  begin_list(walk);
}

/* ---- chunks ---------------------------------------------------------------- */

/* The range in which a chunk's header and links may be read (C2), or NULL. */
static const struct gb_range *range_of_chunk(struct walk *walk, uintptr_t chunk) {
  if (!gb_is_aligned(chunk, GB_CHUNK_ALIGN))
    return NULL;
  const struct gb_range *range = gb_ranges_find(&walk->looker->ranges, chunk);
  return range != NULL && range->end - chunk >= GB_CHUNK_MIN ? range : NULL;
}

/* Size of the free chunk, 0 if it is none that can be. */
static uint64_t size_of_free(const struct gb_range *range, uintptr_t chunk) {
  const uint64_t word = gb_load(chunk + GB_CHUNK_SIZE);
  const uint64_t size = word & ~GB_SIZE_FLAGS;
  if ((word & (GB_PREV_INUSE | GB_IS_MMAPPED)) != GB_PREV_INUSE || size < GB_CHUNK_MIN ||
      !gb_is_aligned(size, GB_CHUNK_ALIGN) || size > range->end - chunk - GB_CHUNK_HEADER)
    return 0;
  return size;
}

/* What the chunk behind says of this one. pre: size_of_free accepted it. */
static bool footer_agrees(uintptr_t chunk, uint64_t size) {
  return gb_load(chunk + size) == size && (gb_load(chunk + size + GB_CHUNK_SIZE) & GB_PREV_INUSE) == 0;
}

/* C4: listed, and behind the same member as when it was kept. One that was taken out and
 * put back at the front would make us count the list twice. */
static bool still_listed(struct walk *walk, uintptr_t head, const struct position *position) {
  const struct gb_range *range = range_of_chunk(walk, position->chunk);
  if (range == NULL)
    return false;
  const uint64_t size = size_of_free(range, position->chunk);
  if (size == 0 || !footer_agrees(position->chunk, size))
    return false;
  const uintptr_t next = gb_load(position->chunk + GB_CHUNK_FD);
  const uintptr_t previous = gb_load(position->chunk + GB_CHUNK_BK);
  if (previous != position->previous)
    return false;
  if ((next != head && range_of_chunk(walk, next) == NULL) ||
      (previous != head && range_of_chunk(walk, previous) == NULL))
    return false;
  return gb_load(next + GB_CHUNK_BK) == position->chunk && gb_load(previous + GB_CHUNK_FD) == position->chunk;
}

/* Goes back to the newest position that still holds; false if the list begins anew. */
static bool resume(struct walk *walk, uintptr_t head) {
  for (;;) {
    if (still_listed(walk, head, &walk->at))
      return true;
    walk->look->settled = false;
    if (walk->trail_count == 0)
      return false;
    walk->at = walk->trail[--walk->trail_count];
  }
}

/* ---- lists ----------------------------------------------------------------- */

static enum gb_status walk_bin(struct walk *walk, unsigned bin) {
  struct gb_looker *looker = walk->looker;
  const size_t page = gb_os_page_size();
  const uintptr_t head = gb_bin_head(&looker->layout, walk->arena, bin);
  if (!walk->inside) {
    walk->at = (struct position){.chunk = gb_load(head + GB_CHUNK_FD), .previous = head};
    walk->inside = true;
  }

  struct position at = walk->at;
  enum gb_status status = GB_OK;
  while (at.chunk != head) {
    const struct gb_range *range = range_of_chunk(walk, at.chunk);
    if (range == NULL || gb_load(at.chunk + GB_CHUNK_BK) != at.previous) {
      status = GB_DOUBT_LINK;
      break;
    }
    const uint64_t size = size_of_free(range, at.chunk);
    if (size == 0 || at.bytes + size > walk->budget_bytes ||
        (bin != GB_BIN_UNSORTED && gb_bin_of_size(size) != bin)) {
      status = GB_DOUBT_CHUNK;
      break;
    }
    uintptr_t start;
    uintptr_t end;
    gb_interior(at.chunk, size, page, &start, &end);
    if (start < end) {
      if (!footer_agrees(at.chunk, size)) {
        status = GB_DOUBT_CHUNK;
        break;
      }
      if (walk->wants_spans)
        looker->spans[looker->spans_count++] = (struct gb_span){start, end};
    }
    at.previous = at.chunk;
    at.chunk = gb_load(at.chunk + GB_CHUNK_FD);
    at.bytes += size;
    ++at.chunks;
    walk->any = true;
    if (at.chunks % TRAIL_STEP == 0 && at.chunk != head) {
      walk->at = at;
      keep_in_trail(walk);
    }
    if (hold_is_over(walk) || looker->spans_count == SPANS) {
      status = GB_MORE;
      break;
    }
  }
  walk->at = at;
  if (status == GB_OK && gb_load(head + GB_CHUNK_BK) != at.previous)
    return GB_DOUBT_LINK;
  return status;
}

static bool is_fast_chunk(struct walk *walk, uintptr_t chunk, unsigned index) {
  const struct gb_range *range = range_of_chunk(walk, chunk);
  if (range == NULL)
    return false;
  const uint64_t size = gb_load(chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  return (size >> 4) == index + 2 && size <= range->end - chunk;
}

/* From glibc 2.32 on the link is XORed with its own address / 4096 (malloc.c, PROTECT_PTR).
 * One of the two readings makes sense for the first link seen; all others must follow it. */
static bool next_fast_chunk(struct walk *walk, uintptr_t chunk, unsigned index, uintptr_t *next) {
  const uintptr_t link = gb_load(chunk + GB_CHUNK_FD);
  const uintptr_t revealed = link ^ ((chunk + GB_CHUNK_FD) >> 12);
  if (walk->fastbin_links != LINKS_PLAIN && (revealed == 0 || is_fast_chunk(walk, revealed, index))) {
    walk->fastbin_links = LINKS_PROTECTED;
    *next = revealed;
    return true;
  }
  if (walk->fastbin_links != LINKS_PROTECTED && (link == 0 || is_fast_chunk(walk, link, index))) {
    walk->fastbin_links = LINKS_PLAIN;
    *next = link;
    return true;
  }
  return false;
}

static enum gb_status walk_fastbin(struct walk *walk, unsigned index) {
  if (walk->looker->layout.fastbins == 0)
    return GB_OK;
  if (!walk->inside) {
    walk->fastbin_head = gb_load(walk->arena + walk->looker->layout.fastbins + (uintptr_t)index * 8);
    walk->at = (struct position){.chunk = walk->fastbin_head};
    walk->inside = true;
  }
  while (walk->at.chunk != 0) {
    if (!is_fast_chunk(walk, walk->at.chunk, index))
      return GB_DOUBT_CHUNK;
    uintptr_t next;
    if (!next_fast_chunk(walk, walk->at.chunk, index, &next))
      return GB_DOUBT_LINK;
    walk->at.bytes += (uint64_t)(index + 2) << 4;
    ++walk->at.chunks;
    walk->any = true;
    if (walk->at.bytes > walk->budget_bytes)
      return GB_DOUBT_CHUNK; /* also ends a list that loops */
    walk->at.chunk = next;
    if (hold_is_over(walk))
      return GB_MORE;
  }
  return GB_OK;
}

/* A fastbin is a stack: below an unchanged head the rest is very likely unchanged too. */
static bool resume_fastbin(struct walk *walk, unsigned index) {
  const uintptr_t head = gb_load(walk->arena + walk->looker->layout.fastbins + (uintptr_t)index * 8);
  if (head == walk->fastbin_head && (walk->at.chunk == 0 || is_fast_chunk(walk, walk->at.chunk, index)))
    return true;
  walk->look->settled = false;
  return false;
}

static bool resume_list(struct walk *walk) {
  if (walk->list < GB_FASTBINS)
    return resume_fastbin(walk, walk->list);
  const uintptr_t head = gb_bin_head(&walk->looker->layout, walk->arena, walk->list - GB_FASTBINS + 1);
  return walk->at.chunk == head || resume(walk, head);
}

/* The list cannot be followed further: begin it anew, or leave out the rest (C6). */
static void restart_list(struct walk *walk) {
  if (walk->restarts++ < GB_LIST_RESTARTS) {
    begin_list(walk);
  } else {
    walk->look->complete = false;
    end_list(walk);
  }
}

/* ---- holds ----------------------------------------------------------------- */

static enum gb_status read_arena(struct walk *walk) {
  struct gb_looker *looker = walk->looker;
  const struct gb_layout *layout = &looker->layout;
  struct gb_look *look = walk->look;
  enum gb_status status = gb_ranges_of_arena(&looker->ranges, layout, walk->arena, looker->heap_header,
                                             walk->is_main, looker->maps);
  if (status != GB_OK)
    return status;

  look->system_bytes = gb_load(walk->arena + layout->system_mem);
  look->max_system_bytes = gb_load(walk->arena + layout->max_system_mem);
  look->attached_threads = gb_load(walk->arena + layout->attached_threads);
  look->contiguous =
      walk->is_main && (gb_load_half(walk->arena + GB_ARENA_FLAGS) & GB_ARENA_NONCONTIGUOUS) == 0;
  look->start = look->contiguous && looker->ranges.count == 1 ? looker->ranges.sorted[0].start : 0;
  if (look->system_bytes > look->max_system_bytes)
    return GB_DOUBT_ARENA;
  if (look->system_bytes == 0)
    return GB_OK;

  look->top = gb_load(walk->arena + layout->top);
  const struct gb_range *range = gb_ranges_find(&looker->ranges, look->top);
  if (range == NULL || !gb_is_aligned(look->top, GB_CHUNK_ALIGN) || range->end - look->top < GB_CHUNK_HEADER)
    return GB_DOUBT_TOP;
  look->top_bytes = gb_load(look->top + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  const uint64_t room = range->end - look->top;
  if (look->top_bytes > room || (look->top_bytes < room && (!walk->is_main || look->contiguous)))
    return GB_DOUBT_TOP;
  return GB_OK;
}

static void note_changes(struct walk *walk) {
  const size_t bytes = walk->looker->layout.size - GB_ARENA_CONTENTS;
  const void *now = (const void *)(walk->arena + GB_ARENA_CONTENTS);
  if (walk->look->holds > 0 && memcmp(walk->before, now, bytes) != 0)
    walk->look->settled = false;
}

static void remember(struct walk *walk) {
  const size_t bytes = walk->looker->layout.size - GB_ARENA_CONTENTS;
  memcpy(walk->before, (const void *)(walk->arena + GB_ARENA_CONTENTS), bytes);
}

/* One hold: from where the last one ended until its time is up. pre: the lock is ours. */
static enum gb_status walk_lists(struct walk *walk) {
  enum gb_status status = read_arena(walk);
  if (status != GB_OK || walk->look->system_bytes == 0)
    return status;
  note_changes(walk);

  if (walk->inside && !resume_list(walk))
    restart_list(walk);
  walk->budget_bytes = walk->look->system_bytes - walk->look->bins_bytes - walk->look->fastbins_bytes;
  if (walk->look->bins_bytes + walk->look->fastbins_bytes > walk->look->system_bytes) {
    /* The arena shrank since the lists before this one were counted. */
    walk->budget_bytes = walk->look->system_bytes;
  }
  while (walk->list < LISTS) {
    status = walk->list < GB_FASTBINS ? walk_fastbin(walk, walk->list)
                                      : walk_bin(walk, walk->list - GB_FASTBINS + 1);
    if (status != GB_OK)
      break;
    end_list(walk);
  }
  if (status >= GB_DOUBT_ARENA && !walk->look->settled) {
    /* The list was changed while we did not hold it: that explains the contradiction. */
    restart_list(walk);
    status = GB_MORE;
  }
  if (status == GB_OK || status == GB_MORE)
    remember(walk);
  return status;
}

/* False if the lock was busy. *held is the wall time for which we had it. */
static bool hold_once(struct walk *walk, uint64_t hold_ns, enum gb_status *status, uint64_t *held) {
  struct gb_signals signals;
  gb_ranges_prefetch(&walk->looker->ranges);
  gb_os_signals_block(&signals);
  const bool locked = gb_arena_try_lock(walk->arena);
  if (locked) {
    const uint64_t begin = gb_now_ns();
    walk->hold_end_ns = begin + hold_ns;
    walk->until_clock = CHUNKS_A_CLOCK;
    walk->any = false;
    *status = walk_lists(walk);
    gb_arena_unlock(walk->arena);
    *held = gb_now_ns() - begin;
    ++walk->look->holds;
    walk->look->held_ns += *held;
    if (*held > walk->look->longest_hold_ns)
      walk->look->longest_hold_ns = *held;
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

static void deliver(struct gb_looker *looker, const struct gb_look_options *options) {
  if (looker->spans_count > 0 && options->spans != NULL)
    options->spans(options->context, looker->spans, looker->spans_count);
  looker->spans_count = 0;
}

enum gb_status gb_look_at(struct gb_looker *looker, uintptr_t arena, bool is_main,
                          const struct gb_look_options *options, struct gb_look *look) {
  *look = (struct gb_look){.settled = true, .complete = true};
  looker->spans_count = 0;
  struct walk walk = {
      .looker = looker,
      .arena = arena,
      .is_main = is_main,
      .wants_spans = options->spans != NULL,
      .look = look,
  };
  uint64_t backoff = BACKOFF_FIRST_NS;
  uint64_t busy_since = 0;
  unsigned refreshes = 0;
  for (;;) {
    enum gb_status status = GB_OK;
    uint64_t held = 0;
    if (!hold_once(&walk, options->hold_ns, &status, &held)) {
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
    deliver(looker, options);
    if (status == GB_OK)
      return GB_OK;
    if (status == GB_STALE || status == GB_NO_ROOM) {
      status = refresh(&walk, status, &refreshes);
      if (status != GB_OK)
        return status;
    } else if (status == GB_MORE) {
      /* Let others have the lock for as long as we had it. */
      gb_os_sleep_ns(held);
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
  looker->spans = gb_os_alloc(SPANS * sizeof *looker->spans);
  if (looker->spans == NULL) {
    gb_looker_free(looker);
    return GB_NO_MEMORY;
  }
  /* Touched now: a page fault of ours under somebody's lock would lengthen the hold. */
  memset(looker->spans, 0, SPANS * sizeof *looker->spans);
  return GB_OK;
}

void gb_looker_free(struct gb_looker *looker) {
  gb_ranges_free(&looker->ranges);
  gb_os_free(looker->spans, SPANS * sizeof *looker->spans);
  *looker = (struct gb_looker){0};
}
