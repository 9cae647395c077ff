#include "histogram.h"

#include <stddef.h>

enum {
  STEP_BITS = 6, /* of HISTOGRAM_STEPS */
  STEPS_IN_ALL = HISTOGRAM_DOUBLINGS * HISTOGRAM_STEPS,
};

/* Times below HISTOGRAM_STEPS have a step each; above, the highest bits after the first tell the step. */
static size_t step_of(uint64_t nanoseconds) {
  if (nanoseconds < HISTOGRAM_STEPS)
    return (size_t)nanoseconds;
  const unsigned doubling = 63 - (unsigned)__builtin_clzll(nanoseconds) - STEP_BITS;
  const size_t step = ((size_t)doubling << STEP_BITS) + (size_t)(nanoseconds >> doubling);
  return step < STEPS_IN_ALL ? step : STEPS_IN_ALL - 1;
}

/* The longest time that counts into this step. */
static uint64_t end_of(size_t step) {
  if (step < 2 * HISTOGRAM_STEPS)
    return step;
  const unsigned doubling = (unsigned)(step >> STEP_BITS) - 1;
  const uint64_t first = (uint64_t)(step - ((size_t)doubling << STEP_BITS)) << doubling;
  return first + (UINT64_C(1) << doubling) - 1;
}

void count_in(struct histogram *histogram, uint64_t nanoseconds) {
  ++histogram->counts[step_of(nanoseconds)];
  ++histogram->calls;
  if (nanoseconds > histogram->longest)
    histogram->longest = nanoseconds;
}

void add_histogram(struct histogram *sum, const struct histogram *part) {
  for (size_t i = 0; i < STEPS_IN_ALL; ++i)
    sum->counts[i] += part->counts[i];
  sum->calls += part->calls;
  if (part->longest > sum->longest)
    sum->longest = part->longest;
}

uint64_t percentile(const struct histogram *histogram, uint64_t per_million) {
  const uint64_t wanted = (uint64_t)((double)histogram->calls * (double)per_million / 1e6);
  uint64_t seen = 0;
  for (size_t i = 0; i < STEPS_IN_ALL; ++i) {
    seen += histogram->counts[i];
    if (seen >= wanted && seen > 0)
      return end_of(i) < histogram->longest ? end_of(i) : histogram->longest;
  }
  return 0;
}
