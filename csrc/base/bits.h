/* Runs of bits in a bitmap of 64-bit words, lowest bit first. */
#ifndef GIVEBACK_BASE_BITS_H
#define GIVEBACK_BASE_BITS_H

#include <stddef.h>
#include <stdint.h>

/* Sets `count` bits from bit `first` on. */
static inline void gb_set_bits(uint64_t *bitmap, size_t first, size_t count) {
  while (count > 0) {
    const size_t offset = first % 64;
    const size_t here = 64 - offset < count ? 64 - offset : count;
    const uint64_t ones = here == 64 ? ~UINT64_C(0) : (UINT64_C(1) << here) - 1;
    bitmap[first / 64] |= ones << offset;
    first += here;
    count -= here;
  }
}

#endif
