#include "heap/free_list.h"

#include <string.h>

#include "base/align.h"
#include "base/clock.h"

/* Chunks looked at, behind one member, for another one to start a strand at. */
#define HOPS 16u

/* ---- chunks ---------------------------------------------------------------- */

/* The range in which a chunk's header and links may be read (C2), or NULL. */
static const struct gb_range *range_of_chunk(struct gb_hold *hold, uintptr_t chunk) {
  if (!gb_is_aligned(chunk, GB_CHUNK_ALIGN))
    return NULL;
  const struct gb_range *range = gb_ranges_find(hold->ranges, chunk);
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

static bool belongs_to_bin(const struct gb_free_list *list, uint64_t size) {
  return list->bin == GB_BIN_UNSORTED || gb_bin_of_size(size) == list->bin;
}

static bool is_fast_chunk(struct gb_hold *hold, uintptr_t chunk, unsigned index) {
  const struct gb_range *range = range_of_chunk(hold, chunk);
  if (range == NULL)
    return false;
  const uint64_t size = gb_load(chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  return (size >> 4) == index + 2 && size <= range->end - chunk;
}

/* From glibc 2.32 on the link is XORed with its own address / 4096 (malloc.c, PROTECT_PTR).
 * One of the two readings makes sense for the first link seen; all others must follow it. */
static bool next_fast_chunk(struct gb_free_list *list, struct gb_hold *hold, uintptr_t chunk,
                            uintptr_t *next) {
  const uintptr_t link = gb_load(chunk + GB_CHUNK_FD);
  const uintptr_t revealed = link ^ ((chunk + GB_CHUNK_FD) >> 12);
  if (list->links == GB_LINKS_UNKNOWN) {
    if (revealed == 0 || is_fast_chunk(hold, revealed, list->fast_index))
      list->links = GB_LINKS_PROTECTED;
    else if (link == 0 || is_fast_chunk(hold, link, list->fast_index))
      list->links = GB_LINKS_PLAIN;
    else
      return false;
  }
  /* The next chunk is checked when it is visited: looking at it here would wait for it. */
  *next = list->links == GB_LINKS_PROTECTED ? revealed : link;
  return true;
}

/* C4: listed, and behind the same member as when it was kept. One that was taken out and
 * put back at the front would make us count the list twice. */
static bool still_listed(struct gb_hold *hold, uintptr_t head, const struct gb_position *position) {
  const struct gb_range *range = range_of_chunk(hold, position->chunk);
  if (range == NULL)
    return false;
  const uint64_t size = size_of_free(range, position->chunk);
  if (size == 0 || !footer_agrees(position->chunk, size))
    return false;
  const uintptr_t next = gb_load(position->chunk + GB_CHUNK_FD);
  const uintptr_t previous = gb_load(position->chunk + GB_CHUNK_BK);
  if (previous != position->previous || (next != head && range_of_chunk(hold, next) == NULL) ||
      (previous != head && range_of_chunk(hold, previous) == NULL))
    return false;
  return gb_load(next + GB_CHUNK_BK) == position->chunk && gb_load(previous + GB_CHUNK_FD) == position->chunk;
}

/* ---- strands --------------------------------------------------------------- */

static unsigned hash_of(uintptr_t chunk) {
  return (unsigned)((chunk >> 4) ^ (chunk >> 13)) & 4095;
}

/* False for nearly every chunk at which no strand starts: asked of every member. */
static inline bool may_start_here(const struct gb_free_list *list, uintptr_t chunk) {
  const unsigned hash = hash_of(chunk);
  return (list->stops[hash / 64] >> (hash % 64) & 1) != 0;
}

/* The strand that starts at `chunk`, or NULL. */
static struct gb_strand *strand_from(struct gb_free_list *list, uintptr_t chunk) {
  for (unsigned i = 0; i < list->strands_count; ++i) {
    if (list->starts[i] == chunk)
      return &list->strands[i];
  }
  return NULL;
}

static void add_strand(struct gb_free_list *list, uintptr_t start, uintptr_t before) {
  const unsigned number = list->strands_count++;
  list->running[list->running_count++] = (uint8_t)number;
  list->starts[number] = start;
  struct gb_strand *strand = &list->strands[number];
  strand->before = before;
  strand->at = (struct gb_position){.chunk = start, .previous = before};
  strand->trail_count = 0;
  strand->state = GB_STRAND_RUNS;
  const unsigned hash = hash_of(start);
  list->stops[hash / 64] |= UINT64_C(1) << (hash % 64);
}

/* Begins a strand at a member of this list that lies behind `chunk`, if there is one near. Every
 * address is a chunk's, since each follows, by its size, from one that the walk reached. */
static void try_strand_behind(struct gb_free_list *list, struct gb_hold *hold, uintptr_t chunk) {
  uint64_t size = gb_load(chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  for (unsigned hop = 0; hop < HOPS; ++hop) {
    chunk += size;
    const struct gb_range *range = range_of_chunk(hold, chunk);
    if (range == NULL)
      return;
    size = gb_load(chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
    if (size < GB_CHUNK_MIN || !gb_is_aligned(size, GB_CHUNK_ALIGN) ||
        size > range->end - chunk - GB_CHUNK_HEADER || strand_from(list, chunk) != NULL)
      return;
    if (list->bin == 0) {
      uintptr_t next;
      if (is_fast_chunk(hold, chunk, list->fast_index) && next_fast_chunk(list, hold, chunk, &next) &&
          is_fast_chunk(hold, next, list->fast_index)) {
        add_strand(list, chunk, 0);
        return;
      }
    } else if (footer_agrees(chunk, size) && belongs_to_bin(list, size)) {
      const struct gb_position member = {.chunk = chunk, .previous = gb_load(chunk + GB_CHUNK_BK)};
      if (still_listed(hold, list->head, &member)) {
        add_strand(list, chunk, member.previous);
        return;
      }
    }
  }
}

/* `place` in list->running. */
static void stop_running(struct gb_free_list *list, unsigned place, enum gb_strand_state state) {
  list->strands[list->running[place]].state = state;
  list->running[place] = list->running[--list->running_count];
}

/* True if the strand stands where the list, or this part of it, ends. */
static bool is_at_end(struct gb_free_list *list, struct gb_strand *strand) {
  const uintptr_t chunk = strand->at.chunk;
  strand->next = GB_STRANDS;
  if (chunk == (list->bin == 0 ? 0 : list->head))
    return true;
  if (!may_start_here(list, chunk))
    return false;
  const struct gb_strand *other = strand_from(list, chunk);
  if (other == NULL || (other == strand && strand->at.chunks == 0))
    return false;
  strand->next = (uint8_t)(other - list->strands);
  return true;
}

/* Begins some of the other strands. Before the first of them, the strand from the head ends and a new
 * one goes on in its place, so that a strand that starts at a member visited before runs no
 * further than to there. */
static void begin_strands(struct gb_free_list *list, struct gb_hold *hold) {
  struct gb_strand *first = &list->strands[0];
  if (list->bases_tried == 0) {
    if (is_at_end(list, first)) {
      list->bases_tried = GB_BASES;
      return;
    }
    add_strand(list, first->at.chunk, first->at.previous);
  }
  for (unsigned i = 0; i < GB_BASES_A_ROUND && list->bases_tried < GB_BASES; ++i)
    try_strand_behind(list, hold, list->bases[list->bases_tried++]);
}

static void keep_in_trail(struct gb_strand *strand) {
  if (strand->trail_count == GB_TRAIL) {
    memmove(&strand->trail[0], &strand->trail[1], sizeof strand->trail - sizeof strand->trail[0]);
    --strand->trail_count;
  }
  strand->trail[strand->trail_count++] = strand->at;
}

/* Goes back to the newest position that still holds; false if none does. */
static bool resume_strand(struct gb_free_list *list, struct gb_hold *hold, struct gb_strand *strand) {
  for (;;) {
    if (strand->at.chunk == list->head || still_listed(hold, list->head, &strand->at))
      return true;
    ++list->retreats;
    if (strand->trail_count == 0)
      return false;
    strand->at = strand->trail[--strand->trail_count];
  }
}

/* ---- members --------------------------------------------------------------- */

/* Visits one member of a bin and goes on to the next. */
static enum gb_status visit_in_bin(const struct gb_free_list *list, struct gb_hold *hold,
                                   struct gb_strand *strand, uint64_t *size) {
  struct gb_position *at = &strand->at;
  const uintptr_t chunk = at->chunk;
  const struct gb_range *range = range_of_chunk(hold, chunk);
  if (range == NULL || gb_load(chunk + GB_CHUNK_BK) != at->previous)
    return GB_DOUBT_LINK;
  *size = size_of_free(range, chunk);
  if (*size == 0 || at->bytes + *size > list->budget || !belongs_to_bin(list, *size))
    return GB_DOUBT_CHUNK;
  uintptr_t start;
  uintptr_t end;
  gb_interior(chunk, *size, hold->page, &start, &end);
  if (start < end) {
    if (!footer_agrees(chunk, *size))
      return GB_DOUBT_CHUNK;
    if (hold->spans != NULL)
      hold->spans[hold->spans_count++] = (struct gb_span){start, end};
  }
  at->previous = chunk;
  at->chunk = gb_load(chunk + GB_CHUNK_FD);
  /* A strand that began in another list leaves the ranges at that list's head. */
  return at->chunk == list->head || range_of_chunk(hold, at->chunk) != NULL ? GB_OK : GB_DOUBT_LINK;
}

static enum gb_status visit_in_fastbin(struct gb_free_list *list, struct gb_hold *hold,
                                       struct gb_strand *strand, uint64_t *size) {
  struct gb_position *at = &strand->at;
  uintptr_t next;
  if (!is_fast_chunk(hold, at->chunk, list->fast_index))
    return GB_DOUBT_CHUNK;
  if (!next_fast_chunk(list, hold, at->chunk, &next))
    return GB_DOUBT_LINK;
  *size = (uint64_t)(list->fast_index + 2) << 4;
  if (at->bytes + *size > list->budget)
    return GB_DOUBT_CHUNK; /* also ends a list that loops */
  at->previous = at->chunk;
  at->chunk = next;
  return GB_OK;
}

/* Visits one member of the strand. */
static enum gb_status step(struct gb_free_list *list, struct gb_hold *hold, struct gb_strand *strand) {
  const uintptr_t chunk = strand->at.chunk;
  uint64_t size;
  enum gb_status status =
      list->bin == 0 ? visit_in_fastbin(list, hold, strand, &size) : visit_in_bin(list, hold, strand, &size);
  if (status != GB_OK)
    return status;
  /* Asked for now, needed when the other strands have had their turns: this is what makes the
   * misses overlap. */
  gb_chunk_prefetch(strand->at.chunk);
  strand->at.bytes += size;
  ++strand->at.chunks;
  hold->any = true;
  if (strand->at.chunks % GB_TRAIL_STEP == 0 && list->bin != 0 && strand->at.chunk != list->head)
    keep_in_trail(strand);
  if (strand->at.chunks > list->strands_from && list->bases_count < GB_BASES && strand == &list->strands[0]) {
    list->bases[list->bases_count++] = chunk;
  }
  return GB_OK;
}

/* Adds up the chain of strands from the list's head. GB_MORE: one of them still runs. */
static enum gb_status add_up(struct gb_free_list *list, uint64_t *chunks, uint64_t *bytes) {
  const struct gb_strand *strand = &list->strands[0];
  *chunks = 0;
  *bytes = 0;
  for (unsigned i = 0; i < list->strands_count; ++i) {
    if (strand->state == GB_STRAND_RUNS)
      return GB_MORE;
    if (strand->state == GB_STRAND_DROPPED)
      return GB_DOUBT_LINK;
    *chunks += strand->at.chunks;
    *bytes += strand->at.bytes;
    if (*bytes > list->budget)
      return GB_DOUBT_CHUNK;
    if (strand->next == GB_STRANDS) {
      const bool closes = list->bin == 0 || gb_load(list->head + GB_CHUNK_BK) == strand->at.previous;
      return closes ? GB_OK : GB_DOUBT_LINK;
    }
    const struct gb_strand *next = &list->strands[strand->next];
    if (list->bin != 0 && next->before != strand->at.previous)
      return GB_DOUBT_LINK;
    strand = next;
  }
  return GB_DOUBT_LINK; /* more strands than there are: they form a ring */
}

/* Brings up what resume_strand will read of every running strand, so that the misses overlap. */
static void prefetch_positions(const struct gb_free_list *list, struct gb_hold *hold) {
  for (unsigned i = 0; i < list->running_count; ++i)
    __builtin_prefetch((const void *)(list->strands[list->running[i]].at.chunk + GB_CHUNK_SIZE));
  for (unsigned i = 0; i < list->running_count; ++i) {
    const struct gb_position *at = &list->strands[list->running[i]].at;
    if (range_of_chunk(hold, at->chunk) == NULL)
      continue;
    const uint64_t size = gb_load(at->chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
    __builtin_prefetch((const void *)(at->chunk + size));
    __builtin_prefetch((const void *)(gb_load(at->chunk + GB_CHUNK_FD) + GB_CHUNK_BK));
    __builtin_prefetch((const void *)(at->previous + GB_CHUNK_FD));
  }
}

/* ---- the list -------------------------------------------------------------- */

void gb_free_list_begin(struct gb_free_list *list) {
  list->inside = false;
  list->resumed = false;
  list->retreats = 0;
  list->strands_count = 0;
  list->running_count = 0;
  list->bases_count = 0;
  list->bases_tried = 0;
  memset(list->stops, 0, sizeof list->stops);
}

bool gb_free_list_resume(struct gb_free_list *list, struct gb_hold *hold) {
  if (!list->inside)
    return true;
  list->resumed = true;
  /* Bases were members in the hold before; now they may be anything. */
  if (list->bases_tried > 0)
    list->bases_tried = GB_BASES;
  else
    list->bases_count = 0;
  if (list->bin == 0) {
    /* A fastbin is a stack: below an unchanged head the rest is very likely unchanged too. */
    return gb_load(list->head) == list->fast_head;
  }
  prefetch_positions(list, hold);
  for (unsigned i = list->running_count; i-- > 0;) {
    struct gb_strand *strand = &list->strands[list->running[i]];
    if (resume_strand(list, hold, strand))
      continue;
    if (strand == &list->strands[0])
      return false;
    stop_running(list, i, GB_STRAND_DROPPED);
  }
  return list->retreats <= GB_RETREATS;
}

static bool hold_is_over(struct gb_hold *hold, unsigned members) {
  if (hold->spans_count + GB_STRANDS > GB_SPANS)
    return true;
  if (hold->until_clock > members) {
    hold->until_clock -= members;
    return false;
  }
  hold->until_clock = GB_MEMBERS_A_CLOCK;
  return hold->any && gb_now_ns() >= hold->end_ns;
}

enum gb_status gb_free_list_walk(struct gb_free_list *list, struct gb_hold *hold, uint64_t *chunks,
                                 uint64_t *bytes) {
  if (!list->inside) {
    const uintptr_t first = gb_load(list->bin == 0 ? list->head : list->head + GB_CHUNK_FD);
    list->fast_head = first;
    list->inside = true;
    add_strand(list, first, list->bin == 0 ? 0 : list->head);
  }
  bool ended = true;
  for (;;) {
    if (ended) {
      /* What still runs when the chain is closed is in other lists, or in parts that were walked. */
      enum gb_status status = add_up(list, chunks, bytes);
      if (status != GB_MORE)
        return status;
      ended = false;
    }
    unsigned members = list->running_count;
    for (unsigned i = members; i-- > 0;) {
      struct gb_strand *strand = &list->strands[list->running[i]];
      if (is_at_end(list, strand)) {
        stop_running(list, i, GB_STRAND_ENDED);
        ended = true;
        continue;
      }
      enum gb_status status = step(list, hold, strand);
      if (status != GB_OK && strand == &list->strands[0])
        return status;
      if (status != GB_OK) {
        stop_running(list, i, GB_STRAND_DROPPED);
        ended = true;
      }
    }
    if (list->bases_count == GB_BASES && list->bases_tried < GB_BASES) {
      begin_strands(list, hold);
      members += GB_BASES_A_ROUND * HOPS;
    }
    if (hold_is_over(hold, members))
      return GB_MORE;
  }
}
