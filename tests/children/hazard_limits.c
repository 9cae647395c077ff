/* Memory, threads, files: what the program locks, limits or closes.
 *
 *   hazard_limits mlockall WHEN      before or after the engine's start
 *   hazard_limits no-thread LIMIT    NPROC (as another user), AS, FSIZE or NOFILE is too low when it would start; then
 *                                    it is as it was
 *   hazard_limits tight              RLIMIT_AS leaves no room while the engine works
 *   hazard_limits closefrom ROUNDS   closes all descriptors, again and again, and opens files of its own
 */
#include "hazard.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct heap heap;

static void print_end(void) {
  heap_end(&heap);
  print_stats();
  printf("}\n");
}

static uint64_t cpu_ns(void) {
  return gb_clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

/* ---- mlockall ------------------------------------------------------------------------------ */

static void run_mlockall(const char *when) {
  if (strcmp(when, "after") == 0) {
    start_engine();
    heap_until_returned(&heap, 1 << 20);
  }
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    printf("{\"missing\": \"mlockall: %s\"}\n", strerror(errno));
    return;
  }
  start_engine();
  const struct gb_stats before = stats_now();
  AWAIT((heap_turn(&heap), stats_now().refused[GB_LOCKED] > before.refused[GB_LOCKED] + 3));
  /* At rest there is nothing to do, however much is free. */
  (void)usleep(200000);
  const uint64_t rest_begin = stats_now().wakeups;
  const uint64_t cpu_begin = cpu_ns();
  (void)usleep(500000);
  const uint64_t cpu = cpu_ns() - cpu_begin;
  printf("{\"wakeups_at_rest\": %" PRIu64 ", \"cpu_ns_at_rest\": %" PRIu64 ", \"returned_locked\": %" PRIu64
         ", ",
         stats_now().wakeups - rest_begin, cpu, stats_now().returned_bytes - before.returned_bytes);
  print_end();
}

/* ---- too little for a start ------------------------------------------------------------------ */

struct limit {
  const char *name;
  int resource;
};
static const struct limit limits[] = {
    {"NPROC", RLIMIT_NPROC}, {"AS", RLIMIT_AS}, {"FSIZE", RLIMIT_FSIZE}, {"NOFILE", RLIMIT_NOFILE}};

static void run_no_thread(const char *name) {
  const struct limit *limit = limits;
  while (strcmp(limit->name, name) != 0)
    ++limit;
  if (limit->resource == RLIMIT_NPROC) {
    /* The limit is not for root. What it costs to become somebody else is another test's. */
    if (setresuid(54321, 54321, 54321) != 0) {
      printf("{\"missing\": \"only root can become another user\"}\n");
      return;
    }
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  }
  struct rlimit as_it_was;
  if (getrlimit(limit->resource, &as_it_was) != 0)
    fail("getrlimit");
  free(malloc(100000)); /* what ask_without_mapping will use */
  struct rlimit low = as_it_was;
  low.rlim_cur = limit->resource == RLIMIT_AS ? address_space() + 4096 : 0;
  if (setrlimit(limit->resource, &low) != 0)
    fail("setrlimit");
  ask_without_mapping();
  const struct gb_stats during = stats_now();
  if (setrlimit(limit->resource, &as_it_was) != 0)
    fail("setrlimit");
  /* Much is asked for once more, and so is a release: it is tried again before its time. */
  struct gb_release_answer released;
  ask_for_much();
  (void)engine_in(RTLD_DEFAULT)->release(UINT64_C(20000000000), &released);
  if (stats_now().state == GB_ENGINE_RUNS)
    heap_until_returned(&heap, 1 << 20);
  printf("{\"state_during\": %u, \"reason_during\": %u, ", during.state, during.reason);
  print_end();
}

/* ---- no room for anything while it works -------------------------------------------------------- */

static void run_tight(void) {
  start_engine();
  heap_until_returned(&heap, 1 << 20);
  heap_fill(&heap);
  struct rlimit as_it_was;
  if (getrlimit(RLIMIT_AS, &as_it_was) != 0)
    fail("getrlimit");
  const uint64_t looks = stats_now().looks;
  for (unsigned i = 0; i < 60; ++i) {
    struct rlimit low = as_it_was;
    low.rlim_cur = address_space() + (uint64_t)(i % 3) * 16384;
    if (setrlimit(RLIMIT_AS, &low) != 0)
      fail("setrlimit");
    heap_thin(&heap);
    /* Blocks of the same sizes, in another order, or none: there is nothing to be had but those. */
    for (size_t j = 0; j < BLOCKS; j += 5) {
      if (heap.blocks[j] != NULL)
        continue;
      heap.blocks[j] = malloc(3000);
      heap.bytes[j] = heap.blocks[j] == NULL ? 0 : 3000;
      if (heap.blocks[j] != NULL)
        memset(heap.blocks[j], block_byte(j), 3000);
    }
    (void)usleep(2000);
    heap_verify(&heap);
    if (setrlimit(RLIMIT_AS, &as_it_was) != 0)
      fail("setrlimit");
    heap_fill(&heap);
  }
  printf("{\"looks_tight\": %" PRIu64 ", ", stats_now().looks - looks);
  print_end();
}

