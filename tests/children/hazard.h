/* What the programs of tests/integration/test_hazards_*.py share: the engine that was put into them, waiting
 * with a limit, and a heap that knows what must be in it.
 *
 * Each program prints one JSON object and ends with 0, or says on stderr what went wrong and ends with 3. */
#ifndef GIVEBACK_TESTS_HAZARD_H
#define GIVEBACK_TESTS_HAZARD_H

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "release/engine.h"

static inline void fail(const char *what) {
  (void)fprintf(stderr, "%s (errno: %s)\n", what, strerror(errno));
  _exit(3);
}

/* Evaluates `condition` every millisecond until it holds. */
#define AWAIT(condition)                                                                                     \
  do {                                                                                                       \
    const uint64_t until_ = gb_now_ns() + UINT64_C(30000000000);                                             \
    while (!(condition)) {                                                                                   \
      if (gb_now_ns() > until_)                                                                              \
        fail("waited in vain for " #condition);                                                              \
      (void)usleep(1000);                                                                                    \
    }                                                                                                        \
  } while (0)

/* ---- the engine ------------------------------------------------------------------------ */

static inline const struct gb_engine_api *engine_in(void *library) {
  const struct gb_engine_api *(*get)(void) = NULL;
  void *found = dlsym(library, "giveback_engine");
  if (found == NULL)
    fail("the library is not loaded");
  memcpy(&get, &found, sizeof found);
  return get();
}

static inline struct gb_stats stats_now(void) {
  struct gb_stats stats;
  (void)engine_in(RTLD_DEFAULT)->stats(&stats);
  return stats;
}

/* Asks malloc for so much in all that the library takes the process for a large one. Touches nothing. */
static inline void ask_for_much(void) {
  for (unsigned i = 0; i < 40; ++i) {
    void *volatile block = malloc(1 << 20);
    if (block == NULL)
      fail("no memory");
    free(block);
  }
}

/* Much in all, out of memory that malloc has already. */
static inline void ask_without_mapping(void) {
  for (unsigned i = 0; i < 2000; ++i) {
    void *volatile block = malloc(30000);
    if (block == NULL)
      fail("no memory");
    free(block);
  }
}

/* For RLIMIT_AS. */
static inline uint64_t address_space(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%lu", &pages) != 1 || fclose(file) != 0)
    fail("statm");
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* By the way a program that knows nothing of it starts it. */
static inline void start_engine(void) {
  ask_for_much();
  AWAIT(stats_now().state == GB_ENGINE_RUNS && stats_now().passes > 0);
}

static inline void print_stats(void) {
  const struct gb_stats stats = stats_now();
  printf("\"state\": %u, \"reason\": %u, \"pid\": %u, \"passes\": %" PRIu64 ", \"looks\": %" PRIu64
         ", \"returned\": %" PRIu64 ", \"failures\": %" PRIu64 ", \"engine_cpu_ns\": %" PRIu64
         ", \"path\": %" PRIu64 ", \"refused\": {",
         stats.state, stats.reason, stats.pid, stats.passes, stats.looks, stats.returned_bytes,
         stats.release_failures, stats.engine_cpu_ns, stats.kernel_path);
  const char *comma = "";
  for (unsigned i = 0; i < GB_STATS_STATUSES; ++i) {
    if (stats.refused[i] == 0)
      continue;
    printf("%s\"%u\": %" PRIu64, comma, i, stats.refused[i]);
    comma = ", ";
  }
  printf("}");
}

/* Threads of this process that have the engine's name. */
static inline unsigned engine_threads(void) {
  unsigned count = 0;
  FILE *names = popen("cat /proc/$PPID/task/*/comm", "r");
  char line[64];
  while (names != NULL && fgets(line, sizeof line, names) != NULL)
    count += strcmp(line, "giveback\n") == 0;
  if (names == NULL || pclose(names) != 0)
    fail("the threads' names cannot be read");
  return count;
}

/* ---- a heap that knows what must be in it ------------------------------------------------- */

enum { BLOCKS = 480 };

struct heap {
  unsigned char *blocks[BLOCKS];
  size_t bytes[BLOCKS];
  uint32_t random;
};

static inline size_t block_size(struct heap *heap) {
  heap->random = heap->random * 1664525u + 1013904223u;
  const size_t figure = heap->random >> 8;
  return figure % 4 == 0 ? 1 + figure % 500 : 6000 + figure % 30000;
}

static inline unsigned char block_byte(size_t number) {
  return (unsigned char)(number * 37 + 1);
}

static inline void heap_verify(const struct heap *heap) {
  for (size_t i = 0; i < BLOCKS; ++i) {
    for (size_t at = 0; at < heap->bytes[i]; ++at) {
      if (heap->blocks[i][at] != block_byte(i))
        fail("a live byte has changed");
    }
  }
}

static inline void heap_fill(struct heap *heap) {
  for (size_t i = 0; i < BLOCKS; ++i) {
    if (heap->blocks[i] != NULL)
      continue;
    const size_t bytes = block_size(heap);
    heap->blocks[i] = i % 8 == 1 ? calloc(1, bytes) : malloc(bytes);
    if (heap->blocks[i] == NULL)
      fail("no memory");
    for (size_t at = 0; i % 8 == 1 && at < bytes; ++at) {
      if (heap->blocks[i][at] != 0)
        fail("calloc gave a byte that is not 0");
    }
    memset(heap->blocks[i], block_byte(i), bytes);
    heap->bytes[i] = bytes;
  }
}

/* Frees all blocks but every eighth, which keep the others from merging. */
static inline void heap_thin(struct heap *heap) {
  for (size_t i = 0; i < BLOCKS; ++i) {
    if (i % 8 == 0)
      continue;
    free(heap->blocks[i]);
    heap->blocks[i] = NULL;
    heap->bytes[i] = 0;
  }
}

static inline void heap_turn(struct heap *heap) {
  heap_fill(heap);
  heap_verify(heap);
  heap_thin(heap);
}

static inline void heap_end(struct heap *heap) {
  heap_verify(heap);
  for (size_t i = 0; i < BLOCKS; ++i)
    free(heap->blocks[i]);
  *heap = (struct heap){0};
}

/* Turns the heap over until the engine has brought so much more back. */
static inline void heap_until_returned(struct heap *heap, uint64_t bytes) {
  const uint64_t before = stats_now().returned_bytes;
  AWAIT((heap_turn(heap), stats_now().returned_bytes - before >= bytes));
}

/* ---- threads that allocate all the time ------------------------------------------------------ */

struct worker {
  pthread_t thread;
  const uint32_t *end;
  uint64_t turns;
};

static inline void *work(void *context) {
  struct worker *worker = context;
  struct heap *heap = calloc(1, sizeof *heap);
  if (heap == NULL)
    fail("no memory");
  heap->random = (uint32_t)(uintptr_t)worker;
  while (__atomic_load_n(worker->end, __ATOMIC_RELAXED) == 0) {
    heap_turn(heap);
    ++worker->turns;
    (void)usleep(1500);
  }
  heap_end(heap);
  free(heap);
  return NULL;
}

static inline void start_worker(struct worker *worker, const uint32_t *end) {
  *worker = (struct worker){.end = end};
  if (pthread_create(&worker->thread, NULL, work, worker) != 0)
    fail("no thread");
}

#endif
