/* Ways in which a process, or its use of the library, ends while the engine works.
 *
 *   hazard_exits handler COUNT MS   children that call exit() in a handler that interrupted malloc or free, after
 *                                   so many milliseconds
 *   hazard_exits rest CODE          says "ready", waits for its standard input to end, and exits
 *   hazard_exits grow CODE          asks for much, prints the figures, and exits
 *   hazard_exits dlclose LIBRARY    loads it, starts the engine, and closes it again
 *   hazard_exits twice LIBRARY      preloaded as two copies, of which this is the second
 *   hazard_exits restart COUNT      starts and stops it in a program at work
 */
#include "hazard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { EXIT_CODE = 41 };

static struct heap heap;

/* ---- exit() in a handler ---------------------------------------------------------------- */

static volatile sig_atomic_t signals_left;

static void exit_in_handler(int unused) {
  (void)unused;
  if (signals_left-- == 0)
    exit(EXIT_CODE);
}

/* Sizes that are split, merged and kept in fastbins; large ones trim the top. */
static void allocate_for_ever(void) {
  void *blocks[64] = {0};
  for (unsigned random = 1;; random = random * 1664525u + 1013904223u) {
    void **block = &blocks[random >> 26];
    free(*block);
    const size_t bytes = (random >> 8) % 5 == 0 ? (random >> 12) % 200000 : (random >> 12) % 3000;
    *block = malloc(bytes);
  }
}

static void live_until_handler(unsigned number, long milliseconds) {
  /* Met while the engine begins, or once it is at work. */
  heap_turn(&heap);
  ask_for_much();
  if (number % 2 == 0)
    heap_turn(&heap);
  signals_left = (sig_atomic_t)(number % 20);
  (void)signal(SIGALRM, exit_in_handler);
  const struct itimerval often = {.it_interval = {0, 100},
                                  .it_value = {0, milliseconds * 1000 + 1 + (long)number * 37 % 3000}};
  if (setitimer(ITIMER_REAL, &often, NULL) != 0)
    fail("setitimer");
  allocate_for_ever();
}

/* Waits for the child, for five seconds at most. */
static bool ended_well(pid_t child) {
  for (unsigned i = 0; i < 5000; ++i) {
    int status;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child)
      return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE;
    (void)usleep(1000);
  }
  (void)kill(child, SIGKILL);
  (void)waitpid(child, NULL, 0);
  return false;
}

/* So many free chunks that malloc_trim takes milliseconds. */
static void make_holes(void) {
  enum { HOLES = 8000 };
  void **blocks = calloc(HOLES, sizeof *blocks);
  for (unsigned i = 0; blocks != NULL && i < HOLES; ++i)
    blocks[i] = malloc(9000);
  for (unsigned i = 0; blocks != NULL && i < HOLES; i += 2)
    free(blocks[i]);
}

static void run_handler(unsigned count, long milliseconds) {
  make_holes();
  unsigned good = 0;
  unsigned bad = 0;
  for (unsigned i = 0; i < count && bad < 3; ++i) {
    const pid_t child = fork();
    if (child < 0)
      fail("fork");
    if (child == 0)
      live_until_handler(i, milliseconds);
    if (ended_well(child))
      ++good;
    else
      ++bad;
  }
  printf("{\"good\": %u, \"bad\": %u}\n", good, bad);
}

/* ---- others -------------------------------------------------------------------------------- */

static void run_rest(int code) {
  start_engine();
  printf("ready\n");
  (void)fflush(stdout);
  (void)getchar();
  exit(code);
}

static void run_grow(int code) {
  ask_for_much();
  heap_turn(&heap);
  printf("{");
  print_stats();
  printf("}\n");
  exit(code);
}

static void print_all(unsigned threads) {
  printf("{\"engines\": %u, ", threads);
  print_stats();
  printf("}\n");
}

