/* A control: a thread that does nothing but look at the clock, and how long it was stopped all the same, by the
 * scheduler or by the machine's host. What it sees, a hold of the same length may have met, too.
 *
 *   clock [--seconds 0.5]
 *
 * longest_stop_us: the longest time between two looks. piece_p99_us: the 99th percentile of what pieces of
 * work took that take 100 us where nothing stops them.
 */
#include "workload.h"

#include <stdlib.h>

enum {
  PIECE_US = 100,
  CALIBRATIONS = 50,
  MOST_PIECES = 100000,
};

static uint64_t longest;

static uint64_t looks(uint64_t count) {
  const uint64_t began = now();
  uint64_t last = began;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = now();
    if (at - last > longest)
      longest = at - last;
    last = at;
  }
  return last - began;
}

static int compare(const void *left, const void *right) {
  const uint64_t a = *(const uint64_t *)left;
  const uint64_t b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

int main(int argc, char **argv) {
  double seconds = 0.5;
  read_options(
      argc, argv,
      (const struct option_of_workload[]){{"--seconds", &seconds, NULL, NULL}, {NULL, NULL, NULL, NULL}});
  uint64_t count = 1000; /* looks that take 100 us */
  for (int i = 0; i < CALIBRATIONS; ++i) {
    const uint64_t took = looks(count);
    const uint64_t fitting = count * PIECE_US * 1000 / (took == 0 ? 1 : took);
    if (fitting > count || i == 0)
      count = fitting; /* the fastest counts */
  }
  static uint64_t pieces[MOST_PIECES];
  size_t done = 0;
  longest = 0;
  const uint64_t began = now();
  while (done < MOST_PIECES && now() - began < (uint64_t)(seconds * 1e9))
    pieces[done++] = looks(count);
  if (done == 0)
    fail("--seconds must be above 0");
  qsort(pieces, done, sizeof *pieces, compare);
  report("longest_stop_ns", longest);
  report("piece_p99_ns", pieces[done * 99 / 100]);
  show_report();
  return 0;
}
