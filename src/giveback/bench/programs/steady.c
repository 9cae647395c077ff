/* Programs that work evenly, without a spike: what is freed is soon taken again, so nothing should happen.
 *
 *   steady --shape requests|cache|buffers|handover|strings|batches [--seconds 60] [--trim] [--wait]
 *
 * requests: four threads answer requests of 40 blocks of 64 bytes to 8 KB, all freed at the end of each.
 * cache:    20,000 entries of 100 bytes to 4 KB, replaced in random order by two threads.
 * buffers:  256 buffers of 4 to 100 KB, replaced in random order by two threads.
 * handover: messages of 200 bytes to 16 KB, allocated by one thread, freed by another, 1000 on their way.
 * strings:  128 strings a thread, made anew by two threads: each grows by realloc from 64 bytes to up to 256 KB.
 * batches:  once a second 8 MB of results in blocks of 1 to 32 KB, made over half a second, then freed at once,
 *           but for one in 16, which stays until the next time.
 *
 * Each has 32 MB of live data besides. The work of each hundredth of a second is fixed: a tenth to a third of a core
 * (batches: less), in all variants alike.
 */
#include "workload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_THREADS = 4,
  REQUESTS = 80, /* a hundredth of a second and thread */
  REQUEST_BLOCKS = 40,
  ENTRIES = 10000, /* a thread */
  REPLACED_ENTRIES = 2000, /* a hundredth of a second and thread */
  BUFFERS = 128, /* a thread */
  REPLACED_BUFFERS = 500, /* the same */
  ON_THEIR_WAY = 1000,
  MESSAGES = 3000, /* a hundredth of a second */
  STRINGS = 128, /* a thread */
  NEW_STRINGS = 60, /* a hundredth of a second and thread */
  STRING_LEAST = 64,
  STRING_MOST = 256 * 1024,
  LIVE_LEAST = 64,
  LIVE_MOST = 4 * 1024,
  LIVE_BYTES = 32 * 1000 * 1000,
  STEPS_A_BATCH = 100, /* hundredths of a second */
  BATCH_BYTES = 8 * 1000 * 1000,
  BATCH_LEAST = 1024,
  BATCH_MOST = 32 * 1024,
  BATCH_KEEP = 16,
};
#define STEP (10 * MILLISECOND)

struct worker {
  pthread_t thread;
  const struct shape *shape;
  uint64_t seed;
  void **slots;
  bool first; /* of its shape's threads */
};

/* One step's work. */
typedef void step_function(struct worker *worker, uint64_t step);

struct shape {
  const char *name;
  size_t threads;
  size_t slots; /* a thread */
  step_function *step;
};

static uint64_t steps;
static pthread_barrier_t begin;
static pthread_barrier_t finished;
static pthread_barrier_t for_ever;

static void *new_block(struct worker *worker, size_t least, size_t most) {
  const size_t bytes = random_between(&worker->seed, least, most);
  void *block = allocate(bytes);
  touch_pages(block, bytes);
  return block;
}

static void replace(struct worker *worker, size_t slots, size_t least, size_t most) {
  const size_t slot = next_random(&worker->seed) % slots;
  free(worker->slots[slot]);
  worker->slots[slot] = new_block(worker, least, most);
}

static void requests(struct worker *worker, uint64_t step) {
  (void)step;
  for (size_t request = 0; request < REQUESTS; ++request) {
    void *blocks[REQUEST_BLOCKS];
    for (size_t i = 0; i < REQUEST_BLOCKS; ++i)
      blocks[i] = new_block(worker, 64, 8 * 1024);
    for (size_t i = 0; i < REQUEST_BLOCKS; ++i)
      free(blocks[i]);
  }
}

static void cache(struct worker *worker, uint64_t step) {
  if (step == 0) {
    for (size_t i = 0; i < ENTRIES; ++i)
      worker->slots[i] = new_block(worker, 100, 4 * 1024);
  }
  for (size_t i = 0; i < REPLACED_ENTRIES; ++i)
    replace(worker, ENTRIES, 100, 4 * 1024);
}

static void buffers(struct worker *worker, uint64_t step) {
  (void)step;
  for (size_t i = 0; i < REPLACED_BUFFERS; ++i)
    replace(worker, BUFFERS, 4 * 1024, 100 * 1024);
}

