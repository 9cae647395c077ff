/* Children of every kind, made while the engine works.
 *
 *   hazard_forks storm KIND COUNT FROM CHILD    KIND: fork, _Fork, vfork, spawn, clone; FROM: main, handler, threads;
 *                                               CHILD: allocates, idle
 *   hazard_forks own                            a child that lives and grows: its engine
 *   hazard_forks vfork-first                    the child of a vfork allocates before the engine starts
 *   hazard_forks exec COUNT                     executes itself in the middle of passes
 *   hazard_forks leaf                           what spawned children execute */
#include "hazard.h"

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* glibc 2.34. */
pid_t _Fork(void) __attribute__((weak));

static struct heap heap;

/* An arena that was locked when the child was made makes it wait for ever. */
static void live_as_child(bool allocates) {
  alarm(3);
  if (allocates) {
    heap_turn(&heap);
    heap_end(&heap);
  }
  _exit(0);
}

struct storm {
  const char *kind;
  bool allocates;
  unsigned hung;
  unsigned wrong;
  unsigned children;
};
static struct storm storm;

static pid_t make_child(void) {
  pid_t child = -1;
  char *const command[] = {"hazard_forks", "leaf", NULL};
  if (strcmp(storm.kind, "spawn") == 0) {
    errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, command, environ);
  } else if (strcmp(storm.kind, "vfork") == 0) {
    child = vfork();
    if (child == 0) {
      if (storm.allocates) { /* in the parent's memory */
        void *volatile block = malloc(30000);
        free(block);
      }
      (void)execv("/proc/self/exe", command);
      _exit(4);
    }
  } else {
    if (strcmp(storm.kind, "_Fork") == 0)
      child = _Fork();
    else if (strcmp(storm.kind, "clone") == 0)
      child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    else
      child = fork();
    if (child == 0)
      live_as_child(storm.allocates);
  }
  if (child < 0)
    fail("no child");
  return child;
}

static void make_and_await(int unused) {
  (void)unused;
  const int saved = errno;
  const pid_t child = make_child();
  int status;
  if (waitpid(child, &status, 0) != child)
    fail("waitpid");
  ++storm.children;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    ++storm.hung;
  else if (status != 0)
    ++storm.wrong;
  errno = saved;
}

static void run_storm(unsigned count, const char *from) {
  if (strcmp(storm.kind, "_Fork") == 0 && _Fork == NULL) {
    printf("{\"missing\": \"_Fork needs glibc 2.34\"}\n");
    return;
  }
  (void)signal(SIGUSR1, make_and_await);
  start_engine();
  struct worker workers[2];
  uint32_t end = 0;
  const bool threads = strcmp(from, "threads") == 0;
  for (unsigned i = 0; threads && i < 2; ++i)
    start_worker(&workers[i], &end);
  for (unsigned i = 0; i < count && storm.hung < 5; ++i) {
    heap_turn(&heap);
    /* After a look the engine releases: that is the moment. */
    const uint64_t looks = stats_now().looks;
    for (unsigned tries = 0; tries < 200 && stats_now().looks == looks; ++tries)
      (void)usleep(20);
    if (i % 3 == 2)
      (void)usleep(i % 97);
    if (strcmp(from, "handler") == 0)
      (void)raise(SIGUSR1);
    else
      make_and_await(0);
  }
  end = 1;
  for (unsigned i = 0; threads && i < 2; ++i)
    (void)pthread_join(workers[i].thread, NULL);
  heap_end(&heap);
  printf("{\"children\": %u, \"hung\": %u, \"wrong\": %u, ", storm.children, storm.hung, storm.wrong);
  print_stats();
  printf("}\n");
}

/* ---- a child that lives ----------------------------------------------------------------- */

static void run_own(void) {
  alarm(30);
  start_engine();
  int child_ready[2];
  if (pipe(child_ready) != 0)
    fail("pipe");
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const struct gb_stats fresh = stats_now();
    if (fresh.state != GB_ENGINE_NONE || fresh.passes != 0)
      fail("the child has the parent's figures");
    start_engine();
    heap_until_returned(&heap, 1 << 20);
    (void)!write(child_ready[1], "", 1);
    (void)getchar(); /* until the test has seen it */
    _exit(engine_threads() == 1 ? 0 : 3);
  }
  char byte;
  if (read(child_ready[0], &byte, 1) != 1)
    fail("the child did not get that far");
  heap_until_returned(&heap, 1 << 20);
  printf("ready\n%d\n", child);
  (void)fflush(stdout);
  int status;
  if (waitpid(child, &status, 0) != child || status != 0)
    fail("the child did not end well");
  printf("{");
  print_stats();
  printf("}\n");
}

static void run_vfork_first(void) {
  const pid_t child = vfork();
  if (child == 0) {
    ask_for_much();
    _exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status != 0)
    fail("the child did not end well");
  const uint32_t state = stats_now().state;
  start_engine();
  printf("{\"state_after_child\": %u, ", state);
  print_stats();
  printf("}\n");
}

/* ---- exec --------------------------------------------------------------------------------- */

static bool page_is_mapped(void) {
  bool mapped = false;
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    mapped |= strstr(line, "/dev/shm/giveback.") != NULL;
  if (maps == NULL || fclose(maps) != 0)
    fail("/proc/self/maps");
  return mapped;
}

static void run_exec(unsigned left) {
  alarm(30);
  const uint64_t begin_ns = gb_clock_read(CLOCK_REALTIME);
  if (page_is_mapped() || stats_now().state != GB_ENGINE_NONE)
    fail("the figures of the old program are shown as the new one's");
  start_engine();
  const struct gb_stats stats = stats_now();
  if (!page_is_mapped() || stats.pid != (uint32_t)getpid() || stats.started_ns < begin_ns)
    fail("the new program's figures are not its own");
  heap_turn(&heap);
  AWAIT(stats_now().looks > stats.looks);
  if (left > 0) {
    (void)usleep(left * 7 % 300);
    char text[16];
    (void)snprintf(text, sizeof text, "%u", left - 1);
    (void)execl("/proc/self/exe", "hazard_forks", "exec", text, NULL);
    fail("exec");
  }
  printf("ready\n");
  (void)fflush(stdout);
  (void)getchar();
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "";
  if (strcmp(mode, "storm") == 0 && count == 6) {
    storm = (struct storm){.kind = arguments[2], .allocates = strcmp(arguments[5], "allocates") == 0};
    run_storm((unsigned)strtoul(arguments[3], NULL, 10), arguments[4]);
  } else if (strcmp(mode, "own") == 0) {
    run_own();
  } else if (strcmp(mode, "vfork-first") == 0) {
    run_vfork_first();
  } else if (strcmp(mode, "exec") == 0 && count == 3) {
    run_exec((unsigned)strtoul(arguments[2], NULL, 10));
  } else if (strcmp(mode, "leaf") == 0) {
    live_as_child(true);
  } else {
    return 2;
  }
  return 0;
}
