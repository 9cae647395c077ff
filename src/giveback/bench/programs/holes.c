/* 65,536 free chunks of 16 KB in one arena, each with a live block behind it: the longest list
 * of free chunks that a pass over one arena has to get through, 1 GB in all.
 *
 *   holes [--thread] [--random] [--count 65536] [--trim] [--wait]
 *
 * --thread: in a thread's arena instead of the main one. --random: freed in random order.
 */
#include "workload.h"

#include <pthread.h>
#include <stdlib.h>

enum {
  HOLE = 16 * 1024 - 16, /* bytes asked for; 16 for the chunk's head, and for rounding */
  SEPARATOR = 32,
};

static bool in_thread;
static bool in_random_order;
static double count = 65536;
static struct live_data live;
static pthread_barrier_t made;
static pthread_barrier_t for_ever;

static void make_holes(void) {
  const size_t holes = (size_t)count;
  void **blocks = new_pointers(holes);
  for (size_t i = 0; i < holes; ++i) {
    blocks[i] = allocate(HOLE);
    touch_pages(blocks[i], HOLE);
    add_live(&live, SEPARATOR);
  }
  if (in_random_order)
    shuffle(blocks, holes, UINT64_C(88172645463325252));
  for (size_t i = 0; i < holes; ++i)
    free(blocks[i]);
  drop_pointers(blocks, holes);
}

static void *work(void *argument) {
  make_holes();
  (void)pthread_barrier_wait(&made);
  (void)pthread_barrier_wait(&for_ever);
  return argument;
}

int main(int argc, char **argv) {
  read_options(argc, argv,
               (const struct option_of_workload[]){{"--thread", NULL, &in_thread, NULL},
                                                   {"--random", NULL, &in_random_order, NULL},
                                                   {"--count", &count, NULL, NULL},
                                                   {NULL, NULL, NULL, NULL}});
  const uint64_t began = now();
  if (in_thread) {
    pthread_t thread;
    (void)pthread_barrier_init(&made, NULL, 2);
    (void)pthread_barrier_init(&for_ever, NULL, 2);
    if (pthread_create(&thread, NULL, work, NULL) != 0)
      fail("no thread to be had");
    (void)pthread_barrier_wait(&made);
  } else {
    make_holes();
  }
  report_seconds("run_s", now() - began);
  show_freed();
  finish(&live, 1);
  return 0;
}
