#include "release/pace.h"

void gb_pace_begin(struct gb_pace *pace, uint64_t age_ns) {
  const uint64_t base = age_ns < GB_PACE_SLOWEST_NS ? age_ns : GB_PACE_SLOWEST_NS;
  *pace = (struct gb_pace){.base_ns = base, .interval_ns = base};
}

uint64_t gb_pace_next(struct gb_pace *pace, bool changed, bool waiting) {
  /* The process works, but its heap stands still: look ever more rarely. */
  const uint64_t slower = pace->interval_ns * 2;
  if (changed || waiting)
    pace->interval_ns = pace->base_ns;
  else
    pace->interval_ns = slower < GB_PACE_SLOWEST_NS ? slower : GB_PACE_SLOWEST_NS;
  return pace->interval_ns;
}

bool gb_pace_is_active(uint64_t cpu_ns, uint64_t faults) {
  return cpu_ns >= GB_PACE_ACTIVE_CPU_NS || faults >= GB_PACE_ACTIVE_FAULTS;
}
