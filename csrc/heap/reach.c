#include "heap/reach.h"

#include <string.h>

#include "base/align.h"
#include "base/clock.h"

#define MEMBERS_A_CHECK 32u /* visited between two looks at the clock and at the lock's word */
/* Holds in a row that may get nowhere: each is allowed to walk twice as long, as long as nobody waits. */
#define MOST_STUCK 4u
#define WALK_SHARE 4u /* a hold may last so many times as long as finding the way took */

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
  size_t top_from; /* spans of the batch from here on are of the top chunk; NO_TOP: none */
  size_t at; /* members of this list before the one that is visited */
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
  uint64_t length = walked * WALK_SHARE;
  if (length > hold->options->longest_ns)
    length = hold->options->longest_ns;
  if (length < walked + hold->options->pause_ns)
    length =
        walked < hold->options->pause_ns / 2 ? hold->options->pause_ns : walked + hold->options->pause_ns;
  hold->end_ns = hold->begin_ns + length;
}

/* The first `bytes` of the batch are released. */
static void take_out(struct hold *hold, uint64_t bytes) {
  for (size_t i = 0; bytes > 0; ++i) {
    const struct gb_span *span = &hold->spans[i];
    const uint64_t here = span->end - span->start < bytes ? span->end - span->start : bytes;
    gb_free_pages_remove(hold->reach->wanted, span->start, span->start + here);
    hold->reach->left -= here;
    *(i < hold->top_from ? &hold->result->bytes : &hold->result->top_bytes) += here;
    bytes -= here;
  }
}

/* The span behind the first `bytes` of the batch is locked memory: not wanted any more. */
static void spare(struct hold *hold, uint64_t bytes) {
  size_t i = 0;
  for (; i < hold->count && bytes >= hold->spans[i].end - hold->spans[i].start; ++i)
    bytes -= hold->spans[i].end - hold->spans[i].start;
  if (i == hold->count)
    return;
  const uintptr_t start = hold->spans[i].start + bytes;
  gb_free_pages_remove(hold->reach->wanted, start, hold->spans[i].end);
  hold->reach->left -= hold->spans[i].end - start;
  ++hold->reach->locked;
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
  take_out(hold, released.bytes);
  if (status == GB_LOCKED)
    spare(hold, released.bytes);
  hold->result->calls += released.calls;
  hold->result->failures += released.failures;
  if (released.failures != 0)
    hold->result->error = released.error;
  hold->count = 0;
  hold->bytes = 0;
  if (hold->top_from != NO_TOP)
    hold->top_from = 0;
  if (status == GB_LOCKED && hold->reach->locked < MOST_LOCKED)
    return GB_MORE; /* some of it: the rest goes in the next hold */
  if (status != GB_OK)
    return status;
  note_done(hold);
  return after >= hold->end_ns || is_awaited(hold->reach->arena) ? GB_MORE : GB_OK;
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
  return walked >= hold->options->walk_ns << hold->reach->stuck ||
         (walked >= hold->options->pause_ns && is_awaited(hold->reach->arena));
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
    if (at % MEMBERS_A_CHECK == MEMBERS_A_CHECK - 1 && walked_enough(hold)) {
      const enum gb_status status = flush(hold);
      return status == GB_OK ? GB_MORE : status;
    }
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
  const size_t known = reach->paths[0].count + reach->paths[1].count;
  if (hold->released) {
    reach->deepest = known;
    reach->backwards = reach->paths[1].done < reach->paths[0].done;
    return;
  }
  if (known > reach->deepest + MEMBERS_A_CHECK) {
    reach->deepest = known;
    return;
  }
  reach->backwards = !reach->backwards;
  if (++reach->stuck > MOST_STUCK) {
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
  while (reach->bin < GB_BINS) {
    status = walk_bin(hold, reach->bin);
    if (status == GB_MORE)
      plan_next(hold, first_of_pages);
    if (status != GB_OK)
      return status;
    if (reach->left == hold->bytes)
      return flush(hold); /* nothing else is wanted */
    next_bin(reach, first_of_pages);
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
  };
  gb_ranges_prefetch(&reach->looker->ranges);
  if (!gb_arena_try_lock(reach->arena))
    return GB_BUSY;
  now.begin_ns = gb_now_ns();
  now.end_ns = now.begin_ns + options->pause_ns;
  const enum gb_status status = release_lists(&now);
  hold->awaited = gb_arena_unlock(reach->arena);
  hold->hold_ns = gb_now_ns() - now.begin_ns;
  hold->held = true;
  return status;
}
