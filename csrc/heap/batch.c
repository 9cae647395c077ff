#include "heap/batch.h"

/* Percent by which a batch may grow from one to the next. */
#define GROWTH_PERCENT 50u

static uint64_t limit(uint64_t value, uint64_t least, uint64_t most) {
  if (value < least)
    return least;
  return value > most ? most : value;
}

void gb_batch_begin(struct gb_batch *batch, uint64_t target_ns) {
  *batch =
      (struct gb_batch){.target_ns = target_ns, .bytes = GB_BATCH_FIRST_BYTES, .ranges = GB_BATCH_MIN_RANGES};
}

void gb_batch_learn(struct gb_batch *batch, uint32_t ranges, uint64_t bytes, uint64_t ns) {
  if (ns > batch->target_ns) {
    /* In proportion, but no more than by half; and by an eighth as long as it was only one: the scheduler, or
     * the machine's host, may have taken the CPU away. */
    const uint64_t times_256 = limit(batch->target_ns * 256 / ns, batch->was_dear ? 128 : 224, 256);
    batch->was_dear = true;
    batch->ranges =
        (uint32_t)limit(batch->ranges * times_256 / 256, GB_BATCH_MIN_RANGES, GB_BATCH_MAX_RANGES);
    batch->bytes = limit(batch->bytes * times_256 / 256, GB_BATCH_MIN_BYTES, GB_BATCH_MAX_BYTES);
    return;
  }
  batch->was_dear = false;
  /* Only what was used up may grow: a batch that was small for lack of work shows nothing. */
  if (ns > batch->target_ns * 3 / 4)
    return;
  if (ranges >= batch->ranges)
    batch->ranges = (uint32_t)limit(batch->ranges + batch->ranges * GROWTH_PERCENT / 100 + 1,
                                    GB_BATCH_MIN_RANGES, GB_BATCH_MAX_RANGES);
  /* The last range may have been cut off by a hair: three quarters count as used up. */
  if (bytes >= batch->bytes / 4 * 3)
    batch->bytes =
        limit(batch->bytes + batch->bytes * GROWTH_PERCENT / 100, GB_BATCH_MIN_BYTES, GB_BATCH_MAX_BYTES);
}
