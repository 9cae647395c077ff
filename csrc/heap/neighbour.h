/* What lies behind a chunk in memory: the next chunk, and whether it is free.
 *
 * Chunks lie one behind the other, each saying where the next one begins, so from any chunk that is known to be
 * one, all behind it can be found, up to the end of the heap. Whether a chunk is free is said by the one behind
 * it (bit PREV_INUSE). All of this is written by glibc, and only under the arena's lock.
 *
 * Programs can write there, too, if they write beyond the end of a block of theirs: that may go unnoticed as long as
 * the block is not freed. So a chunk counts as free only if it is also a member of a list: its neighbours there
 * point back to it (glibc's own test before it takes a chunk out, malloc.c, unlink_chunk). What
 * does not fit is the end, not an error: nothing behind it is looked at.
 *
 * Source: malloc.c, "Physical chunk representation", glibc 2.31 to 2.44. Hold-safe; pre: the arena's lock is held.
 */
#ifndef GIVEBACK_HEAP_NEIGHBOUR_H
#define GIVEBACK_HEAP_NEIGHBOUR_H

#include "heap/look.h"

enum gb_neighbour {
  GB_NEIGHBOUR_FREE,
  GB_NEIGHBOUR_USED, /* or in a cache or fastbin, which glibc marks as used */
  GB_NEIGHBOUR_END, /* top, the end of the heap, or nothing that makes sense */
};

/* `at`: where the chunk before it, in `range`, ends. *size is filled in but for the end. */
enum gb_neighbour gb_neighbour_at(struct gb_looker *looker, uintptr_t arena, const struct gb_range *range,
                                  uintptr_t at, uint64_t *size);

#endif