/* ---- descriptors ----------------------------------------------------------------------------------- */

enum { FILES = 62 };

static void close_all(void) {
  if (syscall(SYS_close_range, 3, ~0u, 0) == 0)
    return;
  for (int descriptor = 3; descriptor < 1024; ++descriptor)
    (void)close(descriptor);
}

static int open_file(unsigned number) {
  int descriptor;
  switch (number % 3) {
  case 0:
    descriptor = memfd_create("of the program", MFD_CLOEXEC);
    if (descriptor >= 0 && pwrite(descriptor, &number, sizeof number, 0) != (ssize_t)sizeof number)
      fail("pwrite");
    break;
  case 1:
    descriptor = eventfd(5, EFD_NONBLOCK | EFD_CLOEXEC);
    break;
  default: /* a file as the engine has one, too */
    descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  }
  if (descriptor < 0)
    fail("no file");
  return descriptor;
}

/* Each of the program's files is what it was, and at the position where it was. */
static void check_memory(int descriptor, unsigned number) {
  unsigned found = 0;
  if (lseek(descriptor, 0, SEEK_CUR) != 0)
    fail("a file was read, written or closed");
  if (read(descriptor, &found, sizeof found) != (ssize_t)sizeof found || found != number)
    fail("a file is not what it was");
  if (lseek(descriptor, 0, SEEK_END) != (off_t)sizeof found)
    fail("a file was written");
}

static void check_file(int descriptor, unsigned number) {
  uint64_t value = 0;
  switch (number % 3) {
  case 0:
    check_memory(descriptor, number);
    break;
  case 1:
    if (read(descriptor, &value, sizeof value) != (ssize_t)sizeof value || value != 5)
      fail("a counter was read, or closed");
    break;
  default:
    if (lseek(descriptor, 0, SEEK_CUR) != 0)
      fail("a file of /proc was read, or closed");
  }
}

/* A fork child forgets the parent's engine. */
static void check_in_child(const int *files, unsigned first) {
  const pid_t child = fork();
  if (child == 0) {
    for (unsigned i = 0; i < FILES; ++i)
      check_file(files[i], first + i);
    _exit(0);
  }
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    fail("in a child");
}

/* An engine that begins opens most files: so it begins again and again. */
static void run_closefrom(unsigned rounds) {
  const struct gb_engine_api *api = engine_in(RTLD_DEFAULT);
  char message[GB_CONFIG_MESSAGE];
  for (unsigned round = 0; round < rounds; ++round) {
    heap_turn(&heap);
    if (round % 4 == 0)
      (void)api->stop();
    const enum gb_status status = api->start(getenv("SETTINGS"), message);
    if (status != GB_OK && status != GB_RUNNING)
      fail(message);
    (void)usleep(round * 13 % 600);
    close_all();
    int files[FILES];
    for (unsigned i = 0; i < FILES; ++i)
      files[i] = open_file(round * FILES + i);
    heap_turn(&heap);
    (void)usleep(round * 29 % 1500);
    if (round % 10 == 9) {
      check_in_child(files, round * FILES);
      continue;
    }
    for (unsigned i = 0; i < FILES; ++i)
      check_file(files[i], round * FILES + i);
  }
  const uint64_t passes = stats_now().passes;
  for (unsigned i = 0; i < 2000 && stats_now().state == GB_ENGINE_RUNS && stats_now().passes < passes + 5;
       ++i) {
    heap_turn(&heap);
    (void)usleep(1000);
  }
  printf("{\"more_passes\": %" PRIu64 ", ", stats_now().passes - passes);
  print_end();
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "";
  if (strcmp(mode, "mlockall") == 0 && count == 3)
    run_mlockall(arguments[2]);
  else if (strcmp(mode, "no-thread") == 0 && count == 3)
    run_no_thread(arguments[2]);
  else if (strcmp(mode, "tight") == 0)
    run_tight();
  else if (strcmp(mode, "closefrom") == 0 && count == 3)
    run_closefrom((unsigned)strtoul(arguments[2], NULL, 10));
  else
    return 2;
  return 0;
}
