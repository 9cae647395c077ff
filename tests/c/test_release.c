/* Giving pages back when the kernel refuses: every fault by which madvise and process_madvise can
 * end, in every place of a vector. `madvise` and `syscall` are ours here, in front of libc's. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/linux_calls.h"
#include "os/os.h"
#include "tap.h"

static const size_t PAGE = 4096;

/* What the next calls shall do. */
static struct {
  int many_error; /* errno of process_madvise; 0: it works */
  unsigned many_ok; /* calls that work before that */
  uint64_t many_bytes; /* at most so many bytes a call; 0: all */
  int one_error; /* errno of madvise(MADV_DONTNEED) */
  uintptr_t one_at; /* only for a range that begins here; 0: for each */
  unsigned many_calls;
  unsigned one_calls;
} faults;

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's names are its own
int madvise(void *start, size_t bytes, int advice) {
  static int (*next)(void *, size_t, int);
  if (next == NULL) {
    void *found = dlsym(RTLD_NEXT, "madvise");
    memcpy(&next, &found, sizeof found);
  }
  if (advice == MADV_DONTNEED) {
    ++faults.one_calls;
    if (faults.one_error != 0 && (faults.one_at == 0 || faults.one_at == (uintptr_t)start)) {
      errno = faults.one_error;
      return -1;
    }
  }
  return next(start, bytes, advice);
}

/* Of process_madvise only; done by madvise, so that it also works on kernels that do not have it. */
static long fake_process_madvise(const struct iovec *ranges, size_t count) {
  ++faults.many_calls;
  if (faults.many_error != 0 && faults.many_ok == 0) {
    errno = faults.many_error;
    return -1;
  }
  if (faults.many_ok > 0)
    --faults.many_ok;
  static int (*next)(void *, size_t, int);
  if (next == NULL) {
    void *found = dlsym(RTLD_NEXT, "madvise");
    memcpy(&next, &found, sizeof found);
  }
  uint64_t left = faults.many_bytes == 0 ? UINT64_MAX : faults.many_bytes;
  long done = 0;
  for (size_t i = 0; i < count && left > 0; ++i) {
    const size_t here = ranges[i].iov_len < left ? ranges[i].iov_len : left;
    CHECK_EQUAL(next(ranges[i].iov_base, here, MADV_DONTNEED), 0);
    done += (long)here;
    left -= here;
  }
  return done;
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's names are its own
long syscall(long number, ...) {
  static long (*next)(long, ...);
  if (next == NULL) {
    void *found = dlsym(RTLD_NEXT, "syscall");
    memcpy(&next, &found, sizeof found);
  }
  va_list arguments;
  va_start(arguments, number);
  long word[6];
  for (unsigned i = 0; i < 6; ++i)
    word[i] = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_process_madvise)
    return fake_process_madvise((const struct iovec *)word[1], (size_t)word[2]);
  return next(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}

/* ---- memory with every second run of pages to be released ------------------------------- */

enum { RUNS = 12, RUN_PAGES = 3 };

struct memory {
  char *start;
  size_t bytes;
  struct gb_span spans[RUNS];
};

static void memory_init(struct memory *memory) {
  memory->bytes = (size_t)RUNS * 2 * RUN_PAGES * PAGE;
  memory->start = gb_os_alloc(memory->bytes);
  memset(memory->start, 1, memory->bytes);
  for (size_t i = 0; i < RUNS; ++i) {
    memory->spans[i].start = (uintptr_t)memory->start + (2 * i + 1) * RUN_PAGES * PAGE;
    memory->spans[i].end = memory->spans[i].start + RUN_PAGES * PAGE;
  }
}

/* Exactly the first `bytes` of the spans are released, and no byte between them. */
static void check_released(const struct memory *memory, uint64_t bytes) {
  for (size_t i = 0; i < RUNS; ++i) {
    const char *before = memory->start + 2 * i * RUN_PAGES * PAGE;
    for (size_t at = 0; at < RUN_PAGES * PAGE; at += PAGE) {
      CHECK(before[at] == 1);
      const char expected = bytes > 0 ? 0 : 1;
      CHECK(((const char *)memory->spans[i].start)[at] == expected);
      bytes -= bytes > 0 ? PAGE : 0;
    }
  }
}

static void run(enum gb_status expected, uint64_t bytes, struct gb_release *release) {
  struct memory memory;
  memory_init(&memory);
  faults.many_calls = 0;
  faults.one_calls = 0;
  if (faults.one_at != 0)
    faults.one_at = memory.spans[faults.one_at - 1].start; /* given as a number from 1 */
  struct gb_released released;
  errno = 77;
  CHECK_EQUAL(gb_os_release(release, memory.spans, RUNS, &released), expected);
  CHECK_EQUAL(errno, 77);
  CHECK_EQUAL(released.bytes, bytes);
  CHECK_EQUAL(released.calls, faults.many_calls + faults.one_calls);
  check_released(&memory, bytes);
  gb_os_free(memory.start, memory.bytes);
}

#define ALL ((uint64_t)RUNS * RUN_PAGES * PAGE)

static void both_ways_release_everything(void) {
  memset(&faults, 0, sizeof faults);
  struct gb_release many = {.many = true};
  struct gb_release one = {.many = false};
  run(GB_OK, ALL, &many);
  CHECK_EQUAL(faults.many_calls, 1);
  run(GB_OK, ALL, &one);
  CHECK_EQUAL(faults.one_calls, RUNS);
}

static void a_vector_done_in_part_is_gone_on_with(void) {
  for (uint64_t pages = 1; pages <= (uint64_t)RUNS * RUN_PAGES; ++pages) {
    memset(&faults, 0, sizeof faults);
    faults.many_bytes = pages * PAGE;
    struct gb_release many = {.many = true};
    run(GB_OK, ALL, &many);
    CHECK(many.many);
  }
}

static void what_the_new_call_refuses_the_old_one_does(void) {
  static const int errors[] = {EINVAL, ENOMEM, EPERM, ENOSYS, EBADF, ESRCH};
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; ++i) {
    for (unsigned before = 0; before < 3; ++before) {
      memset(&faults, 0, sizeof faults);
      faults.many_error = errors[i];
      faults.many_ok = before;
      faults.many_bytes = 2 * PAGE; /* so that the fault is met inside a range, too */
      struct gb_release many = {.many = true};
      run(GB_OK, ALL, &many);
      CHECK(!many.many); /* and it is not tried for ever */
    }
  }
}

