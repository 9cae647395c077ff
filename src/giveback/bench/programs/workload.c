#include "workload.h"

#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static bool trim_wanted;
static bool wait_wanted;

/* ---- options ----------------------------------------------------------------- */

void fail(const char *what) {
  (void)fprintf(stderr, "bench program: %s\n", what);
  _exit(3);
}

static _Noreturn void refuse(const char *option, const char *why) {
  (void)fprintf(stderr, "bench program: %s: %s\n", option, why);
  _exit(2);
}

static const struct option_of_workload *find_option(const struct option_of_workload *options,
                                                    const char *name) {
  while (options->name != NULL && strcmp(options->name, name) != 0)
    ++options;
  return options->name == NULL ? NULL : options;
}

void read_options(int argc, char **argv, const struct option_of_workload *options) {
  const struct option_of_workload common[] = {
      {"--trim", NULL, &trim_wanted, NULL}, {"--wait", NULL, &wait_wanted, NULL}, {NULL, NULL, NULL, NULL}};
  for (int i = 1; i < argc; ++i) {
    const struct option_of_workload *option = find_option(options, argv[i]);
    if (option == NULL)
      option = find_option(common, argv[i]);
    if (option == NULL)
      refuse(argv[i], "no such option");
    if (option->flag != NULL) {
      *option->flag = true;
      continue;
    }
    if (++i == argc)
      refuse(option->name, "needs a value");
    if (option->text != NULL) {
      *option->text = argv[i];
      continue;
    }
    char *end;
    *option->number = strtod(argv[i], &end);
    if (end == argv[i] || *end != '\0' || !(*option->number >= 0))
      refuse(option->name, "needs a number, 0 or more");
  }
}

/* ---- figures of this process --------------------------------------------------- */

static uint64_t read_clock(clockid_t clock) {
  struct timespec time;
  if (clock_gettime(clock, &time) != 0)
    fail("clock_gettime failed");
  return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

uint64_t now(void) {
  return read_clock(CLOCK_MONOTONIC);
}

uint64_t cpu_of_process(void) {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void sleep_until(uint64_t moment) {
  const struct timespec time = {.tv_sec = (time_t)(moment / SECOND), .tv_nsec = (long)(moment % SECOND)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
    continue;
}

uint64_t resident(void) {
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (length <= 0)
    fail("/proc/self/statm cannot be read");
  (void)close(file);
  text[length] = '\0';
  char *end;
  (void)strtoull(text, &end, 10);
  return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- memory --------------------------------------------------------------------- */

void *allocate(size_t bytes) {
  void *block = malloc(bytes);
  if (block == NULL)
    fail("out of memory");
  return block;
}

void touch_pages(void *block, size_t bytes) {
  const size_t page = 4096;
  volatile unsigned char *byte = block;
  for (size_t i = 0; i < bytes; i += page)
    byte[i] = 1;
}

void **new_pointers(size_t count) {
  void *table =
      mmap(NULL, count * sizeof(void *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED)
    fail("out of memory");
  return table;
}

void drop_pointers(void **table, size_t count) {
  (void)munmap(table, count * sizeof(void *));
}

uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

size_t random_between(uint64_t *state, size_t least, size_t most) {
  return least + next_random(state) % (most - least + 1);
}

void shuffle(void **table, size_t count, uint64_t seed) {
  for (size_t i = count; i > 1; --i) {
    const size_t other = next_random(&seed) % i;
    void *block = table[i - 1];
    table[i - 1] = table[other];
    table[other] = block;
  }
}

enum { FILLING = 0x5a };

struct live_block {
  struct live_block *next;
  size_t bytes;
  unsigned char filling[];
};

void add_live(struct live_data *data, size_t bytes) {
  struct live_block *block = allocate(bytes);
  block->next = data->first;
  block->bytes = bytes;
  memset(block->filling, FILLING, bytes - sizeof *block);
  data->first = block;
  ++data->blocks;
  data->bytes += bytes;
}

void check_live(const struct live_data *data) {
  size_t blocks = 0;
  size_t bytes = 0;
  for (const struct live_block *block = data->first; block != NULL; block = block->next) {
    if (block->bytes < 2 * sizeof *block || block->bytes > data->bytes - bytes)
      fail("live data was damaged");
    ++blocks;
    bytes += block->bytes;
    /* The first and the last byte; all of them would cost as much as the workload. */
    if (block->filling[0] != FILLING || block->filling[block->bytes - sizeof *block - 1] != FILLING)
      fail("live data was damaged");
  }
  if (blocks != data->blocks || bytes != data->bytes)
    fail("live data was damaged");
}

/* ---- the answer ------------------------------------------------------------------ */

static char answer[4096];
static size_t answer_length;

static void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(answer + answer_length, sizeof answer - answer_length, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof answer - answer_length)
    fail("too much to report");
  answer_length += (size_t)length;
}

void report(const char *name, uint64_t value) {
  say("%s\"%s\": %" PRIu64, answer_length == 0 ? "{" : ", ", name, value);
}

void report_seconds(const char *name, uint64_t nanoseconds) {
  say("%s\"%s\": %.6f", answer_length == 0 ? "{" : ", ", name, (double)nanoseconds / (double)SECOND);
}

static void trim_if_asked(void) {
  if (!trim_wanted)
    return;
  const uint64_t before = resident();
  const uint64_t cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
  const uint64_t begin = now();
  (void)malloc_trim(0);
  const uint64_t end = now();
  report_seconds("trim_cpu_s", read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu);
  report_seconds("trim_wall_s", end - begin);
  const uint64_t after = resident();
  report("rss_trimmed", after);
  report("trim_returned", before > after ? before - after : 0);
}

static void wait_if_asked(void) {
  char byte = 0;
  while (wait_wanted && byte != '\n' && read(STDIN_FILENO, &byte, 1) == 1)
    continue;
}

void show_report(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0)
    fail("getrusage failed");
  report("minor_faults", (uint64_t)usage.ru_minflt);
  report_seconds("cpu_so_far_s", cpu_of_process());
  say("}\n");
  for (size_t done = 0; done < answer_length;) {
    const ssize_t wrote = write(STDOUT_FILENO, answer + done, answer_length - done);
    if (wrote <= 0)
      fail("nobody reads the answer");
    done += (size_t)wrote;
  }
  answer_length = 0;
  wait_if_asked();
}

void show_freed(void) {
  report("rss_freed", resident());
  report("freed_at_ns", now());
  show_report();
}

void finish(const struct live_data *owners, size_t count) {
  trim_if_asked();
  uint64_t live = 0;
  for (size_t i = 0; i < count; ++i) {
    check_live(&owners[i]);
    live += owners[i].bytes;
  }
  report("live_bytes", live);
  show_report();
}
