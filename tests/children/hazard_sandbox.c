/* Surroundings in which a system call of ours could end the process, or harm somebody's memory.
 *
 *   hazard_sandbox before ACTION     sets a filter and executes itself under it: errno or kill
 *   hazard_sandbox after             sets a filter that kills, for all threads, once the engine works and rests
 *   hazard_sandbox stop              the same, and stops the engine before that has noticed
 *   hazard_sandbox self              sets that filter before the engine has begun
 *   hazard_sandbox retry             the same after a start that failed for want of threads
 *   hazard_sandbox under ACTION      what `before` executes
 *   hazard_sandbox library FIRST     loads the library first or, with FIRST "", LATER once the engine works
 *   hazard_sandbox userfaultfd       registers memory before the start
 */
#include "hazard.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static struct heap heap;

/* ---- filters ------------------------------------------------------------------------------- */

enum { MOST_CALLS = 24 };

/* `action` at the calls named, everything else is allowed. */
static void set_filter(uint32_t action, uint32_t flags, const int *calls, unsigned count) {
  struct sock_filter code[2 * MOST_CALLS + 2];
  unsigned length = 0;
  code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (unsigned i = 0; i < count; ++i) {
    code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
  }
  code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {.len = (unsigned short)length, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) != 0) {
    printf("{\"missing\": \"seccomp: %s\"}\n", strerror(errno));
    exit(0);
  }
}

/* What programs under a service manager's or a container's filter may not do, or seldom. */
static const int unusual[] = {
    SYS_process_madvise, SYS_ioctl,       SYS_timer_create, SYS_timer_settime,   SYS_timer_delete,
    SYS_userfaultfd,     SYS_close_range, SYS_unshare,      SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo};

static void run_before(const char *action) {
  const uint32_t answer =
      strcmp(action, "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA);
  set_filter(answer, 0, unusual, sizeof unusual / sizeof unusual[0]);
  (void)execl("/proc/self/exe", "hazard_sandbox", "under", action, NULL);
  fail("exec");
}

static void run_under(void) {
  start_engine();
  heap_until_returned(&heap, 8 << 20);
  heap_end(&heap);
  printf("{");
  print_stats();
  printf("}\n");
}

/* What a program that has opened all that it needs forbids itself. */
static const int opened_everything[] = {
    SYS_openat,
    SYS_process_madvise,
    SYS_ioctl,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_delete,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_unlinkat,
    SYS_mincore,
    SYS_rt_sigtimedwait,
    SYS_close_range,
    SYS_unshare,
    SYS_kill,
    SYS_tgkill,
#ifdef SYS_open
    SYS_open,
    SYS_unlink,
    SYS_stat,
    SYS_readlink,
#endif
};

static void shut_in(void) {
  set_filter(SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC, opened_everything,
             sizeof opened_everything / sizeof opened_everything[0]);
}

/* A pass under way would be killed, which docs/safety.md says. */
static void await_rest(void) {
  uint64_t wakeups;
  do {
    wakeups = stats_now().wakeups;
    (void)usleep(200000);
  } while (stats_now().wakeups != wakeups);
}

/* It allocates enough for an engine of its own. */
static void fork_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    ask_for_much();
    heap_end(&heap);
    exit(0);
  }
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    fail("a forked child did not end well");
}

static void go_on_shut_in(void) {
  const uint64_t returned = stats_now().returned_bytes;
  for (unsigned i = 0; i < 100; ++i) {
    heap_turn(&heap);
    (void)usleep(2000);
  }
  fork_child();
  struct gb_release_answer released;
  const enum gb_status status = engine_in(RTLD_DEFAULT)->release(UINT64_C(10000000000), &released);
  heap_end(&heap);
  printf("{\"more\": %" PRIu64 ", \"released\": %u, ", stats_now().returned_bytes - returned, status);
  print_stats();
  printf("}\n");
  if (engine_in(RTLD_DEFAULT)->stop() != GB_OK)
    fail("stop");
}

