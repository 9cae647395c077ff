/* A real program under the engine at its highest rate, which verifies every byte of its live data.
 *
 *   engine_child stress SECONDS THREADS SETTINGS    threads that allocate, resize, free, end and are replaced;
 *                                                   children forked meanwhile do the same for a moment
 *   engine_child shape NAME SETTINGS                a heap of a known shape, released by request
 *
 * Prints one JSON object. Linked against the oldest glibc at hand, so that the same file runs on
 * all of them, with the engine inside. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "release/engine.h"

static void fail(const char *what) {
  printf("{\"error\": \"%s\"}\n", what);
  fflush(stdout);
  _exit(3);
}

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* ---- blocks that know what must be in them ----------------------------------------- */

enum { SLOTS = 600 };

struct block {
  unsigned char *memory;
  size_t bytes;
  unsigned char seed;
};

struct worker {
  pthread_t thread;
  uint64_t random;
  uint64_t operations;
  struct block blocks[SLOTS];
};

static unsigned char byte_at(const struct block *block, size_t at) {
  return (unsigned char)(block->seed + at * 7 + (at >> 8));
}

static void fill(const struct block *block, size_t from) {
  for (size_t i = from; i < block->bytes; ++i)
    block->memory[i] = byte_at(block, i);
}

static void verify(const struct block *block, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (block->memory[i] != byte_at(block, i))
      fail("a live byte has changed");
  }
}

static size_t random_size(uint64_t *random) {
  switch (next_random(random) % 8) {
  case 0:
  case 1:
    return 1 + next_random(random) % 120;
  case 2:
  case 3:
  case 4:
    return 1 + next_random(random) % 9000;
  case 5:
  case 6:
    return 1 + next_random(random) % 60000;
  default:
    return 1 + next_random(random) % 400000;
  }
}

static void allocate(struct worker *worker, struct block *block) {
  const size_t bytes = random_size(&worker->random);
  unsigned char *memory;
  switch (next_random(&worker->random) % 4) {
  case 0:
    memory = calloc(1, bytes);
    for (size_t i = 0; memory != NULL && i < bytes; ++i) {
      if (memory[i] != 0)
        fail("calloc gave a byte that is not 0");
    }
    break;
  case 1:
    memory = memalign((size_t)16 << next_random(&worker->random) % 10, bytes);
    break;
  default:
    memory = malloc(bytes);
  }
  if (memory == NULL)
    fail("out of memory");
  *block = (struct block){memory, bytes, (unsigned char)next_random(&worker->random)};
  fill(block, 0);
}

static void work_once(struct worker *worker) {
  struct block *block = &worker->blocks[next_random(&worker->random) % SLOTS];
  ++worker->operations;
  if (block->memory == NULL) {
    allocate(worker, block);
  } else if (next_random(&worker->random) % 3 == 0) {
    const size_t bytes = random_size(&worker->random);
    const size_t kept = bytes < block->bytes ? bytes : block->bytes;
    unsigned char *memory = realloc(block->memory, bytes);
    if (memory == NULL)
      fail("out of memory");
    block->memory = memory;
    verify(block, kept);
    block->bytes = bytes;
    fill(block, kept);
  } else {
    verify(block, block->bytes);
    free(block->memory);
    block->memory = NULL;
  }
}

static void drop_all(struct worker *worker) {
  for (size_t i = 0; i < SLOTS; ++i) {
    if (worker->blocks[i].memory == NULL)
      continue;
    verify(&worker->blocks[i], worker->blocks[i].bytes);
    free(worker->blocks[i].memory);
    worker->blocks[i].memory = NULL;
  }
}

/* ---- stress -------------------------------------------------------------------------- */

static uint64_t end_ns;

