/* The workload of the glibc proposal that this project starts from.
 *
 * 16 threads churn through short-lived blocks of 1 to 64 KB, 2048 of them alive in each thread, one byte
 * written in each page. Meanwhile each lays down its share of 256 MB of data that stay, in blocks of
 * 64 bytes to 16 KB. Then all short-lived blocks are freed, and the threads stay, waiting.
 *
 *   rfc [--volume-gb 10] [--trim] [--wait]
 */
#include "workload.h"

#include <pthread.h>
#include <stdlib.h>

enum {
  THREADS = 16,
  SLOTS = 2048,
  SHORT_LEAST = 1024,
  SHORT_MOST = 64 * 1024,
  LIVE_LEAST = 64,
  LIVE_MOST = 16 * 1024,
};
#define LIVE_BYTES (UINT64_C(256) * 1000 * 1000)

struct worker {
  pthread_t thread;
  uint64_t seed;
  uint64_t volume; /* bytes of short-lived blocks to go through */
  struct live_data *live;
};

static struct live_data live[THREADS];
static pthread_barrier_t begin;
static pthread_barrier_t freed;
static pthread_barrier_t for_ever;

static void churn(struct worker *worker) {
  const uint64_t live_share = LIVE_BYTES / THREADS;
  void **slots = new_pointers(SLOTS);
  for (uint64_t churned = 0; churned < worker->volume;) {
    const size_t slot = next_random(&worker->seed) % SLOTS;
    const size_t bytes = random_between(&worker->seed, SHORT_LEAST, SHORT_MOST);
    free(slots[slot]);
    slots[slot] = allocate(bytes);
    touch_pages(slots[slot], bytes);
    churned += bytes;
    /* As much of the live data as of the volume is through. */
    while ((double)worker->live->bytes * (double)worker->volume < (double)live_share * (double)churned)
      add_live(worker->live, random_between(&worker->seed, LIVE_LEAST, LIVE_MOST));
  }
  for (size_t i = 0; i < SLOTS; ++i)
    free(slots[i]);
  drop_pointers(slots, SLOTS);
}

static void *work(void *argument) {
  (void)pthread_barrier_wait(&begin);
  churn(argument);
  (void)pthread_barrier_wait(&freed);
  (void)pthread_barrier_wait(&for_ever);
  return NULL;
}

int main(int argc, char **argv) {
  double volume_gb = 10;
  read_options(
      argc, argv,
      (const struct option_of_workload[]){{"--volume-gb", &volume_gb, NULL, NULL}, {NULL, NULL, NULL, NULL}});
  static struct worker workers[THREADS];
  (void)pthread_barrier_init(&begin, NULL, THREADS + 1);
  (void)pthread_barrier_init(&freed, NULL, THREADS + 1);
  (void)pthread_barrier_init(&for_ever, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; ++i) {
    workers[i].seed = UINT64_C(88172645463325252) + i * UINT64_C(0x9e3779b97f4a7c15);
    workers[i].volume = (uint64_t)(volume_gb * 1e9) / THREADS;
    workers[i].live = &live[i];
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      fail("no thread to be had");
  }
  (void)pthread_barrier_wait(&begin);
  const uint64_t began = now();
  (void)pthread_barrier_wait(&freed);
  report_seconds("run_s", now() - began);
  show_freed();
  finish(live, THREADS);
  return 0;
}
