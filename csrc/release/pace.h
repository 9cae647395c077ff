/* When to wake up next.
 *
 * At work: after `age`, or later where passes find nothing, at most GB_PACE_SLOWEST_NS. Settled,
 * that is, nothing is left to be looked at again: only when the process has used some
 * CPU time, or after a long time.
 *
 * Pure. One owner.
 */
#ifndef GIVEBACK_RELEASE_PACE_H
#define GIVEBACK_RELEASE_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* A spike has to be noticed within 1.5 s. */
#define GB_PACE_SLOWEST_NS UINT64_C(1000000000)
/* Below, a process is as good as idle. A scheduler's tick is 1 to 4 ms. */
#define GB_PACE_ACTIVE_CPU_NS UINT64_C(1000000)
#define GB_PACE_ACTIVE_FAULTS 64u
/* How long to sleep when settled: woken by the process using CPU time; the timeout is for what works so
 * little that no tick ever meets it. Without such a timer, GB_PACE_SLOWEST_NS. */
#define GB_PACE_SETTLED_NS UINT64_C(15000000000)

struct gb_pace {
  uint64_t base_ns;
  uint64_t interval_ns;
};

void gb_pace_begin(struct gb_pace *pace, uint64_t age_ns);

/* After a pass: `changed`, an arena was not as before; `waiting`, something is to be looked at again once
 * it is old enough. Returns the wall time until the next pass may be, nanoseconds. */
uint64_t gb_pace_next(struct gb_pace *pace, bool changed, bool waiting);

/* What the process used since the last pass is enough to look. */
bool gb_pace_is_active(uint64_t cpu_ns, uint64_t faults);

#endif
