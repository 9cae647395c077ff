/* What could make a system call of ours fatal or endless: seccomp, userfaultfd.
 *
 * seccomp. Filters that are there before us let the dynamic linker do its work, so reading files, madvise
 * and futex are allowed, and we use nothing else (see gb_os_probe_features). A filter that is set later, for all
 * threads, may end the process at any call that it does not expect, also at openat. So at the beginning
 * prctl(PR_GET_SECCOMP) is asked, and later /proc/self/status is read again through a descriptor that
 * was opened when prctl still said that there is no filter. Programs close descriptors that they do not know, or
 * get the same number for another file: what is read must look like that file; if it does not,
 * prctl is asked again before it is opened anew.
 *
 * What is not covered (docs/safety.md): a filter that ends the process at prctl or pread; one that is set for all
 * threads in the very middle of a pass; and under a filter that was there before, one that is added by
 * a process with CAP_SYS_ADMIN that also closed our descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "os/os.h"

/* High, so that programs that expect low numbers find those, and within the first 64, for which every
 * process has a table. */
#define LOWEST_FD 50

/* A thread of the program may have little stack, and a line of the file may be long (Groups): it is read in
 * pieces, of which each begins with the end of the one before. */
#define PIECE_BYTES 1024u
#define CARRIED_BYTES 64u

struct status {
  int mode; /* field Seccomp; -1: not there */
  int filters; /* field Seccomp_filters; -1: not there */
};

static void read_field(const char *text, const char *name, int *value) {
  const char *at = strstr(text, name);
  /* The whole number must be there, or the next piece has it. */
  if (at != NULL && strchr(at + 1, '\n') != NULL)
    *value = (int)strtol(at + strlen(name), NULL, 10);
}

/* False if it is not that file. */
static bool read_status(int fd, struct status *status) {
  *status = (struct status){.mode = -1, .filters = -1};
  char text[CARRIED_BYTES + PIECE_BYTES + 1];
  size_t carried = 0;
  for (off_t offset = 0;;) {
    const ssize_t got = pread(fd, text + carried, PIECE_BYTES, offset);
    if (got <= 0)
      return got == 0 && offset > 0;
    const size_t filled = carried + (size_t)got;
    text[filled] = '\0';
    if (offset == 0 && (strncmp(text, "Name:\t", 6) != 0 || strstr(text, "\nPid:\t") == NULL))
      return false;
    read_field(text, "\nSeccomp:\t", &status->mode);
    read_field(text, "\nSeccomp_filters:\t", &status->filters);
    carried = filled < CARRIED_BYTES ? filled : CARRIED_BYTES;
    memmove(text, text + filled - carried, carried);
    offset += got;
  }
}

static bool open_status(struct gb_sandbox *sandbox, struct status *status) {
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  sandbox->fd = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
  if (sandbox->fd < 0) /* a low RLIMIT_NOFILE */
    sandbox->fd = fd;
  else
    (void)close(fd);
  sandbox->has_file = read_status(sandbox->fd, status);
  if (!sandbox->has_file)
    (void)close(sandbox->fd);
  return sandbox->has_file;
}

/* Without the file. Under a filter, another one can be added only by who gave up new privileges, or has CAP_SYS_ADMIN. */
static bool nothing_added(const struct gb_sandbox *sandbox) {
  if (sandbox->mode <= 0)
    return prctl(PR_GET_SECCOMP) <= 0;
  return !sandbox->no_new_privileges && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
}

void gb_os_sandbox_begin(struct gb_sandbox *sandbox) {
  const int saved = errno;
  *sandbox = (struct gb_sandbox){.known = true, .mode = prctl(PR_GET_SECCOMP)};
  struct status status;
  if (sandbox->mode > 0) {
    sandbox->no_new_privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0;
    sandbox->filters = open_status(sandbox, &status) ? status.filters : -1;
  }
  errno = saved;
}

void gb_os_sandbox_forget_file(struct gb_sandbox *sandbox) {
  sandbox->has_file = false;
  sandbox->apart = true;
}

void gb_os_sandbox_begin_again(struct gb_sandbox *sandbox) {
  const struct gb_sandbox before = *sandbox;
  gb_os_sandbox_forget(sandbox);
  if (before.known && (before.mode < 0 || nothing_added(&before)))
    gb_os_sandbox_begin(sandbox);
}

enum gb_status gb_os_sandbox_glance(struct gb_sandbox *sandbox) {
  if (sandbox->known && (!sandbox->has_file || sandbox->apart) && sandbox->mode <= 0)
    return sandbox->mode < 0 || nothing_added(sandbox) ? GB_OK : GB_SANDBOX;
  return gb_os_sandbox_check(sandbox);
}

void gb_os_sandbox_forget(struct gb_sandbox *sandbox) {
  const int saved = errno;
  struct status status;
  /* Not a number that is somebody else's by now. */
  if (sandbox->has_file && !sandbox->apart && read_status(sandbox->fd, &status))
    (void)close(sandbox->fd);
  *sandbox = (struct gb_sandbox){0};
  errno = saved;
}

enum gb_status gb_os_sandbox_check(struct gb_sandbox *sandbox) {
  if (!sandbox->known)
    return GB_SANDBOX;
  if (sandbox->mode < 0) /* a kernel without seccomp */
    return GB_OK;
  const int saved = errno;
  struct status status;
  bool same = sandbox->has_file && read_status(sandbox->fd, &status);
  if (!same) {
    sandbox->has_file = false;
    same = nothing_added(sandbox);
    if (same && !open_status(sandbox, &status)) {
      errno = saved;
      return GB_NO_PROC;
    }
  }
  same = same && status.mode == sandbox->mode && (status.mode == 0 || status.filters == sandbox->filters);
  errno = saved;
  return same ? GB_OK : GB_SANDBOX;
}

/* ---- userfaultfd ------------------------------------------------------------------ */

enum gb_status gb_os_userfaultfd(bool *found) {
  *found = false;
  const int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return GB_NO_PROC;
  char text[4096 + 1];
  size_t carried = 0;
  ssize_t got;
  while (!*found &&
         ((got = read(fd, text + carried, sizeof text - 1 - carried)) > 0 || (got < 0 && errno == EINTR))) {
    if (got < 0)
      continue;
    const size_t filled = carried + (size_t)got;
    text[filled] = '\0';
    const char *rest = text;
    for (const char *end; (end = strchr(rest, '\n')) != NULL; rest = end + 1) {
      const size_t length = (size_t)(end - rest);
      if (strncmp(rest, "VmFlags:", sizeof "VmFlags:" - 1) == 0 &&
          (memmem(rest, length, " um", 3) != NULL || memmem(rest, length, " uw", 3) != NULL))
        *found = true;
    }
    carried = filled - (size_t)(rest - text);
    if (carried == sizeof text - 1) /* a path longer than that: no line of ours */
      carried = 0;
    memmove(text, rest, carried);
  }
  (void)close(fd);
  return GB_OK;
}
