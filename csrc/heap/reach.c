#include "heap/reach.h"

#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "heap/neighbour.h"

#define MEMBERS_A_CHECK 32u /* visited between two looks at the clock and at the lock's word */
/* Holds in a row that may get nowhere, neither to a page nor deeper into the list. From the second on, as long as
 * nobody waits, they may walk twice as long; but for less than this, none: it is not worth the way. */
#define MOST_STUCK 3u
#define LITTLE_LEFT (UINT64_C(1) << 20)
#define REST_SHARE 4u /* of a batch: so little of it may wait for the next hold */
#define WALK_SHARE 3u /* a hold may last so many times as long as finding the way took */

static void forget(struct gb_reach *reach) {
  gb_path_forget(&reach->paths[0]);
  gb_path_forget(&reach->paths[1]);
  reach->backwards = false;
  reach->deepest = 0;
  reach->stuck = 0;
}

static struct gb_path *path_of(const struct gb_reach *reach) {
  return &reach->paths[reach->backwards ? 1 : 0];
}

#define NO_TOP SIZE_MAX
/* So far behind a chunk is looked for wanted pages: the next hold has to step over it once more, but has to pass the
 * more members the less that is. A few hundred members, evenly strewn, then see all of the arena. */
#define REACHES_AN_ARENA 256u
#define REACH_LEAST_BYTES (UINT64_C(256) << 10)
#define REACH_MOST_BYTES (UINT64_C(4) << 20)
/* Chunks stepped over in memory, until lists are better: small live ones may lie between. */
#define MOST_STEPS 8192u
#define STEPS_A_PAGE 32u
/* And from the start of a heap, since each hold begins there again. */
#define MOST_HEAP_STEPS 1024u
#define HEAP_STEPS_A_PAGE 4u
/* Locked spans met in one release, after which the whole arena is taken for locked. */
#define MOST_LOCKED 64u

/* ---- one hold ----------------------------------------------------------------- */

struct hold {
  struct gb_reach *reach;
  const struct gb_reach_options *options;
  struct gb_reach_hold *result;
  struct gb_look look; /* the arena's fields, as of this hold */
  size_t page;
  uint64_t begin_ns;
  uint64_t end_ns; /* R7 */
  bool released; /* something was, so the way is paid for */
  uint64_t way_ns; /* if so: what it took */
  size_t top_from; /* spans of the batch from here on are of the top chunk; NO_TOP: none */
  size_t at; /* members of this list before the one that is visited */
  size_t closed_from; /* the first member closed since the batch was empty; SIZE_MAX: none */
  bool carried; /* the batch holds spans of a list before this one */
  uint64_t bytes; /* in the batch */
  size_t count;
  struct gb_span spans[GB_RELEASE_SPANS];
};

static bool is_awaited(uintptr_t arena) {
  return __atomic_load_n((const uint32_t *)(arena + GB_ARENA_MUTEX), __ATOMIC_RELAXED) > 1;
}

/* R7: after the way was found, more time the longer that took. */
static void extend(struct hold *hold, uint64_t now) {
  if (hold->released)
    return;
  hold->released = true;
  const uint64_t walked = now - hold->begin_ns;
  hold->way_ns = walked;
  uint64_t length = walked * WALK_SHARE;
  if (length > hold->options->longest_ns)
    length = hold->options->longest_ns;
  if (length < walked + hold->options->pause_ns)
    length =
        walked < hold->options->pause_ns / 2 ? hold->options->pause_ns : walked + hold->options->pause_ns;
  hold->end_ns = hold->begin_ns + length;
}

/* The first `bytes` of the batch were released; the rest is wanted again. But if the kernel called the span behind
 * them `locked`, that one is not. */
static void settle_batch(struct hold *hold, uint64_t bytes, bool locked) {
  struct gb_reach *reach = hold->reach;
  const uint64_t bytes_left = hold->bytes - bytes;
  for (size_t i = 0; i < hold->count; ++i) {
    const struct gb_span *span = &hold->spans[i];
    const uint64_t length = span->end - span->start;
    const uint64_t here = length < bytes ? length : bytes;
    *(i < hold->top_from ? &hold->result->bytes : &hold->result->top_bytes) += here;
    reach->left -= here;
    bytes -= here;
    if (here == length)
      continue;
    if (locked) {
      locked = false;
      reach->left -= length - here;
      ++reach->locked;
    } else {
      /* Its blocks exist, so this allocates nothing. */
      (void)gb_free_pages_add(reach->wanted, span->start + here, span->end);
    }
  }
  for (size_t i = hold->closed_from; bytes_left > 0 && i <= hold->at; ++i)
    gb_path_open(path_of(reach), i); /* what lies behind it has to be met again */
  hold->closed_from = SIZE_MAX;
  hold->carried = false;
  hold->count = 0;
  hold->bytes = 0;
  if (hold->top_from != NO_TOP)
    hold->top_from = 0;
}