static void *work(void *argument) {
  struct worker *worker = argument;
  /* A thread's life: busy, then nearly everything is freed and it rests, then busy again. */
  for (unsigned round = 0; round < 4 && gb_now_ns() < end_ns; ++round) {
    for (unsigned i = 0; i < 1500 && gb_now_ns() < end_ns; ++i)
      work_once(worker);
    for (size_t i = 0; i < SLOTS; ++i) {
      if (i % 16 != 0 && worker->blocks[i].memory != NULL) {
        verify(&worker->blocks[i], worker->blocks[i].bytes);
        free(worker->blocks[i].memory);
        worker->blocks[i].memory = NULL;
      }
    }
    (void)usleep(4000);
    for (size_t i = 0; i < SLOTS; i += 16)
      if (worker->blocks[i].memory != NULL)
        verify(&worker->blocks[i], worker->blocks[i].bytes);
  }
  drop_all(worker);
  return NULL;
}

/* A child does the same for a moment; if the arenas it got were locked, its alarm ends it. */
static void fork_one(struct worker *worker) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    for (unsigned i = 0; i < 300; ++i)
      work_once(worker);
    drop_all(worker);
    _exit(0);
  }
  if (child < 0)
    fail("fork");
  int status;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("a forked child did not end well");
}

static void say_stats(void) {
  struct gb_stats stats;
  (void)giveback_engine()->stats(&stats);
  printf("\"state\": %u, \"reason\": %u, \"passes\": %lu, \"looks\": %lu, \"returned\": %lu, "
         "\"returned_top\": %lu, "
         "\"advised\": %lu, \"calls\": %lu, \"failures\": %lu, \"refaulted\": %lu, \"holds\": %lu, \"cut\": "
         "%lu, "
         "\"busy\": %lu, \"out_of_reach\": %lu, \"trims\": %lu, \"path\": %lu, \"doubts\": [",
         stats.state, stats.reason, stats.passes, stats.looks, stats.returned_bytes, stats.returned_top_bytes,
         stats.advised_bytes, stats.release_calls, stats.release_failures, stats.refaulted_bytes, stats.holds,
         stats.holds_cut, stats.busy, stats.out_of_reach, stats.trims, stats.kernel_path);
  const char *comma = "";
  for (unsigned i = 0; i < GB_STATS_STATUSES; ++i) {
    if (stats.refused[i] == 0)
      continue;
    printf("%s[%u, %lu]", comma, i, stats.refused[i]);
    comma = ", ";
  }
  printf("]");
}

static void start(const char *settings) {
  char message[GB_CONFIG_MESSAGE];
  const enum gb_status status = giveback_engine()->start(settings, message);
  if (status != GB_OK)
    fail(message[0] == '\0' ? gb_status_text(status) : message);
}

static void stress(double seconds, unsigned threads, const char *settings) {
  struct worker *workers = calloc(threads + 1, sizeof *workers);
  if (workers == NULL)
    fail("out of memory");
  start(settings);
  end_ns = gb_now_ns() + (uint64_t)(seconds * 1e9);
  uint64_t operations = 0;
  uint64_t generations = 0;
  uint64_t forks = 0;
  for (unsigned i = 0; i <= threads; ++i)
    workers[i].random = 1000003u * (i + 1);
  while (gb_now_ns() < end_ns) {
    for (unsigned i = 0; i < threads; ++i) {
      if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
        fail("no thread");
    }
    for (unsigned i = 0; i < 6 && gb_now_ns() < end_ns; ++i) {
      for (unsigned j = 0; j < 200; ++j)
        work_once(&workers[threads]);
      fork_one(&workers[threads]);
      ++forks;
    }
    for (unsigned i = 0; i < threads; ++i)
      (void)pthread_join(workers[i].thread, NULL);
    ++generations;
  }
  drop_all(&workers[threads]);
  for (unsigned i = 0; i <= threads; ++i)
    operations += workers[i].operations;
  printf("{\"operations\": %lu, \"generations\": %lu, \"forks\": %lu, ", operations, generations, forks);
  say_stats();
  printf("}\n");
}

/* ---- shapes ---------------------------------------------------------------------------- */

