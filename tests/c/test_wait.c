/* How the engine's thread sleeps: woken by requests, by the process using CPU time, and by nothing else. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/os.h"
#include "tap.h"

#define SECOND UINT64_C(1000000000)
#define LIMIT (20 * SECOND)

struct sleeper {
  uint64_t thread;
  struct gb_waiter waiter; /* of the thread */
  struct gb_waiter shown; /* to who wakes it */
  uint32_t id; /* set last */
  uint32_t word;
  uint32_t noticed; /* the word, when it was last looked at */
  uint32_t woken; /* times */
  uint32_t stop;
  int signal;
  uint64_t cpu_ns;
  bool signals_blocked;
};

static void *sleep_on(void *context) {
  struct sleeper *sleeper = context;
  sigset_t blocked;
  (void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  sleeper->signals_blocked = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGALRM) == 1;
  gb_os_waiter_open(&sleeper->waiter, sleeper->signal);
  sleeper->shown = sleeper->waiter;
  __atomic_store_n(&sleeper->id, gb_os_thread_id(), __ATOMIC_RELEASE);
  while (!__atomic_load_n(&sleeper->stop, __ATOMIC_ACQUIRE)) {
    const uint32_t seen = __atomic_load_n(&sleeper->word, __ATOMIC_ACQUIRE);
    __atomic_store_n(&sleeper->noticed, seen, __ATOMIC_RELEASE);
    if (__atomic_load_n(&sleeper->stop, __ATOMIC_ACQUIRE))
      break;
    gb_os_wait(&sleeper->waiter, &sleeper->word, seen, LIMIT, sleeper->cpu_ns);
    __atomic_add_fetch(&sleeper->woken, 1, __ATOMIC_ACQ_REL);
  }
  gb_os_waiter_close(&sleeper->waiter);
  return NULL;
}

static void begin(struct sleeper *sleeper, bool plain, uint64_t cpu_ns) {
  memset(sleeper, 0, sizeof *sleeper);
  sleeper->signal = plain ? 0 : gb_os_free_signal();
  sleeper->cpu_ns = cpu_ns;
  CHECK_EQUAL(gb_os_thread_start(&sleeper->thread, sleep_on, sleeper), GB_OK);
  while (__atomic_load_n(&sleeper->id, __ATOMIC_ACQUIRE) == 0)
    gb_os_sleep_ns(100000);
}

static void wake(struct sleeper *sleeper) {
  __atomic_add_fetch(&sleeper->word, 1, __ATOMIC_RELEASE);
  gb_os_wake(&sleeper->shown, sleeper->id, &sleeper->word);
}

static void end(struct sleeper *sleeper) {
  __atomic_store_n(&sleeper->stop, 1, __ATOMIC_RELEASE);
  wake(sleeper);
  gb_os_thread_join(sleeper->thread);
}

/* Every request is noticed, however it falls together with the sleep: none is lost for LIMIT. */
static void no_request_is_lost(void) {
  for (unsigned plain = 0; plain < 2; ++plain) {
    struct sleeper sleeper;
    begin(&sleeper, plain != 0, 0);
    const uint64_t start = gb_now_ns();
    for (unsigned i = 0; i < 2000; ++i) {
      wake(&sleeper);
      while (__atomic_load_n(&sleeper.noticed, __ATOMIC_ACQUIRE) != sleeper.word &&
             gb_now_ns() - start < LIMIT)
        continue;
    }
    CHECK(gb_now_ns() - start < LIMIT);
    CHECK(sleeper.signals_blocked);
    end(&sleeper);
  }
}

static void burn(uint64_t cpu_ns) {
  const uint64_t until = gb_thread_cpu_ns() + cpu_ns;
  while (gb_thread_cpu_ns() < until)
    continue;
}

static void cpu_time_wakes(void) {
  struct sleeper sleeper;
  begin(&sleeper, false, 2000000);
  if (!sleeper.shown.has_timer) {
    printf("# no timer on CPU time here\n");
    end(&sleeper);
    return;
  }
  const uint64_t start = gb_now_ns();
  while (__atomic_load_n(&sleeper.woken, __ATOMIC_ACQUIRE) < 3 && gb_now_ns() - start < LIMIT)
    burn(1000000);
  CHECK(__atomic_load_n(&sleeper.woken, __ATOMIC_ACQUIRE) >= 3);
  end(&sleeper);
}

static void an_idle_process_is_not_woken(void) {
  struct sleeper sleeper;
  begin(&sleeper, false, 50000000);
  for (unsigned i = 0; i < 20; ++i)
    gb_os_sleep_ns(10000000); /* 0.2 s in which next to no CPU time is used */
  CHECK(__atomic_load_n(&sleeper.woken, __ATOMIC_ACQUIRE) <= 1);
  end(&sleeper);
}

static void the_signal_is_not_anybody_elses(void) {
  struct sleeper sleeper;
  (void)signal(SIGRTMAX - 1, SIG_IGN); /* in use: another one is taken */
  begin(&sleeper, false, 0);
  CHECK(!sleeper.shown.has_timer || sleeper.shown.signal != SIGRTMAX - 1);
  end(&sleeper);
  (void)signal(SIGRTMAX - 1, SIG_DFL);
}

/* ---- tables and pages a fork child does not get ------------------------------------------------ */

static bool is_mapped(const void *memory) {
  unsigned char present;
  return mincore((void *)memory, 1, &present) == 0;
}

static void a_child_has_neither_tables_nor_stats(void) {
  const size_t page = gb_os_page_size();
  char name[GB_SHARED_NAME];
  void *table = gb_os_alloc(page);
  void *shared = gb_os_shared_alloc(page, name);
  CHECK(table != NULL);
  if (shared == NULL)
    printf("# no /dev/shm here\n");
  const pid_t child = fork();
  if (child == 0)
    _exit((is_mapped(table) ? 1 : 0) + (shared != NULL && is_mapped(shared) ? 2 : 0));
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQUAL(status, 0);
  gb_os_shared_unlink(name);
  CHECK(shared == NULL || access(name, F_OK) != 0);
  if (shared != NULL)
    (void)munmap(shared, page);
  gb_os_free(table, page);
}

int main(void) {
  RUN(no_request_is_lost);
  RUN(cpu_time_wakes);
  RUN(an_idle_process_is_not_woken);
  RUN(the_signal_is_not_anybody_elses);
  RUN(a_child_has_neither_tables_nor_stats);
  FINISH();
}
