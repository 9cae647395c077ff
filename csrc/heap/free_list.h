/* Walking one list of free chunks, a bin or a fastbin, in several holds of the arena's lock.
 *
 * Problem: a list that was filled in random order is one cache miss a member (200 ns),
 * each waiting for the one before. So a long list is walked along several strands at
 * once, whose misses overlap: other members are found by going on, in memory, from chunk to
 * chunk behind one that the walk has reached, and each becomes the start of a strand. A strand
 * ends where another one starts, or at the list's end.
 *
 * Invariant: what counts is the chain. Only strands that are reached from the list's own
 * head, each ending where the next one starts, are added up; a start that was no member of this
 * list is reached by none, and its strand is dropped. See look.h for the claims that hold across holds.
 *
 * Ownership: of one look; all functions are hold-safe and need the arena's lock.
 */
#ifndef GIVEBACK_HEAP_FREE_LIST_H
#define GIVEBACK_HEAP_FREE_LIST_H

#include "heap/arena.h"
#include "heap/layout.h"

#define GB_SPANS 8192u /* found in one hold at most; 128 KiB of our own memory */
#ifdef GIVEBACK_SMALL_LISTS /* in tests, so that small images reach every branch */
#define GB_STRANDS 8u
#define GB_STRANDS_FROM 32u
#define GB_TRAIL_STEP 8u
#else
#define GB_STRANDS 128u /* the longest of 128 random parts is about a 24th of the whole */
#define GB_STRANDS_FROM 4096u /* members after which a list is called long */
#define GB_TRAIL_STEP 256u /* members between two kept positions */
#endif
#define GB_BASES_A_ROUND 4u /* so that beginning the strands takes no longer between two looks at the clock */
#define GB_RETREATS 256u /* of one walk, before the list is begun anew */
#define GB_BASES (GB_STRANDS - 2)
/* Members between two looks at the clock: 10 us if each is a cache miss that nothing overlaps. */
#define GB_MEMBERS_A_CLOCK 64u
#define GB_TRAIL 4u /* older positions kept of a strand */

/* What one hold may use. */
struct gb_hold {
  struct gb_ranges *ranges;
  struct gb_span *spans; /* GB_SPANS of them, or NULL if they are not wanted */
  size_t spans_count;
  size_t page; /* bytes */
  uint64_t end_ns; /* wall */
  unsigned until_clock; /* members until the clock is read again */
  bool any; /* a member was visited: the hold may end */
};

/* The member to be visited next, and the sum of the members before it on this strand. */
struct gb_position {
  uintptr_t chunk;
  uintptr_t previous; /* the member before it, or the head */
  uint64_t chunks;
  uint64_t bytes;
};

struct gb_strand {
  uintptr_t before; /* the member before its start when the strand was begun */
  struct gb_position at;
  uint8_t next; /* the strand at whose start this one ended; GB_STRANDS: the list's end */
  struct gb_position trail[GB_TRAIL]; /* older positions, the newest last */
  uint8_t trail_count;
  enum gb_strand_state { GB_STRAND_RUNS, GB_STRAND_ENDED, GB_STRAND_DROPPED } state;
};

struct gb_free_list {
  uintptr_t head; /* of a bin: as a chunk; of a fastbin: where its first member is named */
  unsigned bin; /* 0: a fastbin */
  unsigned fast_index;
  enum { GB_LINKS_UNKNOWN, GB_LINKS_PLAIN, GB_LINKS_PROTECTED } links; /* of fastbins */
  bool inside; /* strands hold positions; else the walk is at the list's beginning */
  bool resumed; /* the walk began in an earlier hold */
  unsigned retreats; /* kept positions that did not hold any more */
  uint64_t strands_from; /* members after which other strands are begun */
  uint64_t budget; /* bytes that its members may sum up to */
  uintptr_t fast_head; /* the fastbin's first member when the walk began */
  unsigned strands_count;
  unsigned running_count;
  unsigned bases_tried;
  unsigned bases_count; /* GB_BASES: all that will be */
  uintptr_t bases[GB_BASES]; /* members visited in this hold, to look for others behind them */
  uint8_t running[GB_STRANDS]; /* numbers of the strands that have not ended */
  uint64_t stops[64]; /* a filter: hashes of the addresses at which strands start */
  uintptr_t starts[GB_STRANDS]; /* of each strand */
  struct gb_strand strands[GB_STRANDS];
};

/* Makes the next walk begin at the list's head. */
void gb_free_list_begin(struct gb_free_list *list);

/* Checks every kept position after the lock was released and taken again. False: begin anew. */
bool gb_free_list_resume(struct gb_free_list *list, struct gb_hold *hold);

/* Walks on. GB_OK: the whole list was visited; *chunks and *bytes are its sums. GB_MORE: the
 * hold is over. GB_DOUBT_*: something contradicts itself. */
enum gb_status gb_free_list_walk(struct gb_free_list *list, struct gb_hold *hold, uint64_t *chunks,
                                 uint64_t *bytes);

#endif
