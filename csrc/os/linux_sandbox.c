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

/* The file is about 1.5 KB, and what is wanted of it comes before the long lists at its end; a thread of the
 * program may have little stack. */
#define STATUS_BYTES 2048u

static bool read_status(int fd, char *text, size_t bytes) {
  const ssize_t got = pread(fd, text, bytes - 1, 0);
  if (got <= 0)
    return false;
  text[got] = '\0';
  return strncmp(text, "Name:\t", 6) == 0 && strstr(text, "\nPid:") != NULL;
}

static int field_of(const char *text, const char *name) {
  const char *at = strstr(text, name);
  return at == NULL ? -1 : (int)strtol(at + strlen(name), NULL, 10);
}

static bool open_status(struct gb_sandbox *sandbox, char *text, size_t bytes) {
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  sandbox->fd = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
  if (sandbox->fd < 0) /* a low RLIMIT_NOFILE */
    sandbox->fd = fd;
  else
    (void)close(fd);
  sandbox->has_file = read_status(sandbox->fd, text, bytes);
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
  if (sandbox->mode > 0)
    sandbox->no_new_privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0;
  char text[STATUS_BYTES];
  if (sandbox->mode > 0 && open_status(sandbox, text, sizeof text))
    sandbox->filters = field_of(text, "\nSeccomp_filters:");
  errno = saved;
}

void gb_os_sandbox_end(struct gb_sandbox *sandbox) {
  const int saved = errno;
  char text[STATUS_BYTES];
  /* Not a number that is somebody else's by now. */
  if (sandbox->has_file && read_status(sandbox->fd, text, sizeof text))
    (void)close(sandbox->fd);
  *sandbox = (struct gb_sandbox){0};
  errno = saved;
}

enum gb_status gb_os_sandbox_check(struct gb_sandbox *sandbox) {
  const int saved = errno;
  char text[STATUS_BYTES];
  bool same = sandbox->known;
  if (same && (!sandbox->has_file || !read_status(sandbox->fd, text, sizeof text))) {
    sandbox->has_file = false;
    same = nothing_added(sandbox) && open_status(sandbox, text, sizeof text);
  }
  if (same) {
    const int mode = field_of(text, "\nSeccomp:");
    same = sandbox->mode <= 0
               ? mode <= 0
               : mode == sandbox->mode && field_of(text, "\nSeccomp_filters:") == sandbox->filters;
  }
  errno = saved;
  return same ? GB_OK : GB_SANDBOX;
}

enum gb_status gb_os_userfaultfd(bool *found) {
  *found = false;
  char *text;
  size_t bytes;
  const enum gb_status status = gb_os_read_file("/proc/self/smaps", &text, &bytes);
  if (status != GB_OK)
    return status;
  for (const char *line = strstr(text, "VmFlags:"); line != NULL && !*found;
       line = strstr(line + 1, "VmFlags:")) {
    const char *end = strchr(line, '\n');
    const size_t length = end == NULL ? strlen(line) : (size_t)(end - line);
    *found = memmem(line, length, " um", 3) != NULL || memmem(line, length, " uw", 3) != NULL;
  }
  gb_os_free(text, bytes);
  return GB_OK;
}
