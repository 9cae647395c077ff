/* Rounding to powers of two. `to` must be a power of two; no overflow checks. */
#ifndef GIVEBACK_BASE_ALIGN_H
#define GIVEBACK_BASE_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uintptr_t gb_align_down(uintptr_t value, size_t to) {
  return value & ~(uintptr_t)(to - 1);
}

static inline uintptr_t gb_align_up(uintptr_t value, size_t to) {
  return gb_align_down(value + to - 1, to);
}

static inline bool gb_is_aligned(uintptr_t value, size_t to) {
  return (value & (to - 1)) == 0;
}

#endif
