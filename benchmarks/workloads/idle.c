/* A program that does nothing after a spike, and then, perhaps, has another spike.
 *
 *   idle [--spike-mb 200] [--seconds 60] [--second-spike] [--trim] [--wait]
 *
 * Prints one JSON object when memory has stopped falling, then idles: with --wait until a line comes on
 * standard input, then for --seconds. With --second-spike it prints a second object after that, with the
 * moment (CLOCK_MONOTONIC) of the last free. How soon memory falls then is for others to watch: a program
 * that polls its own memory is not idle.
 */
#include "workload.h"

#include <stdlib.h>

enum {
  LEAST = 64,
  MOST = 16 * 1024,
  KEEP = 64, /* one block in so many stays, so that free memory does not merge into one top chunk */
};

/* Returns resident memory at its height. */
static uint64_t spike(struct live_data *live, uint64_t bytes) {
  const size_t blocks = (size_t)(bytes / ((LEAST + MOST) / 2));
  void **table = new_pointers(blocks);
  uint64_t seed = UINT64_C(88172645463325252);
  for (size_t i = 0; i < blocks; ++i) {
    const size_t size = random_between(&seed, LEAST, MOST);
    table[i] = allocate(size);
    touch_pages(table[i], size);
    if (i % KEEP == KEEP - 1)
      add_live(live, size);
  }
  const uint64_t height = resident();
  for (size_t i = 0; i < blocks; ++i)
    free(table[i]);
  drop_pointers(table, blocks);
  return height;
}

int main(int argc, char **argv) {
  double spike_mb = 200;
  double seconds = 60;
  bool second_spike = false;
  read_options(argc, argv,
               (const struct option_of_workload[]){{"--spike-mb", &spike_mb, NULL},
                                                   {"--seconds", &seconds, NULL},
                                                   {"--second-spike", NULL, &second_spike},
                                                   {NULL, NULL, NULL}});
  const uint64_t bytes = (uint64_t)(spike_mb * 1e6);
  struct live_data live = {NULL, 0, 0};
  report("rss_spike", spike(&live, bytes));
  report("rss_freed", resident());
  report_seconds("settled_s", wait_until_steady(10 * SECOND));
  report("rss_settled", resident());
  trim_if_asked();
  print_report();
  const uint64_t settled = now();
  wait_if_asked();
  sleep_until(settled + (uint64_t)(seconds * 1e9));
  if (second_spike) {
    report("rss_before", resident());
    report("rss_spike", spike(&live, bytes));
    report("freed_at_ns", now());
    print_report();
    wait_if_asked();
  }
  check_live(&live);
  return 0;
}