static uint64_t resident(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1)
    fail("statm");
  (void)fclose(file);
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void holes(size_t count, size_t bytes) {
  unsigned char **blocks = calloc(count, sizeof *blocks);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = malloc(bytes);
    memset(blocks[i], 1, bytes);
    void *volatile separator = malloc(24);
    *(volatile char *)separator = 1;
  }
  for (size_t i = 0; i < count; ++i)
    free(blocks[i]);
}

/* All freed, in random order, with a live block here and there: they merge once nothing keeps them
 * in fastbins. */
static void small_blocks(void) {
  enum { COUNT = 200000 };
  void **blocks = calloc(COUNT, sizeof *blocks);
  uint64_t random = 88172645463325252u;
  for (size_t i = 0; i < COUNT; ++i) {
    blocks[i] = malloc(100);
    memset(blocks[i], 1, 100);
  }
  for (size_t i = COUNT - 1; i > 0; --i) {
    const size_t other = next_random(&random) % (i + 1);
    void *block = blocks[i];
    blocks[i] = blocks[other];
    blocks[other] = block;
  }
  for (size_t i = 0; i < COUNT - 100; ++i)
    free(blocks[i]);
}

static pthread_barrier_t shaped;
static pthread_barrier_t released;

static void *holes_in_thread(void *unused) {
  holes(2000, 20000);
  (void)pthread_barrier_wait(&shaped);
  (void)pthread_barrier_wait(&released);
  return unused;
}

/* The free memory at the end of a thread's heap, which malloc_trim never releases. */
static void *top_in_thread(void *unused) {
  (void)mallopt(M_TRIM_THRESHOLD, 1 << 30); /* else free() gives it back by itself */
  unsigned char *blocks[300];
  for (size_t i = 0; i < 300; ++i) {
    blocks[i] = malloc(100000);
    memset(blocks[i], 1, 100000);
  }
  for (size_t i = 0; i < 300; ++i)
    free(blocks[i]);
  (void)pthread_barrier_wait(&shaped);
  (void)pthread_barrier_wait(&released);
  return unused;
}

static void shape(const char *name, const char *settings) {
  pthread_t thread;
  const bool in_thread = strcmp(name, "thread") == 0 || strcmp(name, "top") == 0;
  (void)pthread_barrier_init(&shaped, NULL, 2);
  (void)pthread_barrier_init(&released, NULL, 2);
  if (strcmp(name, "main") == 0)
    holes(2000, 20000);
  else if (strcmp(name, "small") == 0) /* as a late start: all of it lies in fastbins, up to 2.42 */
    small_blocks();
  else if (!in_thread)
    fail("no such shape");
  if (in_thread) {
    if (pthread_create(&thread, NULL, strcmp(name, "top") == 0 ? top_in_thread : holes_in_thread, NULL) != 0)
      fail("no thread");
    (void)pthread_barrier_wait(&shaped);
  }
  start(settings);
  const uint64_t before = resident();
  struct gb_release_answer answer;
  const enum gb_status status = giveback_engine()->release(UINT64_C(20000000000), &answer);
  const uint64_t after = resident();
  malloc_trim(0);
  const uint64_t trimmed = resident();
  printf("{\"status\": %d, \"bytes\": %lu, \"before\": %lu, \"after\": %lu, \"trimmed\": %lu, ", (int)status,
         answer.bytes, before, after, trimmed);
  say_stats();
  printf("}\n");
  if (in_thread) {
    (void)pthread_barrier_wait(&released);
    (void)pthread_join(thread, NULL);
  }
}

int main(int count, char **arguments) {
  if (count == 5 && strcmp(arguments[1], "stress") == 0)
    stress(atof(arguments[2]), (unsigned)atoi(arguments[3]), arguments[4]);
  else if (count == 4 && strcmp(arguments[1], "shape") == 0)
    shape(arguments[2], arguments[3]);
  else
    fail("usage: engine_child stress SECONDS THREADS SETTINGS | shape NAME SETTINGS");
  (void)giveback_engine()->stop();
  return 0;
}
