/* Signals, and what glibc does by signals, while the engine works.
 *
 *   hazard_signals setuid COUNT     setresuid() and setresgid() to what they are, in a program with threads
 *   hazard_signals rate SECONDS     a signal each 100 us, which the program's threads do not always take
 *   hazard_signals own-signal N BY  the program waits for the very signal that the engine chose; BY: queue, timer
 *   hazard_signals drop             becomes another user for good, and then grows
 */
#include "hazard.h"

#include <grp.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

static struct heap heap;

enum { WORKERS = 2 };
static struct worker workers[WORKERS];
static uint32_t end;

static void start_workers(void) {
  for (unsigned i = 0; i < WORKERS; ++i)
    start_worker(&workers[i], &end);
}

static void end_workers(void) {
  __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < WORKERS; ++i)
    (void)pthread_join(workers[i].thread, NULL);
}

/* ---- setuid: glibc sends each thread a signal and waits for it ----------------------------- */

static void run_setuid(unsigned count) {
  start_engine();
  start_workers();
  const uint64_t looks = stats_now().looks;
  unsigned done = 0;
  for (; done < count || stats_now().looks < looks + 20; ++done) {
    if (setresuid(getuid(), geteuid(), getuid()) != 0 || setresgid(getgid(), getegid(), getgid()) != 0)
      fail("setresuid");
    if (done % 16 == 0)
      heap_turn(&heap);
  }
  end_workers();
  heap_end(&heap);
  printf("{\"calls\": %u, ", done);
  print_stats();
  printf("}\n");
}

/* ---- signals at full rate -------------------------------------------------------------------- */

static uint32_t engines_thread;
static uint64_t handled;
static uint64_t on_engine;
static uint64_t off_main;

/* Allocates: it never interrupts a call of malloc's on this thread, see run_rate. */
static void handle(int unused) {
  (void)unused;
  const int saved = errno;
  const uint32_t thread = (uint32_t)syscall(SYS_gettid);
  __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
  if (thread == engines_thread)
    __atomic_add_fetch(&on_engine, 1, __ATOMIC_RELAXED);
  else if (thread != (uint32_t)getpid())
    __atomic_add_fetch(&off_main, 1, __ATOMIC_RELAXED);
  void *volatile block = malloc(1 + handled * 977 % 50000);
  if (block != NULL)
    *(volatile char *)block = 1;
  free(block);
  errno = saved;
}

static void run_rate(double seconds) {
  start_engine();
  engines_thread = stats_now().thread;
  sigset_t alarms;
  (void)sigemptyset(&alarms);
  (void)sigaddset(&alarms, SIGALRM);
  /* Where none of the program's threads takes it, only the engine's is left. */
  (void)pthread_sigmask(SIG_BLOCK, &alarms, NULL);
  start_workers();
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  const struct itimerval often = {.it_interval = {0, 100}, .it_value = {0, 100}};
  if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &often, NULL) != 0)
    fail("setitimer");
  const uint64_t until = gb_now_ns() + (uint64_t)(seconds * 1e9);
  uint64_t figure = 0;
  while (gb_now_ns() < until) {
    heap_turn(&heap);
    (void)pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    for (unsigned i = 0; i < 200000; ++i)
      figure += figure * i + 1;
    (void)usleep(1000);
    (void)pthread_sigmask(SIG_BLOCK, &alarms, NULL);
  }
  const struct itimerval never = {0};
  (void)setitimer(ITIMER_REAL, &never, NULL);
  end_workers();
  heap_end(&heap);
  printf("{\"handled\": %" PRIu64 ", \"on_engine\": %" PRIu64 ", \"off_main\": %" PRIu64 ", \"figure\": %d, ",
         handled, on_engine, off_main, figure != 0);
  print_stats();
  printf("}\n");
}

/* ---- the signal that the engine waits for ------------------------------------------------------ */

static void run_own_signal(unsigned count, bool by_timer) {
  start_engine();
  AWAIT(stats_now().wake_signal != 0 || stats_now().passes > 10);
  const int number = stats_now().wake_signal != 0 ? (int)stats_now().wake_signal : SIGRTMAX - 1;
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, number);
  (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
  const int descriptor = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor < 0)
    fail("signalfd");
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
    fail("timer_create");
  unsigned received = 0;
  for (unsigned i = 0; i < count; ++i) {
    const union sigval value = {.sival_int = (int)i};
    const struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
    if (by_timer ? timer_settime(timer, 0, &soon, NULL) != 0 : sigqueue(getpid(), number, value) != 0)
      fail("no signal");
    heap_turn(&heap); /* the engine is woken by that much work */
    /* One at a time: signals of a timer that were not taken yet are not sent twice. */
    struct signalfd_siginfo info;
    bool taken = false;
    for (unsigned tries = 0; tries < 20 && !taken; ++tries) {
      taken = read(descriptor, &info, sizeof info) == (ssize_t)sizeof info;
      if (!taken)
        (void)usleep(1000);
    }
    received += taken && info.ssi_code == (by_timer ? SI_TIMER : SI_QUEUE);
  }
  const uint64_t passes = stats_now().passes;
  AWAIT((heap_turn(&heap), stats_now().passes > passes));
  printf("{\"sent\": %u, \"received\": %u, ", count, received);
  print_stats();
  printf("}\n");
}

/* ---- a daemon that drops its privileges ----------------------------------------------------------- */

static void run_drop(void) {
  if (setgroups(0, NULL) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
    fail("setresuid");
  ask_for_much();
  AWAIT(stats_now().state != GB_ENGINE_NONE);
  for (unsigned i = 0; i < 200 && stats_now().returned_bytes == 0; ++i) {
    heap_turn(&heap);
    (void)usleep(2000);
  }
  printf("{");
  print_stats();
  printf("}\n");
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "";
  if (strcmp(mode, "setuid") == 0 && count == 3)
    run_setuid((unsigned)strtoul(arguments[2], NULL, 10));
  else if (strcmp(mode, "rate") == 0 && count == 3)
    run_rate(strtod(arguments[2], NULL));
  else if (strcmp(mode, "own-signal") == 0 && count == 4)
    run_own_signal((unsigned)strtoul(arguments[2], NULL, 10), strcmp(arguments[3], "timer") == 0);
  else if (strcmp(mode, "drop") == 0)
    run_drop();
  else
    return 2;
  return 0;
}
