#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

size_t gb_os_page_size(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

void *gb_os_alloc(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void gb_os_free(void *memory, size_t bytes) {
  if (memory != NULL)
    (void)munmap(memory, bytes);
}

void *gb_os_grow(void *memory, size_t old_bytes, size_t new_bytes) {
  if (memory == NULL)
    return gb_os_alloc(new_bytes);
  void *moved = mremap(memory, old_bytes, new_bytes, MREMAP_MAYMOVE);
  return moved == MAP_FAILED ? NULL : moved;
}

_Static_assert(sizeof(sigset_t) <= sizeof(struct gb_signals), "a sigset_t must fit");

void gb_os_signals_block(struct gb_signals *signals) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigemptyset(&before);
  (void)pthread_sigmask(SIG_BLOCK, &all, &before);
  memcpy(signals->saved, &before, sizeof before);
}

void gb_os_signals_restore(const struct gb_signals *signals) {
  sigset_t before;
  memcpy(&before, signals->saved, sizeof before);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void gb_os_futex_wake_one(uint32_t *word) {
  int saved = errno;
  (void)syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
  errno = saved;
}

void gb_os_sleep_ns(uint64_t nanoseconds) {
  const struct timespec wait = {
      .tv_sec = (time_t)(nanoseconds / UINT64_C(1000000000)),
      .tv_nsec = (long)(nanoseconds % UINT64_C(1000000000)),
  };
  (void)nanosleep(&wait, NULL);
}
