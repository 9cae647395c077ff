#include "heap/batch.h"

/* By which a batch may grow from one to the next, at most. */
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
    /* One alone shows nothing: the scheduler, or the machine's host, may have taken the CPU away. The second in a
     * row counts: in proportion, but no more than by half. */
    const bool is_first = !batch->was_dear;
    batch->was_dear = true;
    if (is_first)
      return;
    const uint64_t times_256 = limit(batch->target_ns * 256 / ns, 128, 256);
    batch->ranges =
        (uint32_t)limit(batch->ranges * times_256 / 256, GB_BATCH_MIN_RANGES, GB_BATCH_MAX_RANGES);
    batch->bytes = limit(batch->bytes * times_256 / 256, GB_BATCH_MIN_BYTES, GB_BATCH_MAX_BYTES);
    return;
  }
  batch->was_dear = false;
  /* As far as it would still fit. Only what was used up may grow: a batch that was small for lack of work shows
   * nothing. */
  const uint64_t room_percent = (batch->target_ns - ns) * 100 / (ns + 1);
  const uint64_t growth_percent = limit(room_percent, 0, GROWTH_PERCENT);
  if (ranges >= batch->ranges)
    batch->ranges = (uint32_t)limit(batch->ranges + batch->ranges * growth_percent / 100 + 1,
                                    GB_BATCH_MIN_RANGES, GB_BATCH_MAX_RANGES);
  /* The last range may have been cut off by a hair: three quarters count as used up. */
  if (bytes >= batch->bytes / 4 * 3)
    batch->bytes =
        limit(batch->bytes + batch->bytes * growth_percent / 100, GB_BATCH_MIN_BYTES, GB_BATCH_MAX_BYTES);
}
