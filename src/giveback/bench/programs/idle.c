/* A program that does nothing after a spike, and then has another one.
 *
 *   idle [--spike-mb 200] [--trim] [--wait]
 *
 * Prints when the first spike is freed, and idles until a line comes. Then it has the second spike and prints
 * what memory was before and at its height, and when it was freed. How soon memory falls then is for others to
 * watch: a program that polls its own memory is not idle.
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
  read_options(
      argc, argv,
      (const struct option_of_workload[]){{"--spike-mb", &spike_mb, NULL, NULL}, {NULL, NULL, NULL, NULL}});
  const uint64_t bytes = (uint64_t)(spike_mb * 1e6);
  struct live_data live = {NULL, 0, 0};
  report("rss_spike", spike(&live, bytes));
  show_freed();
  report("rss_before", resident());
  report("rss_spike", spike(&live, bytes));
  show_freed();
  finish(&live, 1);
  return 0;
}
