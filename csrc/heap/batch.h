/* How much to release in one system call, so that it takes no longer than it may.
 *
 * Problem: what a range and a page cost depends on the kernel, the machine, the number of threads that
 * must flush their TLBs, and who else runs. So it is learned: each batch's cost moves the size
 * of the next.
 *
 * Pure: time and bytes are arguments. One owner.
 */
#ifndef GIVEBACK_HEAP_BATCH_H
#define GIVEBACK_HEAP_BATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Far above, the kernel frees pages in the middle of the call for longer than a scheduler's slice: 2 MB showed
 * 20 ms at p99 on a busy machine, 1 MB 225 us, 512 KB 118 us (16 threads on 2 cores). Most holds end with a batch
 * that is not full, so with 512 KB it was two calls a MB and more. */
#define GB_BATCH_MAX_BYTES (UINT64_C(576) << 10)
#define GB_BATCH_MIN_BYTES (UINT64_C(64) << 10)
#define GB_BATCH_FIRST_BYTES (UINT64_C(128) << 10)
#define GB_BATCH_MAX_RANGES 256u
#define GB_BATCH_MIN_RANGES 2u

struct gb_batch {
  uint64_t target_ns; /* what a batch should cost at most */
  uint64_t bytes; /* of the next batch at most */
  uint32_t ranges;
  bool was_dear; /* the last one took longer */
};

/* Begins with small batches: the first must not be the one that shows that they are too large. */
void gb_batch_begin(struct gb_batch *batch, uint64_t target_ns);

/* Learns from a batch of `ranges` and `bytes` that took `ns` of wall time. */
void gb_batch_learn(struct gb_batch *batch, uint32_t ranges, uint64_t bytes, uint64_t ns);

#endif
