#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/linux_calls.h"
#include "os/os.h"

static int seccomp_mode(void) {
  struct gb_sandbox sandbox;
  gb_os_sandbox_begin(&sandbox);
  const int mode = sandbox.mode;
  gb_os_sandbox_forget(&sandbox);
  return mode;
}

static bool releases(int pidfd, void *page, size_t bytes) {
  memset(page, 1, bytes);
  struct iovec range = {.iov_base = page, .iov_len = bytes};
  long done = syscall(SYS_process_madvise, pidfd, &range, 1, MADV_DONTNEED, 0);
  return done == (long)bytes && *(volatile char *)page == 0;
}

static enum gb_feature residency_works(enum gb_residency_source source) {
  struct gb_residency residency;
  if (gb_os_residency_open(&residency, source) != GB_OK)
    return GB_FEATURE_NO;
  bool works = residency.source == source;
  gb_os_residency_close(&residency);
  return works ? GB_FEATURE_YES : GB_FEATURE_NO;
}

void gb_os_probe_features(struct gb_kernel_features *features) {
  const int saved = errno;
  *features = (struct gb_kernel_features){.seccomp = seccomp_mode()};
  features->pagemap = residency_works(GB_RESIDENCY_PAGEMAP);
  features->mincore = residency_works(GB_RESIDENCY_MINCORE);

  if (features->seccomp > 0) {
    features->process_madvise = GB_FEATURE_UNTRIED;
    features->pidfd_self = GB_FEATURE_UNTRIED;
    features->pagemap_scan = GB_FEATURE_UNTRIED;
    features->madv_free = GB_FEATURE_UNTRIED;
    errno = saved;
    return;
  }

  features->pagemap_scan = residency_works(GB_RESIDENCY_SCAN);
  const size_t page = gb_os_page_size();
  void *probe = gb_os_alloc(page);
  if (probe != NULL) {
    features->pidfd_self = releases(PIDFD_SELF_PROCESS, probe, page) ? GB_FEATURE_YES : GB_FEATURE_NO;
    features->process_madvise = features->pidfd_self;
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (pidfd >= 0) {
      if (releases(pidfd, probe, page))
        features->process_madvise = GB_FEATURE_YES;
      (void)close(pidfd);
    }
    features->madv_free = madvise(probe, page, MADV_FREE) == 0 ? GB_FEATURE_YES : GB_FEATURE_NO;
    gb_os_free(probe, page);
  }
  errno = saved;
}
