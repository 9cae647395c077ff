/* Giving pages back, many ranges a system call where the kernel can. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/linux_calls.h"
#include "os/os.h"

/* So often in a row has process_madvise to refuse what madvise takes before it is given up. */
#define FAILURES_UNTIL_PLAIN 3u

void gb_os_release_open(struct gb_release *release, bool old_kernel) {
  *release = (struct gb_release){0};
  if (old_kernel)
    return;
  struct gb_kernel_features features;
  gb_os_probe_features(&features);
  release->many = features.pidfd_self == GB_FEATURE_YES;
}

static enum gb_status status_of_errno(int error) {
  switch (error) {
  case EAGAIN:
  case EINTR:
    return GB_BUSY;
  case EINVAL: /* the addresses are aligned: what is left is locked, or not ordinary memory */
    return GB_LOCKED;
  case ENOMEM:
    return GB_STALE;
  default:
    return GB_RELEASE_REFUSED;
  }
}

static enum gb_status release_one(uintptr_t start, uintptr_t end, struct gb_released *released) {
  ++released->calls;
  if (madvise((void *)start, end - start, MADV_DONTNEED) == 0) {
    released->bytes += end - start;
    return GB_OK;
  }
  ++released->failures;
  released->error = errno;
  return status_of_errno(errno);
}

/* Goes on from `start`, in the first of the spans. */
static long release_many(uintptr_t start, const struct gb_span *spans, size_t count) {
  struct iovec ranges[GB_RELEASE_SPANS];
  for (size_t i = 0; i < count; ++i) {
    const uintptr_t begin = i == 0 ? start : spans[i].start;
    ranges[i] = (struct iovec){.iov_base = (void *)begin, .iov_len = spans[i].end - begin};
  }
  return syscall(SYS_process_madvise, PIDFD_SELF_PROCESS, ranges, count, MADV_DONTNEED, 0);
}

static enum gb_status release_all(struct gb_release *release, const struct gb_span *spans, size_t count,
                                  struct gb_released *released) {
  size_t at = 0;
  uintptr_t start = count == 0 ? 0 : spans[0].start;
  while (at < count) {
    enum gb_status status;
    long done = -1;
    if (release->many) {
      ++released->calls;
      done = release_many(start, spans + at, count - at);
      if (done < 0) {
        ++released->failures;
        released->error = errno;
        if (errno == EAGAIN || errno == EINTR)
          return GB_BUSY;
      }
    }
    if (done <= 0) {
      /* The first range alone, the other way: then it is known whose fault it was. */
      status = release_one(start, spans[at].end, released);
      if (status != GB_OK)
        return status;
      if (release->many && ++release->failures >= FAILURES_UNTIL_PLAIN)
        release->many = false;
      done = (long)(spans[at].end - start);
    } else {
      release->failures = 0;
      released->bytes += (uint64_t)done;
    }
    /* The kernel may have done a part of the vector, even of one range. */
    for (uint64_t left = (uint64_t)done; at < count && left > 0;) {
      const uint64_t here = spans[at].end - start;
      if (left < here) {
        start += left;
        break;
      }
      left -= here;
      if (++at < count)
        start = spans[at].start;
    }
  }
  return GB_OK;
}

enum gb_status gb_os_release(struct gb_release *release, const struct gb_span *spans, size_t count,
                             struct gb_released *released) {
  const int saved = errno;
  *released = (struct gb_released){0};
  const enum gb_status status = release_all(release, spans, count, released);
  errno = saved;
  return status;
}
