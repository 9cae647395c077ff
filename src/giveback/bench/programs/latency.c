/* Every malloc and every free of a busy program, timed.
 *
 * Two threads replace blocks of 16 bytes to 8 KB in a table, as fast as they can. Once in --period-ms each has a
 * burst: 64 MB in blocks of 1 to 64 KB, of which one in 64 stays until the next burst. So there is always free
 * memory that has just become old enough to be given back, in the very arenas in which the calls are timed.
 * What is written into the blocks is written outside of the timed calls.
 *
 *   latency [--seconds 10] [--period-ms 1000] [--trim] [--wait]
 */
#include "histogram.h"
#include "workload.h"

#include <pthread.h>
#include <stdlib.h>

enum {
  THREADS = 2,
  SLOTS = 4096,
  SMALL_LEAST = 16,
  SMALL_MOST = 8 * 1024,
  BURST_LEAST = 1024,
  BURST_MOST = 64 * 1024,
  BURST_BYTES = 64 * 1000 * 1000,
  BURST_BLOCKS = BURST_BYTES / ((BURST_LEAST + BURST_MOST) / 2),
  KEEP = 64,
  CALLS_A_LOOK = 1000, /* replacements between two looks at the clock for the end */
};

struct worker {
  pthread_t thread;
  uint64_t seed;
  struct live_data *live;
  struct histogram calls;
};

static struct live_data live[THREADS];
static uint64_t duration;
static uint64_t period;
static pthread_barrier_t begin;
static pthread_barrier_t freed;
static pthread_barrier_t for_ever;

static void *timed_allocate(struct worker *worker, size_t bytes) {
  const uint64_t before = now();
  void *block = allocate(bytes);
  count_in(&worker->calls, now() - before);
  touch_pages(block, bytes);
  return block;
}

static void timed_free(struct worker *worker, void *block) {
  const uint64_t before = now();
  free(block);
  count_in(&worker->calls, now() - before);
}

/* What the last burst left alive stays until this one has been freed. */
static void burst(struct worker *worker, void **blocks, void **kept) {
  for (size_t i = 0; i < BURST_BLOCKS; ++i)
    blocks[i] = timed_allocate(worker, random_between(&worker->seed, BURST_LEAST, BURST_MOST));
  for (size_t i = 0; i < BURST_BLOCKS; ++i) {
    if (i % KEEP == 0) {
      timed_free(worker, kept[i / KEEP]);
      kept[i / KEEP] = blocks[i];
    } else {
      timed_free(worker, blocks[i]);
    }
  }
}

static void *work(void *argument) {
  struct worker *worker = argument;
  void **slots = new_pointers(SLOTS);
  void **blocks = new_pointers(BURST_BLOCKS);
  void **kept = new_pointers(BURST_BLOCKS / KEEP + 1);
  (void)pthread_barrier_wait(&begin);
  const uint64_t end = now() + duration;
  uint64_t next_burst = now();
  for (uint64_t at = now(); at < end; at = now()) {
    if (at >= next_burst) {
      burst(worker, blocks, kept);
      next_burst += period;
    }
    for (size_t i = 0; i < CALLS_A_LOOK; ++i) {
      const size_t slot = next_random(&worker->seed) % SLOTS;
      timed_free(worker, slots[slot]);
      slots[slot] = timed_allocate(worker, random_between(&worker->seed, SMALL_LEAST, SMALL_MOST));
    }
  }
  add_live(worker->live, SMALL_MOST);
  for (size_t i = 0; i < SLOTS; ++i)
    free(slots[i]);
  drop_pointers(slots, SLOTS);
  (void)pthread_barrier_wait(&freed);
  (void)pthread_barrier_wait(&for_ever);
  return NULL;
}

int main(int argc, char **argv) {
  double seconds = 10;
  double period_ms = 1000;
  read_options(argc, argv,
               (const struct option_of_workload[]){{"--seconds", &seconds, NULL, NULL},
                                                   {"--period-ms", &period_ms, NULL, NULL},
                                                   {NULL, NULL, NULL, NULL}});
  duration = (uint64_t)(seconds * 1e9);
  period = (uint64_t)(period_ms * 1e6);
  static struct worker workers[THREADS];
  (void)pthread_barrier_init(&begin, NULL, THREADS + 1);
  (void)pthread_barrier_init(&freed, NULL, THREADS + 1);
  (void)pthread_barrier_init(&for_ever, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; ++i) {
    workers[i].seed = UINT64_C(88172645463325252) + i * UINT64_C(0x9e3779b97f4a7c15);
    workers[i].live = &live[i];
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      fail("no thread to be had");
  }
  (void)pthread_barrier_wait(&begin);
  const uint64_t began = now();
  (void)pthread_barrier_wait(&freed);
  report_seconds("run_s", now() - began);
  static struct histogram all;
  for (size_t i = 0; i < THREADS; ++i)
    add_histogram(&all, &workers[i].calls);
  report("calls", all.calls);
  report("p50_ns", percentile(&all, 500000));
  report("p99_ns", percentile(&all, 990000));
  report("p999_ns", percentile(&all, 999000));
  report("p9999_ns", percentile(&all, 999900));
  report("longest_ns", all.longest);
  show_freed();
  finish(live, THREADS);
  return 0;
}
