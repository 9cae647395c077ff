#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

size_t gb_os_page_size(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

void *gb_os_alloc(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return NULL;
  (void)madvise(memory, bytes, MADV_DONTFORK);
  return memory;
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

/* Files of /proc tell no size; most fit in this. */
#define FIRST_FILE_BYTES ((size_t)16384)

enum gb_status gb_os_read_file(const char *path, char **content, size_t *bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return GB_NO_PROC;
  size_t capacity = FIRST_FILE_BYTES;
  size_t filled = 0;
  char *text = gb_os_alloc(capacity);
  enum gb_status status = text == NULL ? GB_NO_MEMORY : GB_OK;
  while (status == GB_OK) {
    if (filled + 1 == capacity) {
      char *grown = gb_os_grow(text, capacity, 2 * capacity);
      if (grown == NULL) {
        status = GB_NO_MEMORY;
        break;
      }
      text = grown;
      capacity *= 2;
    }
    ssize_t got = read(fd, text + filled, capacity - 1 - filled);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      status = GB_NO_PROC;
    if (got <= 0)
      break;
    filled += (size_t)got;
  }
  (void)close(fd);
  if (status != GB_OK) {
    gb_os_free(text, capacity);
    return status;
  }
  text[filled] = '\0';
  *content = gb_os_grow(text, capacity, filled + 1); /* gives back the rest, in place */
  if (*content == NULL) {
    gb_os_free(text, capacity);
    return GB_NO_MEMORY;
  }
  *bytes = filled + 1;
  return GB_OK;
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

int gb_os_cancellation_off(void) {
  int before = PTHREAD_CANCEL_ENABLE;
  (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}

void gb_os_cancellation_restore(int before) {
  (void)pthread_setcancelstate(before, NULL);
}

void gb_os_sleep_ns(uint64_t nanoseconds) {
  const struct timespec wait = {
      .tv_sec = (time_t)(nanoseconds / UINT64_C(1000000000)),
      .tv_nsec = (long)(nanoseconds % UINT64_C(1000000000)),
  };
  (void)nanosleep(&wait, NULL);
}