/* The library's functions must not be called by then, but its thread runs. */
static void run_dlclose(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    fail(dlerror());
  const struct gb_engine_api *api = engine_in(library);
  char message[GB_CONFIG_MESSAGE];
  if (api->start(getenv("SETTINGS"), message) != GB_OK)
    fail(message);
  struct gb_stats stats;
  AWAIT(api->stats(&stats) == GB_OK && stats.passes > 0);
  if (dlclose(library) != 0)
    fail("dlclose");
  for (unsigned i = 0; i < 100; ++i) {
    heap_turn(&heap);
    (void)usleep(1000);
  }
  heap_end(&heap);
  library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL || engine_in(library) != api)
    fail("it was loaded anew");
  const uint64_t passes = stats.passes;
  if (api->start("", message) != GB_RUNNING)
    fail("the engine is gone");
  AWAIT((heap_turn(&heap), stats_now().passes > passes && stats_now().returned_bytes > 0));
  print_all(engine_threads());
}

static void run_twice(const char *path) {
  void *second = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (second == NULL || engine_in(second) == engine_in(RTLD_DEFAULT))
    fail("there are no two copies");
  start_engine();
  heap_turn(&heap);
  struct gb_stats stats;
  if (engine_in(second)->stats(&stats) != GB_NO_ENGINE)
    fail("the second copy has an engine, too");
  print_all(engine_threads());
}

/* A loop that takes and frees the same blocks again and again: its heap looks the same before and after, but not
 * in between. */
static void *loop(void *context) {
  const uint32_t *end = context;
  void *blocks[50];
  while (__atomic_load_n(end, __ATOMIC_RELAXED) == 0) {
    for (unsigned i = 0; i < 50; ++i) {
      blocks[i] = malloc(20000 + (size_t)i * 16);
      if (blocks[i] == NULL)
        fail("no memory");
      *(volatile char *)blocks[i] = 1;
    }
    for (unsigned i = 0; i < 50; ++i)
      free(blocks[i]);
    (void)usleep(50);
  }
  return NULL;
}

static unsigned open_files(void) {
  unsigned count = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor)
    count += fcntl(descriptor, F_GETFD) >= 0;
  return count;
}

static void run_restart(unsigned count) {
  const unsigned files = open_files();
  uint32_t end = 0;
  pthread_t thread;
  if (pthread_create(&thread, NULL, loop, &end) != 0)
    fail("no thread");
  const struct gb_engine_api *api = engine_in(RTLD_DEFAULT);
  unsigned worked = 0;
  unsigned refused = 0;
  for (unsigned i = 0; i < count; ++i) {
    char message[GB_CONFIG_MESSAGE];
    if (api->start(getenv("SETTINGS"), message) != GB_OK)
      fail(message);
    AWAIT(stats_now().passes > 0 || stats_now().state == GB_ENGINE_REFUSES);
    ++*(stats_now().state == GB_ENGINE_RUNS ? &worked : &refused);
    if (api->stop() != GB_OK)
      fail("stop");
  }
  __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
  (void)pthread_join(thread, NULL);
  printf("{\"worked\": %u, \"refused\": %u, \"engines\": %u, \"more_files\": %u}\n", worked, refused,
         engine_threads(), open_files() - files);
}

int main(int count, char **arguments) {
  if (count < 3)
    return 2;
  const char *mode = arguments[1];
  if (strcmp(mode, "handler") == 0 && count == 4)
    run_handler((unsigned)strtoul(arguments[2], NULL, 10), strtol(arguments[3], NULL, 10));
  else if (strcmp(mode, "rest") == 0)
    run_rest((int)strtol(arguments[2], NULL, 10));
  else if (strcmp(mode, "grow") == 0)
    run_grow((int)strtol(arguments[2], NULL, 10));
  else if (strcmp(mode, "dlclose") == 0)
    run_dlclose(arguments[2]);
  else if (strcmp(mode, "twice") == 0)
    run_twice(arguments[2]);
  else if (strcmp(mode, "restart") == 0)
    run_restart((unsigned)strtoul(arguments[2], NULL, 10));
  else
    return 2;
  return 0;
}