/* Nothing is in the batch: whatever was before this member has been dealt with. */
static void note_done(struct hold *hold) {
  struct gb_path *path = path_of(hold->reach);
  if (hold->top_from == NO_TOP && path->done < hold->at && hold->at <= path->count)
    path->done = hold->at;
}

/* Releases the batch (R6). GB_MORE: the hold is over. */
static enum gb_status flush(struct hold *hold) {
  if (hold->count == 0)
    return GB_OK;
  const uint64_t before = gb_now_ns();
  extend(hold, before);
  struct gb_released released;
  const enum gb_status status = gb_os_release(hold->reach->release, hold->spans, hold->count, &released);
  const uint64_t after = gb_now_ns();
  if (status == GB_OK)
    gb_batch_learn(hold->reach->batch, (uint32_t)hold->count, hold->bytes, after - before);
  settle_batch(hold, released.bytes, status == GB_LOCKED);
  hold->result->calls += released.calls;
  hold->result->failures += released.failures;
  if (released.failures != 0)
    hold->result->error = released.error;
  if (status == GB_LOCKED && hold->reach->locked < MOST_LOCKED)
    return GB_MORE; /* some of it: the rest goes in the next hold */
  if (status != GB_OK)
    return status;
  note_done(hold);
  /* Where the next batch, which costs about as much, would end more than half beyond it, this one is the last. */
  return after + (after - before) / 2 >= hold->end_ns || is_awaited(hold->reach->arena) ? GB_MORE : GB_OK;
}

/* The hold is over. If it released something, a small rest is left to the next one, which meets it again: a call
 * costs as much as many pages. */
static enum gb_status end_hold(struct hold *hold) {
  const struct gb_batch *batch = hold->reach->batch;
  if (hold->result->calls > 0 && !hold->carried && hold->bytes < batch->bytes / REST_SHARE) {
    settle_batch(hold, 0, false);
    return GB_MORE;
  }
  const enum gb_status status = flush(hold);
  return status == GB_OK ? GB_MORE : status;
}

/* Adds the wanted pages of [start, end) to the batch, which may be released on the way. */
static enum gb_status release_wanted(struct hold *hold, uintptr_t start, uintptr_t end) {
  const struct gb_batch *batch = hold->reach->batch;
  struct gb_span run;
  while (start < end && gb_free_pages_next(hold->reach->wanted, start, end, &run)) {
    const uint64_t room =
        batch->bytes > hold->bytes ? gb_align_down(batch->bytes - hold->bytes, hold->page) : 0;
    if (hold->count == GB_RELEASE_SPANS || hold->count >= batch->ranges || room == 0) {
      const enum gb_status status = flush(hold);
      if (status != GB_OK)
        return status;
      continue;
    }
    if (run.end - run.start > room)
      run.end = run.start + room;
    hold->spans[hold->count++] = run;
    gb_free_pages_remove(hold->reach->wanted, run.start, run.end); /* it may be met once more */
    hold->bytes += run.end - run.start;
    start = run.end;
  }
  return GB_OK;
}

/* True if walking on would let somebody wait, or goes on for too long without finding anything. */
static bool walked_enough(const struct hold *hold) {
  const uint64_t now = gb_now_ns();
  if (hold->released)
    return now >= hold->end_ns || is_awaited(hold->reach->arena);
  const uint64_t walked = now - hold->begin_ns;
  return walked >= hold->options->walk_ns << (hold->reach->stuck > 0) ||
         (walked >= hold->options->pause_ns && is_awaited(hold->reach->arena));
}

/* Where the main arena is not contiguous, other memory lies between its parts. */
static bool may_step(const struct hold *hold) {
  const struct gb_reach *reach = hold->reach;
  return (!reach->is_main || hold->look.contiguous) &&
         reach->near.steps <= MOST_STEPS + STEPS_A_PAGE * reach->near.pages;
}

