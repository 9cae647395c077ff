/* The two clocks that budgets are measured with, in nanoseconds.
 *
 * Wall time (CLOCK_MONOTONIC) bounds holds: CPU time hides preemption under a
 * lock. Both are vDSO or plain system calls, async-signal-safe and allocate nothing.
 */
#ifndef GIVEBACK_BASE_CLOCK_H
#define GIVEBACK_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t gb_clock_read(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline uint64_t gb_now_ns(void) {
  return gb_clock_read(CLOCK_MONOTONIC);
}

/* CPU time of the calling thread. */
static inline uint64_t gb_thread_cpu_ns(void) {
  return gb_clock_read(CLOCK_THREAD_CPUTIME_ID);
}

#endif