static void what_may_be_tried_again_stops_at_the_place(void) {
  static const int errors[] = {EAGAIN, EINTR};
  for (size_t i = 0; i < 2; ++i) {
    memset(&faults, 0, sizeof faults);
    faults.many_error = errors[i];
    faults.many_ok = 2;
    faults.many_bytes = 2 * PAGE;
    struct gb_release many = {.many = true};
    run(GB_BUSY, 4 * PAGE, &many);
    CHECK(many.many);
  }
}

static void a_range_that_both_refuse_stops_there(void) {
  static const struct {
    int error;
    enum gb_status status;
  } cases[] = {
      {EINVAL, GB_LOCKED},         {ENOMEM, GB_STALE},           {EAGAIN, GB_BUSY},
      {EPERM, GB_RELEASE_REFUSED}, {ENOSYS, GB_RELEASE_REFUSED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    for (unsigned at = 1; at <= RUNS; ++at) {
      memset(&faults, 0, sizeof faults);
      faults.one_error = cases[i].error;
      faults.one_at = at;
      struct gb_release one = {.many = false};
      run(cases[i].status, (uint64_t)(at - 1) * RUN_PAGES * PAGE, &one);
    }
    memset(&faults, 0, sizeof faults);
    faults.one_error = cases[i].error;
    faults.many_error = EINVAL;
    faults.many_ok = 1;
    faults.many_bytes = 4 * PAGE;
    struct gb_release many = {.many = true};
    run(cases[i].status, 4 * PAGE, &many);
  }
}

static void an_old_kernel_is_never_asked_for_more(void) {
  memset(&faults, 0, sizeof faults);
  struct gb_release release;
  gb_os_release_open(&release, true);
  CHECK(!release.many);
  CHECK_EQUAL(faults.many_calls, 0);
}

int main(void) {
  RUN(both_ways_release_everything);
  RUN(a_vector_done_in_part_is_gone_on_with);
  RUN(what_the_new_call_refuses_the_old_one_does);
  RUN(what_may_be_tried_again_stops_at_the_place);
  RUN(a_range_that_both_refuse_stops_there);
  RUN(an_old_kernel_is_never_asked_for_more);
  FINISH();
}