/* Visits the chunk at `at`, if one can be there, and releases what is wanted of it. *size: 0 if the way ends here. */
static enum gb_status step(struct hold *hold, struct gb_steps *steps, const struct gb_range *range,
                           uintptr_t at, uint64_t *size) {
  struct gb_reach *reach = hold->reach;
  const enum gb_neighbour neighbour = gb_neighbour_at(reach->looker, reach->arena, range, at, size);
  ++steps->steps;
  if (neighbour == GB_NEIGHBOUR_END)
    *size = 0;
  uintptr_t start;
  uintptr_t end;
  gb_interior(at, *size, hold->page, &start, &end);
  if (neighbour != GB_NEIGHBOUR_FREE || start >= end)
    return GB_OK;
  const uint64_t before = reach->left - hold->bytes;
  const enum gb_status status = release_wanted(hold, start, end);
  steps->pages += (before - (reach->left - hold->bytes)) / hold->page;
  return status;
}

/* True if something is wanted within reach. */
static bool is_wanted_behind(const struct hold *hold, const struct gb_range *range, uintptr_t at,
                             struct gb_span *run) {
  uint64_t bytes = hold->look.system_bytes / REACHES_AN_ARENA;
  if (bytes < REACH_LEAST_BYTES)
    bytes = REACH_LEAST_BYTES;
  if (bytes > REACH_MOST_BYTES)
    bytes = REACH_MOST_BYTES;
  const uintptr_t end = gb_align_down(range->end - at > bytes ? at + bytes : range->end, hold->page);
  return gb_free_pages_next(hold->reach->wanted, gb_align_down(at, hold->page), end, run);
}

/* R2: on from a member, through memory, as long as something is wanted near. *done: nothing is left to do here. */
static enum gb_status release_behind(struct hold *hold, const struct gb_range *range, uintptr_t at,
                                     bool *done) {
  struct gb_reach *reach = hold->reach;
  struct gb_span run = {0};
  *done = true;
  for (unsigned steps = 1;; ++steps) {
    if (at > run.start && !is_wanted_behind(hold, range, at, &run))
      return GB_OK;
    uint64_t size;
    const enum gb_status status = step(hold, &reach->near, range, at, &size);
    *done = status == GB_OK;
    if (status != GB_OK || size == 0 || !may_step(hold))
      return status;
    at += size;
    if (steps % MEMBERS_A_CHECK == 0 && walked_enough(hold)) {
      *done = false;
      return end_hold(hold);
    }
  }
}

static bool is_dense(const struct gb_steps *steps) {
  return steps->steps > MOST_HEAP_STEPS + HEAP_STEPS_A_PAGE * steps->pages;
}

/* R2: from the first chunk of a heap to the last that is wanted. The path holds the chunks that were passed. */
static enum gb_status walk_heap(struct hold *hold, const struct gb_range *range) {
  struct gb_reach *reach = hold->reach;
  struct gb_path *path = &reach->paths[0];
  struct gb_span run = {0};
  bool full = false;
  reach->heap.steps = 0;
  uintptr_t at = gb_align_up(range->start, GB_CHUNK_ALIGN);
  for (hold->at = 0;; ++hold->at) {
    if (at > run.start && !gb_free_pages_next(reach->wanted, gb_align_down(at, hold->page), range->end, &run))
      return GB_OK;
    gb_path_hint(path, hold->at);
    (void)gb_path_pass(path, hold->at, at, &full);
    if (full)
      hold->result->full = path;
    uint64_t size;
    const enum gb_status status = step(hold, &reach->heap, range, at, &size);
    if (status != GB_OK || size == 0)
      return status;
    at += size;
    if (hold->at % MEMBERS_A_CHECK == MEMBERS_A_CHECK - 1) {
      if (is_dense(&reach->heap))
        return GB_OK;
      if (walked_enough(hold))
        return end_hold(hold);
    }
  }
}

/* The lists led far: worth a try from the heaps' starts, unless stepping behind members met mostly small chunks. */
static bool are_heaps_better(const struct hold *hold) {
  const struct gb_reach *reach = hold->reach;
  return reach->ways == GB_WAYS_LISTS && !reach->is_main && hold->way_ns > hold->options->pause_ns &&
         !is_dense(&reach->near);
}