static void run_after(void) {
  start_engine();
  heap_until_returned(&heap, 1 << 20);
  await_rest();
  shut_in();
  AWAIT((heap_turn(&heap), stats_now().state == GB_ENGINE_REFUSES));
  go_on_shut_in();
}

/* The engine, which rests, wakes up by itself once the process has used CPU time. */
static void *work_when_told(void *told) {
  while (!__atomic_load_n((bool *)told, __ATOMIC_ACQUIRE))
    (void)usleep(1000);
  while (__atomic_load_n((bool *)told, __ATOMIC_RELAXED))
    ;
  return NULL;
}

static void run_stop(void) {
  start_engine();
  heap_until_returned(&heap, 1 << 20);
  bool told = false;
  pthread_t worker;
  if (pthread_create(&worker, NULL, work_when_told, &told) != 0)
    fail("no thread");
  await_rest();
  shut_in();
  __atomic_store_n(&told, true, __ATOMIC_RELEASE);
  if (engine_in(RTLD_DEFAULT)->stop() != GB_OK)
    fail("stop");
  __atomic_store_n(&told, false, __ATOMIC_RELAXED);
  (void)pthread_join(worker, NULL);
  heap_end(&heap);
  printf("{");
  print_stats();
  printf("}\n");
}

static void run_self(bool tried_before) {
  if (tried_before) {
    struct rlimit as_it_was;
    if (getrlimit(RLIMIT_AS, &as_it_was) != 0)
      fail("getrlimit");
    struct rlimit low = as_it_was;
    free(malloc(100000)); /* what ask_without_mapping will use */
    low.rlim_cur = address_space() + 16384; /* enough for the page of figures, not for a thread */
    if (setrlimit(RLIMIT_AS, &low) != 0)
      fail("setrlimit");
    ask_without_mapping();
    if (setrlimit(RLIMIT_AS, &as_it_was) != 0 || stats_now().reason != GB_NO_THREAD)
      fail("the first start did not fail for want of a thread");
  }
  shut_in();
  ask_for_much();
  go_on_shut_in();
}

/* ---- RDMA ------------------------------------------------------------------------------------ */

static void load(const char *path) {
  if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL)
    fail(dlerror());
}

static void run_library(const char *first, const char *later) {
  if (*first != '\0')
    load(first);
  ask_for_much();
  AWAIT(stats_now().passes > 0 || stats_now().state == GB_ENGINE_REFUSES);
  if (*later != '\0') {
    heap_until_returned(&heap, 1 << 20);
    load(later);
    AWAIT((heap_turn(&heap), stats_now().state == GB_ENGINE_REFUSES));
  }
  go_on_shut_in();
}

/* ---- userfaultfd -------------------------------------------------------------------------------- */

static void run_userfaultfd(void) {
  enum { BYTES = 1 << 20 };
  const int descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE};
  if (descriptor < 0 || ioctl(descriptor, UFFDIO_API, &api) != 0) {
    printf("{\"missing\": \"userfaultfd: %s\"}\n", strerror(errno));
    return;
  }
  void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register range = {.range = {.start = (uintptr_t)memory, .len = BYTES},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (memory == MAP_FAILED || ioctl(descriptor, UFFDIO_REGISTER, &range) != 0)
    fail("UFFDIO_REGISTER");
  ask_for_much();
  AWAIT(stats_now().passes > 0 || stats_now().state == GB_ENGINE_REFUSES);
  go_on_shut_in();
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "";
  if (strcmp(mode, "before") == 0 && count == 3)
    run_before(arguments[2]);
  else if (strcmp(mode, "under") == 0 && count == 3)
    run_under();
  else if (strcmp(mode, "after") == 0)
    run_after();
  else if (strcmp(mode, "stop") == 0)
    run_stop();
  else if (strcmp(mode, "self") == 0)
    run_self(false);
  else if (strcmp(mode, "retry") == 0)
    run_self(true);
  else if (strcmp(mode, "library") == 0 && count == 4)
    run_library(arguments[2], arguments[3]);
  else if (strcmp(mode, "userfaultfd") == 0)
    run_userfaultfd();
  else
    return 2;
  return 0;
}
