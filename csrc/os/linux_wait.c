/* Sleeping and waking: futexes, and a timer that counts the CPU time of the process.
 *
 * The timer is the kernel's, by raw system calls: glibc's timer_create allocates, and may start a
 * thread of its own. */
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/linux_calls.h"
#include "os/os.h"

#define SECOND_NS UINT64_C(1000000000)
/* What the engine needs: 4 KiB for gb_os_release's ranges, as much for those of reach.c, and /proc is read into
 * 9 KiB; with room to spare. */
#define STACK_BYTES ((size_t)49152)

static struct timespec timespec_of(uint64_t nanoseconds) {
  return (struct timespec){
      .tv_sec = (time_t)(nanoseconds / SECOND_NS),
      .tv_nsec = (long)(nanoseconds % SECOND_NS),
  };
}

/* ---- futexes --------------------------------------------------------------- */

void gb_os_futex_wake_one(uint32_t *word) {
  int saved = errno;
  (void)syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
  errno = saved;
}

void gb_os_futex_wake_all(uint32_t *word) {
  int saved = errno;
  (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  errno = saved;
}

void gb_os_futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
  int saved = errno;
  const struct timespec timeout = timespec_of(timeout_ns);
  (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
  errno = saved;
}

/* ---- the waiter -------------------------------------------------------------- */

int gb_os_free_signal(void) {
  sigset_t blocked;
  sigemptyset(&blocked);
  (void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  for (int number = SIGRTMAX - 1; number > SIGRTMIN; --number) {
    struct sigaction action;
    if (sigismember(&blocked, number) == 0 && sigaction(number, NULL, &action) == 0 &&
        action.sa_handler == SIG_DFL)
      return number;
  }
  return 0;
}

/* As the kernel lays it out: glibc's struct sigevent names the thread only in newer versions. */
struct kernel_sigevent {
  union sigval value;
  int signal;
  int notify;
  int thread;
  int unused[11];
};
#define NOTIFY_THREAD 4 /* SIGEV_THREAD_ID */

void gb_os_waiter_open(struct gb_waiter *waiter, int signal) {
  *waiter = (struct gb_waiter){0};
  struct kernel_sigevent event = {
      .value = {.sival_ptr = waiter}, /* tells it from timers of the program's with the same number */
      .signal = signal,
      .notify = NOTIFY_THREAD,
      .thread = (int)gb_os_thread_id(),
  };
  if (signal == 0 || syscall(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, &event, &waiter->timer) != 0)
    return;
  waiter->signal = signal;
  waiter->has_timer = true;
}

void gb_os_waiter_close(struct gb_waiter *waiter) {
  if (waiter->has_timer)
    (void)syscall(SYS_timer_delete, waiter->timer);
  *waiter = (struct gb_waiter){0};
}

static void set_timer(const struct gb_waiter *waiter, uint64_t cpu_ns) {
  const struct itimerspec when = {.it_value = timespec_of(cpu_ns)};
  (void)syscall(SYS_timer_settime, waiter->timer, 0, &when, NULL);
}

void gb_os_wait(struct gb_waiter *waiter, uint32_t *word, uint32_t seen, uint64_t timeout_ns,
                uint64_t cpu_ns) {
  if (!waiter->has_timer) {
    gb_os_futex_wait(word, seen, timeout_ns);
    return;
  }
  /* Whoever changes the word sends the signal afterwards, so it is pending if we read the old value. */
  if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen)
    return;
  /* One that was left over is put off: there is no system call after waking, since the process may have put
   * itself under seccomp meanwhile, and whoever calls has to look first. */
  if (cpu_ns != 0 || waiter->armed)
    set_timer(waiter, cpu_ns);
  waiter->armed = cpu_ns != 0;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, waiter->signal);
  const struct timespec timeout = timespec_of(timeout_ns);
  siginfo_t info;
  if (sigtimedwait(&set, &info, &timeout) < 0 || info.si_code == SI_TKILL ||
      (info.si_code == SI_TIMER && info.si_value.sival_ptr == waiter))
    return;
  /* Sent to the process: somebody else waits for it. Passed on, and left alone from now on. */
  (void)syscall(SYS_rt_sigqueueinfo, getpid(), info.si_signo, &info);
  gb_os_waiter_close(waiter);
}