/* Each heap's range begins with its first chunk. (The main arena has one such place, where its lists begin, too.) */
static enum gb_status walk_heaps(struct hold *hold) {
  struct gb_reach *reach = hold->reach;
  const struct gb_ranges *ranges = &reach->looker->ranges;
  for (size_t i = 0; i < ranges->count; ++i) {
    const struct gb_range *range = &ranges->sorted[i];
    const bool is_first = i == 0 || range->start / GB_HEAP_MAX != ranges->sorted[i - 1].start / GB_HEAP_MAX;
    if (!is_first || range->start < reach->heap_from)
      continue;
    const enum gb_status status = walk_heap(hold, range);
    if (status != GB_OK && (status != GB_MORE || hold->released))
      return status;
    reach->heap_from = range->end; /* done, or too far to be walked */
    reach->heap.pages = 0;
    gb_path_forget(&reach->paths[0]);
    if (status != GB_OK)
      return status;
    hold->carried = hold->count > 0;
  }
  reach->ways = GB_WAYS_LISTS_AGAIN;
  return GB_OK;
}

/* R2, R3: from the head of a bin to its end, or, backwards, from its end to the head. */
static enum gb_status walk_bin(struct hold *hold, unsigned bin) {
  struct gb_reach *reach = hold->reach;
  const uintptr_t head = gb_bin_head(&reach->looker->layout, reach->arena, bin);
  const unsigned next_link = reach->backwards ? GB_CHUNK_BK : GB_CHUNK_FD;
  const unsigned back_link = reach->backwards ? GB_CHUNK_FD : GB_CHUNK_BK;
  struct gb_path *path = path_of(reach);
  const struct gb_path *other = &reach->paths[reach->backwards ? 0 : 1];
  /* From here on it was dealt with from the other end. */
  const uintptr_t meeting = other->done > 0 ? other->members[other->done - 1] : head;
  bool full = false;
  uint64_t total = 0;
  uintptr_t previous = head;
  uintptr_t chunk = gb_load(head + next_link);
  for (hold->at = 0; chunk != head && chunk != meeting; ++hold->at) {
    const size_t at = hold->at;
    if (hold->count == 0)
      note_done(hold);
    if (at % MEMBERS_A_CHECK == MEMBERS_A_CHECK - 1 && walked_enough(hold))
      return end_hold(hold);
    gb_path_hint(path, at);
    const struct gb_range *range =
        gb_is_aligned(chunk, GB_CHUNK_ALIGN) ? gb_ranges_find(&reach->looker->ranges, chunk) : NULL;
    if (range == NULL || range->end - chunk < GB_CHUNK_MIN || gb_load(chunk + back_link) != previous)
      return GB_DOUBT_LINK;
    const uint64_t word = gb_load(chunk + GB_CHUNK_SIZE);
    const uint64_t size = word & ~GB_SIZE_FLAGS;
    total += size;
    if ((word & (GB_PREV_INUSE | GB_IS_MMAPPED)) != GB_PREV_INUSE || size < GB_CHUNK_MIN ||
        !gb_is_aligned(size, GB_CHUNK_ALIGN) || size > range->end - chunk - GB_CHUNK_HEADER ||
        total > hold->look.system_bytes || (bin != GB_BIN_UNSORTED && gb_bin_of_size(size) != bin))
      return GB_DOUBT_CHUNK;
    uintptr_t start;
    uintptr_t end;
    gb_interior(chunk, size, hold->page, &start, &end);
    const bool passed = gb_path_pass(path, at, chunk, &full);
    if (full)
      hold->result->full = path;
    if (!passed && start < end) {
      if (gb_load(chunk + size) != size || (gb_load(chunk + size + GB_CHUNK_SIZE) & GB_PREV_INUSE) != 0)
        return GB_DOUBT_CHUNK;
      const enum gb_status status = release_wanted(hold, start, end);
      if (status != GB_OK)
        return status;
    }
    if (may_step(hold) && !gb_path_is_closed(path, at)) {
      bool done;
      const enum gb_status status = release_behind(hold, range, chunk + size, &done);
      if (done) {
        gb_path_close(path, at);
        if (hold->count > 0 && hold->closed_from == SIZE_MAX)
          hold->closed_from = at;
      }
      if (status != GB_OK)
        return status;
    }
    if (reach->left == hold->bytes)
      return GB_OK;
    previous = chunk;
    chunk = gb_load(chunk + next_link);
  }
  return GB_OK; /* what is in the batch goes with that of the next list */
}

