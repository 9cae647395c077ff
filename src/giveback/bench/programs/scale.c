/* So many gigabytes, filled and freed; then a little churn in what is left of them.
 *
 * Four threads fill the heap with blocks of 1 to 32 KB, one byte written in each page, and free them in random
 * order, but for one in 64, which stays.
 *
 *   scale [--gb 1] [--churn-mb-s 10] [--churn-seconds 0] [--trim] [--wait]
 *
 * The second report comes after the churn.
 */
#include "workload.h"

#include <pthread.h>
#include <stdlib.h>

enum {
  THREADS = 4,
  LEAST = 1024,
  MOST = 32 * 1024,
  KEEP = 64,
  CHURN_SLOTS = 256, /* a thread, alive during the churn */
};

struct worker {
  pthread_t thread;
  uint64_t seed;
  struct live_data *live;
};

static struct live_data live[THREADS];
static uint64_t share; /* bytes a thread */
static uint64_t churn_a_second; /* bytes a thread */
static uint64_t churn_for;
static pthread_barrier_t phase;

static void fill_and_free(struct worker *worker) {
  const size_t blocks = (size_t)(share / ((LEAST + MOST) / 2));
  void **table = new_pointers(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    const size_t bytes = random_between(&worker->seed, LEAST, MOST);
    table[i] = allocate(bytes);
    touch_pages(table[i], bytes);
    if (i % KEEP == KEEP - 1)
      add_live(worker->live, bytes);
  }
  shuffle(table, blocks, worker->seed);
  for (size_t i = 0; i < blocks; ++i)
    free(table[i]);
  drop_pointers(table, blocks);
}

static void churn(struct worker *worker) {
  const uint64_t step = 10 * MILLISECOND;
  const uint64_t began = now();
  void **slots = new_pointers(CHURN_SLOTS);
  uint64_t churned = 0;
  for (uint64_t at = step; at <= churn_for; at += step) {
    for (const uint64_t due = churn_a_second / 1000 * (at / MILLISECOND); churned < due;) {
      const size_t slot = next_random(&worker->seed) % CHURN_SLOTS;
      const size_t bytes = random_between(&worker->seed, LEAST, MOST);
      free(slots[slot]);
      slots[slot] = allocate(bytes);
      touch_pages(slots[slot], bytes);
      churned += bytes;
    }
    sleep_until(began + at);
  }
  for (size_t i = 0; i < CHURN_SLOTS; ++i)
    free(slots[i]);
  drop_pointers(slots, CHURN_SLOTS);
}

static void *work(void *argument) {
  (void)pthread_barrier_wait(&phase);
  fill_and_free(argument);
  (void)pthread_barrier_wait(&phase); /* all is freed */
  (void)pthread_barrier_wait(&phase); /* others have looked on */
  churn(argument);
  (void)pthread_barrier_wait(&phase);
  (void)pthread_barrier_wait(&phase); /* for ever */
  return NULL;
}

int main(int argc, char **argv) {
  double gigabytes = 1;
  double churn_mb_s = 10;
  double churn_seconds = 0;
  read_options(argc, argv,
               (const struct option_of_workload[]){{"--gb", &gigabytes, NULL, NULL},
                                                   {"--churn-mb-s", &churn_mb_s, NULL, NULL},
                                                   {"--churn-seconds", &churn_seconds, NULL, NULL},
                                                   {NULL, NULL, NULL, NULL}});
  share = (uint64_t)(gigabytes * 1e9) / THREADS;
  churn_a_second = (uint64_t)(churn_mb_s * 1e6) / THREADS;
  churn_for = (uint64_t)(churn_seconds * 1e9);
  static struct worker workers[THREADS];
  (void)pthread_barrier_init(&phase, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; ++i) {
    workers[i].seed = UINT64_C(88172645463325252) + i * UINT64_C(0x9e3779b97f4a7c15);
    workers[i].live = &live[i];
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      fail("no thread to be had");
  }
  (void)pthread_barrier_wait(&phase);
  const uint64_t began = now();
  (void)pthread_barrier_wait(&phase);
  report_seconds("run_s", now() - began);
  show_freed();
  const uint64_t churn_began = now();
  (void)pthread_barrier_wait(&phase);
  (void)pthread_barrier_wait(&phase);
  report_seconds("churn_s", now() - churn_began);
  show_freed();
  finish(live, THREADS);
  return 0;
}
