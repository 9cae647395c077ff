/* How long memory of one arena must have stayed free: longer where it was taken again.
 *
 * Problem: pages that the program uses again cost it a fault each, so what we gain is lost.
 * Feedback: of what was released, how much was taken again by the next time? Where it is more
 * than half, the age doubles; where it is next to nothing, it shrinks back. This is
 * for arenas at work: one that has not changed for the basic age is released at that.
 *
 * Pure. One owner.
 */
#ifndef GIVEBACK_RELEASE_AGE_H
#define GIVEBACK_RELEASE_AGE_H

#include <stdint.h>

/* Below, feedback is noise. */
#define GB_AGE_FEEDBACK_BYTES (UINT64_C(256) << 10)
#define GB_AGE_MOST_NS UINT64_C(30000000000)

struct gb_age {
  uint64_t base_ns; /* as configured */
  uint64_t now_ns; /* in force, base_ns or more */
};

void gb_age_begin(struct gb_age *age, uint64_t base_ns);

/* Of `released` bytes, `refaulted` are in use again since the last call. */
void gb_age_learn(struct gb_age *age, uint64_t released, uint64_t refaulted);

#endif
