/* A histogram of times: 64 steps for each doubling, so a percentile is right within 1.6 %, and never too low.
 *
 * One writer; all zero is empty.
 */
#ifndef GIVEBACK_BENCH_HISTOGRAM_H
#define GIVEBACK_BENCH_HISTOGRAM_H

#include <stdint.h>

enum {
  HISTOGRAM_STEPS = 64,
  HISTOGRAM_DOUBLINGS = 40, /* up to 18 minutes of nanoseconds; what is longer counts as that */
};

struct histogram {
  uint64_t counts[HISTOGRAM_DOUBLINGS * HISTOGRAM_STEPS];
  uint64_t calls;
  uint64_t longest;
};

void count_in(struct histogram *histogram, uint64_t nanoseconds);
void add_histogram(struct histogram *sum, const struct histogram *part);

/* The time that so many of a million calls did not exceed; 0 without any. */
uint64_t percentile(const struct histogram *histogram, uint64_t per_million);

#endif