/* A ring: the first thread puts messages in, the second takes them out but for ON_THEIR_WAY. */
static struct {
  pthread_mutex_t lock; /* of all below */
  void *messages[4 * ON_THEIR_WAY];
  uint64_t sent;
  uint64_t received;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool send_message(void *message) {
  (void)pthread_mutex_lock(&ring.lock);
  const bool room = ring.sent - ring.received < 4 * ON_THEIR_WAY;
  if (room)
    ring.messages[ring.sent++ % (4 * ON_THEIR_WAY)] = message;
  (void)pthread_mutex_unlock(&ring.lock);
  return room;
}

static void *receive_message(void) {
  (void)pthread_mutex_lock(&ring.lock);
  void *message = NULL;
  if (ring.sent - ring.received > ON_THEIR_WAY)
    message = ring.messages[ring.received++ % (4 * ON_THEIR_WAY)];
  (void)pthread_mutex_unlock(&ring.lock);
  return message;
}

static void handover(struct worker *worker, uint64_t step) {
  (void)step;
  for (size_t i = 0; i < MESSAGES; ++i) {
    if (worker->first) {
      void *message = new_block(worker, 200, 16 * 1024);
      if (!send_message(message))
        free(message);
    } else {
      free(receive_message());
    }
  }
}

static void strings(struct worker *worker, uint64_t step) {
  (void)step;
  for (size_t i = 0; i < NEW_STRINGS; ++i) {
    const size_t slot = next_random(&worker->seed) % STRINGS;
    const size_t last = random_between(&worker->seed, STRING_LEAST, STRING_MOST);
    free(worker->slots[slot]);
    size_t bytes = STRING_LEAST;
    void *string = allocate(bytes);
    while (bytes < last) {
      bytes = bytes * 2 < last ? bytes * 2 : last;
      void *longer = realloc(string, bytes);
      if (longer == NULL)
        fail("out of memory");
      string = longer;
      *((volatile char *)string + bytes - 1) = 1;
    }
    worker->slots[slot] = string;
  }
}

static void batches(struct worker *worker, uint64_t step) {
  const size_t in_all = BATCH_BYTES / ((BATCH_LEAST + BATCH_MOST) / 2);
  void **kept = worker->slots + in_all;
  const size_t at = step % STEPS_A_BATCH;
  for (size_t i = in_all * at * 2 / STEPS_A_BATCH; i < in_all * (at + 1) * 2 / STEPS_A_BATCH && i < in_all;
       ++i)
    worker->slots[i] = new_block(worker, BATCH_LEAST, BATCH_MOST);
  for (size_t i = 0; at == STEPS_A_BATCH - 1 && i < in_all; ++i) {
    if (i % BATCH_KEEP == 0) {
      free(kept[i / BATCH_KEEP]);
      kept[i / BATCH_KEEP] = worker->slots[i];
    } else {
      free(worker->slots[i]);
    }
  }
}

static const struct shape shapes[] = {
    {"requests", 4, REQUEST_BLOCKS, requests}, {"cache", 2, ENTRIES, cache},
    {"buffers", 2, BUFFERS, buffers},          {"handover", 2, 1, handover},
    {"strings", 2, STRINGS, strings},          {"batches", 1, BATCH_BYTES / BATCH_LEAST, batches},
};

static const struct shape *find_shape(const char *name) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    if (strcmp(shapes[i].name, name) == 0)
      return &shapes[i];
  }
  fail("--shape must be requests, cache, buffers, handover, strings or batches");
}

static void *work(void *argument) {
  struct worker *worker = argument;
  (void)pthread_barrier_wait(&begin);
  const uint64_t began = now();
  for (uint64_t step = 0; step < steps; ++step) {
    worker->shape->step(worker, step);
    sleep_until(began + (step + 1) * STEP);
  }
  (void)pthread_barrier_wait(&finished);
  (void)pthread_barrier_wait(&for_ever);
  return NULL;
}

int main(int argc, char **argv) {
  double seconds = 60;
  const char *name = "requests";
  read_options(argc, argv,
               (const struct option_of_workload[]){{"--seconds", &seconds, NULL, NULL},
                                                   {"--shape", NULL, NULL, &name},
                                                   {NULL, NULL, NULL, NULL}});
  const struct shape *shape = find_shape(name);
  steps = (uint64_t)(seconds * 1e9) / STEP;
  static struct worker workers[MOST_THREADS];
  struct live_data live = {NULL, 0, 0};
  uint64_t seed = UINT64_C(88172645463325252);
  while (live.bytes < LIVE_BYTES)
    add_live(&live, random_between(&seed, LIVE_LEAST, LIVE_MOST));
  (void)pthread_barrier_init(&begin, NULL, (unsigned)shape->threads + 1);
  (void)pthread_barrier_init(&finished, NULL, (unsigned)shape->threads + 1);
  (void)pthread_barrier_init(&for_ever, NULL, (unsigned)shape->threads + 1);
  for (size_t i = 0; i < shape->threads; ++i) {
    workers[i].shape = shape;
    workers[i].first = i == 0;
    workers[i].seed = UINT64_C(88172645463325252) + i * UINT64_C(0x9e3779b97f4a7c15);
    workers[i].slots = new_pointers(shape->slots);
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      fail("no thread to be had");
  }
  (void)pthread_barrier_wait(&begin);
  const uint64_t began = now();
  const uint64_t cpu_began = cpu_of_process();
  (void)pthread_barrier_wait(&finished);
  report_seconds("run_s", now() - began);
  report_seconds("steady_cpu_s", cpu_of_process() - cpu_began);
  show_freed();
  finish(&live, 1);
  return 0;
}