static enum gb_status release_top(struct hold *hold) {
  uintptr_t start;
  uintptr_t end;
  if (hold->look.top == 0)
    return flush(hold);
  gb_interior(hold->look.top, hold->look.top_bytes, hold->page, &start, &end);
  hold->top_from = hold->count;
  const enum gb_status status = release_wanted(hold, start, end);
  return status == GB_OK ? flush(hold) : status;
}

static void next_bin(struct gb_reach *reach, unsigned first_of_pages) {
  reach->bin = reach->bin < first_of_pages ? first_of_pages : reach->bin + 1;
  forget(reach);
}

/* The hold ended in the middle of a list. The next one begins at the end from which less has to be passed; and if
 * nothing could be released, it gets further with the hints of this time, or from the other end. */
static void plan_next(struct hold *hold, unsigned first_of_pages) {
  struct gb_reach *reach = hold->reach;
  if (are_heaps_better(hold)) {
    reach->ways = GB_WAYS_HEAPS;
    reach->heap_from = 0;
    forget(reach);
    return;
  }
  const size_t known = reach->paths[0].count + reach->paths[1].count;
  if (hold->released) {
    reach->deepest = known;
    if (reach->stuck > 1)
      reach->stuck = 1; /* the way is long, but leads somewhere */
    reach->backwards = reach->paths[1].done < reach->paths[0].done;
    return;
  }
  if (known > reach->deepest + MEMBERS_A_CHECK) {
    reach->deepest = known;
    return;
  }
  reach->backwards = !reach->backwards;
  const bool worth_more = reach->left >= LITTLE_LEFT || is_awaited(reach->arena);
  if (++reach->stuck > MOST_STUCK || !worth_more) {
    ++reach->unreached;
    next_bin(reach, first_of_pages);
  }
}

static enum gb_status release_lists(struct hold *hold) {
  struct gb_reach *reach = hold->reach;
  const unsigned first_of_pages = gb_bin_of_page(hold->page);
  enum gb_status status = gb_look_fields(reach->looker, reach->arena, reach->is_main, &hold->look);
  if (status != GB_OK || hold->look.system_bytes == 0)
    return status;
  if (reach->ways == GB_WAYS_HEAPS) {
    status = walk_heaps(hold);
    if (status != GB_OK)
      return status;
  }
  while (reach->bin < GB_BINS) {
    status = walk_bin(hold, reach->bin);
    if (status == GB_MORE)
      plan_next(hold, first_of_pages);
    if (status != GB_OK)
      return status;
    if (reach->left == hold->bytes)
      return flush(hold); /* nothing else is wanted */
    next_bin(reach, first_of_pages);
    hold->carried = hold->count > 0;
    hold->closed_from = SIZE_MAX;
    if (gb_now_ns() >= hold->end_ns) { /* nothing has to be passed once more */
      status = flush(hold);
      return status == GB_OK ? GB_MORE : status;
    }
  }
  return release_top(hold);
}

void gb_reach_begin(struct gb_reach *reach, uintptr_t arena, bool is_main, struct gb_free_pages *wanted) {
  reach->arena = arena;
  reach->is_main = is_main;
  reach->wanted = wanted;
  reach->left = gb_free_pages_bytes(wanted);
  reach->bin = GB_BIN_UNSORTED;
  reach->unreached = 0;
  reach->locked = 0;
  reach->near = (struct gb_steps){0};
  reach->heap = (struct gb_steps){0};
  reach->ways = GB_WAYS_LISTS;
  forget(reach);
}

enum gb_status gb_reach_release(struct gb_reach *reach, const struct gb_reach_options *options,
                                struct gb_reach_hold *hold) {
  *hold = (struct gb_reach_hold){0};
  struct hold now = {
      .reach = reach,
      .options = options,
      .result = hold,
      .page = gb_os_page_size(),
      .top_from = NO_TOP,
      .closed_from = SIZE_MAX,
  };
  gb_ranges_prefetch(&reach->looker->ranges);
  if (!gb_arena_try_lock(reach->arena))
    return GB_BUSY;
  now.begin_ns = gb_now_ns();
  now.end_ns = now.begin_ns + options->pause_ns;
  const enum gb_status status = release_lists(&now);
  settle_batch(&now, 0, false); /* what a doubt left in it */
  hold->awaited = gb_arena_unlock(reach->arena);
  hold->hold_ns = gb_now_ns() - now.begin_ns;
  hold->held = true;
  return status;
}
