/* One million blocks of 100 bytes, freed in random order by 4 threads over some seconds.
 *
 * Each thread lays down runs of blocks that will be freed, and behind each run one of half its size that
 * stays. So neighbours merge little by little, and in the end each run is one free chunk of 280 KB. The order
 * is random over all of them: threads also free what others allocated.
 *
 *   small_frees [--seconds 10] [--blocks 1000000] [--trim] [--wait]
 */
#include "workload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  THREADS = 4,
  BLOCK = 100,
  RUN = 2500, /* blocks */
  LIVE_RUN = RUN / 2,
};

struct worker {
  pthread_t thread;
  void **blocks; /* its share, first in the order of allocation, then of frees */
  struct live_data *live;
};

static struct live_data live[THREADS];
static size_t share; /* blocks a thread */
static uint64_t duration;
static pthread_barrier_t phase;

static void lay_down(struct worker *worker) {
  for (size_t i = 0; i < share; ++i) {
    worker->blocks[i] = allocate(BLOCK);
    memset(worker->blocks[i], 1, BLOCK);
    if (i % RUN == RUN - 1) {
      for (size_t j = 0; j < LIVE_RUN; ++j)
        add_live(worker->live, BLOCK);
    }
  }
}

/* Evenly over the duration. */
static void free_slowly(const struct worker *worker) {
  const uint64_t step = 10 * MILLISECOND;
  const uint64_t began = now();
  size_t done = 0;
  for (uint64_t at = step; done < share; at += step) {
    const uint64_t due = at >= duration ? share : share * at / duration;
    for (; done < due; ++done)
      free(worker->blocks[done]);
    sleep_until(began + at);
  }
}

static void *work(void *argument) {
  lay_down(argument);
  (void)pthread_barrier_wait(&phase); /* all is laid down */
  (void)pthread_barrier_wait(&phase); /* the order is random */
  free_slowly(argument);
  (void)pthread_barrier_wait(&phase); /* all is freed */
  (void)pthread_barrier_wait(&phase); /* for ever */
  return NULL;
}

int main(int argc, char **argv) {
  double seconds = 10;
  double blocks = 1000000;
  read_options(argc, argv,
               (const struct option_of_workload[]){{"--seconds", &seconds, NULL, NULL},
                                                   {"--blocks", &blocks, NULL, NULL},
                                                   {NULL, NULL, NULL, NULL}});
  duration = (uint64_t)(seconds * 1e9);
  share = (size_t)blocks / THREADS;
  const size_t all = share * THREADS;
  if (all == 0)
    fail("--blocks must be 4 or more");
  static struct worker workers[THREADS];
  void **table = new_pointers(all);
  (void)pthread_barrier_init(&phase, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; ++i) {
    workers[i].blocks = table + i * share;
    workers[i].live = &live[i];
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      fail("no thread to be had");
  }
  (void)pthread_barrier_wait(&phase);
  shuffle(table, all, UINT64_C(88172645463325252));
  const uint64_t began = now();
  (void)pthread_barrier_wait(&phase);
  (void)pthread_barrier_wait(&phase);
  report_seconds("run_s", now() - began);
  drop_pointers(table, all);
  show_freed();
  finish(live, THREADS);
  return 0;
}