void gb_os_wake(const struct gb_waiter *waiter, uint32_t thread, uint32_t *word) {
  gb_os_futex_wake_all(word);
  if (waiter->has_timer)
    (void)syscall(SYS_tgkill, getpid(), thread, waiter->signal);
}

/* ---- the thread -------------------------------------------------------------- */

static int add_tls(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  size_t *sum = context;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type == PT_TLS)
      *sum += object->dlpi_phdr[i].p_memsz + object->dlpi_phdr[i].p_align;
  }
  return 0;
}

/* glibc takes the static TLS of the program and its libraries out of each stack, and keeps to itself how large it
 * is: what all objects have is an upper bound. */
static size_t stack_size(void) {
  size_t tls = 0;
  (void)dl_iterate_phdr(add_tls, &tls);
  const long least = sysconf(_SC_THREAD_STACK_MIN);
  const size_t size = STACK_BYTES + (least > 0 ? (size_t)least : 0) + tls;
  const size_t page = gb_os_page_size();
  return (size + page - 1) / page * page;
}

static int start_with(size_t stack, pthread_t *created, void *(*begin)(void *context), void *context) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0)
    return ENOMEM;
  int error = pthread_attr_setstacksize(&attributes, stack);
  /* Not the calling thread's: one that is real-time, or bound to a CPU that somebody else keeps busy, must not
   * hand this down to who may hold an arena's lock. */
  const struct sched_param ordinary = {0};
  (void)pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
  (void)pthread_attr_setschedpolicy(&attributes, SCHED_OTHER);
  (void)pthread_attr_setschedparam(&attributes, &ordinary);
  cpu_set_t cpus;
  if (sched_getaffinity(getpid(), sizeof cpus, &cpus) == 0)
    (void)pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
  if (error == 0)
    error = pthread_create(created, &attributes, begin, context);
  (void)pthread_attr_destroy(&attributes);
  return error;
}

enum gb_status gb_os_thread_start(uint64_t *thread, void *(*begin)(void *context), void *context) {
  /* Born with all signals blocked: a handler must never run in it. */
  struct gb_signals signals;
  gb_os_signals_block(&signals);
  pthread_t created;
  const int error = start_with(stack_size(), &created, begin, context);
  gb_os_signals_restore(&signals);
  if (error != 0)
    return GB_NO_THREAD;
  *thread = (uint64_t)created;
  return GB_OK;
}

void gb_os_thread_name(const char *name) {
  (void)prctl(PR_SET_NAME, name);
}

void gb_os_thread_join(uint64_t thread) {
  (void)pthread_join((pthread_t)thread, NULL);
}

bool gb_os_descriptors_unshare(void) {
  const int saved = errno;
  const bool done = syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE_FLAG) == 0;
  errno = saved;
  return done;
}

uint32_t gb_os_thread_id(void) {
  return (uint32_t)syscall(SYS_gettid);
}

uint32_t gb_os_process_id(void) {
  return (uint32_t)getpid();
}

void gb_os_usage(struct gb_usage *usage) {
  struct rusage all;
  struct rusage own;
  (void)getrusage(RUSAGE_SELF, &all);
  (void)getrusage(RUSAGE_THREAD, &own);
  usage->faults = (uint64_t)(all.ru_minflt + all.ru_majflt) - (uint64_t)(own.ru_minflt + own.ru_majflt);
  usage->cpu_ns = gb_clock_read(CLOCK_PROCESS_CPUTIME_ID) - gb_thread_cpu_ns();
}
