/* Pages that other processes of the same user can map, by a name in /dev/shm.
 *
 * The name tells the pid namespace and the process, so that the names of processes that were
 * killed can be removed by the next one that starts, and of no other. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/os.h"

#define FOLDER "/dev/shm"
#define PREFIX "giveback."
#define NAME_TRIES 8u

/* Decimal or hexadecimal digits, without stdio. */
static char *append_number(char *at, uint64_t value, unsigned base) {
  char digits[20];
  size_t count = 0;
  do {
    digits[count++] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  while (count > 0)
    *at++ = digits[--count];
  return at;
}

static char *append_text(char *at, const char *text) {
  while (*text != '\0')
    *at++ = *text++;
  return at;
}

static uint64_t pid_namespace(void) {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

/* As the kernel fills it in (getdents64); readdir would allocate. */
struct directory_entry {
  uint64_t inode;
  int64_t offset;
  unsigned short bytes;
  unsigned char type;
  char name[];
};

/* True if the name is of this namespace and its process is gone, or was what this one was before exec. */
static bool is_leftover(const char *name, uint64_t namespace_number) {
  if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
    return false;
  char *rest;
  const uint64_t of = strtoull(name + sizeof PREFIX - 1, &rest, 10);
  if (of != namespace_number || *rest != '.')
    return false;
  const long process = strtol(rest + 1, &rest, 10);
  if (process <= 0 || *rest != '.')
    return false;
  return process == (long)getpid() || (kill((pid_t)process, 0) != 0 && errno == ESRCH);
}

static void remove_leftovers(uint64_t namespace_number) {
  const int folder = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return;
  _Alignas(struct directory_entry) char buffer[1024]; /* a thread of the program may have little stack */
  for (long got; (got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < got;) {
      const struct directory_entry *entry = (const void *)(buffer + at);
      at += entry->bytes;
      struct stat status;
      if (is_leftover(entry->name, namespace_number) &&
          fstatat(folder, entry->name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
          status.st_uid == geteuid())
        (void)unlinkat(folder, entry->name, 0);
    }
  }
  (void)close(folder);
}

/* A file that may not be so large ends the process with SIGXFSZ. */
static bool may_write(size_t bytes) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

/* Every page is there: a full /dev/shm must show here, not as SIGBUS later. */
static bool fill(int fd, size_t bytes) {
  static const char zeros[4096];
  for (size_t done = 0; done < bytes;) {
    const size_t want = bytes - done < sizeof zeros ? bytes - done : sizeof zeros;
    const ssize_t wrote = write(fd, zeros, want);
    if (wrote <= 0)
      return false;
    done += (size_t)wrote;
  }
  return true;
}

/* NULL if it cannot be; *taken says that the name was. */
static void *map_new_file(const char *name, size_t bytes, bool *taken) {
  errno = 0;
  const int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  *taken = fd < 0 && errno == EEXIST;
  if (fd < 0)
    return NULL;
  void *memory = MAP_FAILED;
  if (fill(fd, bytes))
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  (void)close(fd);
  if (memory == MAP_FAILED) {
    (void)unlink(name);
    return NULL;
  }
  (void)madvise(memory, bytes, MADV_DONTFORK);
  return memory;
}

void *gb_os_shared_alloc(size_t bytes, char name[GB_SHARED_NAME]) {
  const int saved = errno;
  const uint64_t namespace_number = pid_namespace();
  remove_leftovers(namespace_number);
  void *memory = NULL;
  for (unsigned i = 0; i < NAME_TRIES && memory == NULL && may_write(bytes); ++i) {
    char *at = append_text(name, FOLDER "/" PREFIX);
    at = append_number(at, namespace_number, 10);
    *at++ = '.';
    at = append_number(at, gb_os_process_id(), 10);
    *at++ = '.';
    at = append_number(at, (gb_now_ns() * UINT64_C(11400714819323198485)) >> 32, 16);
    *at = '\0';
    bool taken = false;
    memory = map_new_file(name, bytes, &taken);
    if (!taken)
      break;
  }
  if (memory == NULL)
    name[0] = '\0';
  errno = saved;
  return memory;
}

void gb_os_shared_unlink(const char name[GB_SHARED_NAME]) {
  const int saved = errno;
  if (name[0] != '\0')
    (void)unlink(name);
  errno = saved;
}
