#include "release/age.h"

void gb_age_begin(struct gb_age *age, uint64_t base_ns) {
  age->base_ns = base_ns;
  age->now_ns = base_ns;
}

void gb_age_learn(struct gb_age *age, uint64_t released, uint64_t refaulted) {
  if (released < GB_AGE_FEEDBACK_BYTES)
    return;
  const uint64_t most = age->base_ns > GB_AGE_MOST_NS ? age->base_ns : GB_AGE_MOST_NS;
  if (refaulted > released / 2)
    age->now_ns = age->now_ns * 2 < most ? age->now_ns * 2 : most;
  else if (refaulted < released / 8)
    age->now_ns = age->now_ns / 2 > age->base_ns ? age->now_ns / 2 : age->base_ns;
}
