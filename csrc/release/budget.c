#include "release/budget.h"

#include "base/scale.h"

#define MILLION UINT64_C(1000000)
/* Not for less than this is it worth to begin: a pass over a small heap takes about so long. */
#define LEAST_NS INT64_C(1000000)

static int64_t capacity_of(const struct gb_budget *budget) {
  return (int64_t)(GB_BUDGET_WINDOW_NS / MILLION * budget->ppm);
}

static int64_t least_of(const struct gb_budget *budget) {
  const int64_t capacity = capacity_of(budget);
  return capacity < LEAST_NS ? capacity : LEAST_NS;
}

static void refill(struct gb_budget *budget, uint64_t now_ns) {
  if (now_ns <= budget->at_ns)
    return;
  const uint64_t passed = now_ns - budget->at_ns;
  const int64_t capacity = capacity_of(budget);
  budget->at_ns = now_ns;
  /* What two windows and more bring fills any hole that gb_budget_charge leaves. */
  const uint64_t most = 4 * GB_BUDGET_WINDOW_NS;
  const uint64_t counted = passed < most ? passed : most;
  budget->level_ns += (int64_t)gb_scale(counted, budget->ppm, MILLION);
  if (budget->level_ns > capacity)
    budget->level_ns = capacity;
}

void gb_budget_begin(struct gb_budget *budget, uint32_t ppm, uint64_t now_ns) {
  *budget = (struct gb_budget){.ppm = ppm, .at_ns = now_ns};
  budget->level_ns = capacity_of(budget);
}

void gb_budget_charge(struct gb_budget *budget, uint64_t now_ns, uint64_t cpu_ns) {
  refill(budget, now_ns);
  const int64_t cost = cpu_ns < INT64_MAX / 2 ? (int64_t)cpu_ns : INT64_MAX / 2;
  /* Never so deep that one odd figure silences the engine for good: two windows. */
  const int64_t floor = -2 * capacity_of(budget);
  budget->level_ns = budget->level_ns - cost > floor ? budget->level_ns - cost : floor;
}

uint64_t gb_budget_wait(struct gb_budget *budget, uint64_t now_ns) {
  refill(budget, now_ns);
  const int64_t least = least_of(budget);
  if (budget->level_ns >= least)
    return 0;
  const uint64_t missing = (uint64_t)(least - budget->level_ns);
  return gb_scale(missing, MILLION, budget->ppm) + 1;
}

uint64_t gb_duty_pause(uint32_t ppm, uint64_t held_ns) {
  if (ppm >= MILLION)
    return 0;
  return gb_scale(held_ns, MILLION - ppm, ppm);
}
