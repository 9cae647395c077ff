/* Budgets: how much CPU searching may use, and for how long a lock is left alone.
 *
 * Pure: time and cost are arguments, so tests need no clock. One owner each.
 */
#ifndef GIVEBACK_RELEASE_BUDGET_H
#define GIVEBACK_RELEASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* ---- CPU ----------------------------------------------------------------- */

/* Averaged over this time: what was not used in it may be used at once. */
#define GB_BUDGET_WINDOW_NS UINT64_C(60000000000)

struct gb_budget {
  uint32_t ppm; /* millionths of a core */
  int64_t level_ns; /* CPU time that may be used now; negative: overdrawn */
  uint64_t at_ns; /* when the level was brought up to date */
};

/* Begins full. */
void gb_budget_begin(struct gb_budget *budget, uint32_t ppm, uint64_t now_ns);
void gb_budget_charge(struct gb_budget *budget, uint64_t now_ns, uint64_t cpu_ns);

/* Wall time until something may be spent again; 0: now. */
uint64_t gb_budget_wait(struct gb_budget *budget, uint64_t now_ns);

/* ---- duty ---------------------------------------------------------------- */

/* For how long to leave a lock alone that others waited for while we had it for `held_ns`, so
 * that it is ours for `ppm` millionths of the time. */
uint64_t gb_duty_pause(uint32_t ppm, uint64_t held_ns);

#endif
