/* Runs of bits in a bitmap of 64-bit words, lowest bit first. */
#ifndef GIVEBACK_BASE_BITS_H
#define GIVEBACK_BASE_BITS_H

#include <stdbool.h>
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

static inline void gb_clear_bits(uint64_t *words, size_t first, size_t count) {
  for (; count > 0;) {
    const size_t shift = first % 64;
    const size_t here = 64 - shift < count ? 64 - shift : count;
    const uint64_t mask = here == 64 ? ~UINT64_C(0) : ((UINT64_C(1) << here) - 1) << shift;
    words[first / 64] &= ~mask;
    first += here;
    count -= here;
  }
}

/* The first bit in [first, end) that is set (or, for `value` 0, clear); end if there is none. */
static inline size_t gb_find_bit(const uint64_t *words, size_t first, size_t end, bool value) {
  while (first < end) {
    const uint64_t word = (value ? words[first / 64] : ~words[first / 64]) >> (first % 64);
    if (word != 0) {
      first += (size_t)__builtin_ctzll(word);
      return first < end ? first : end;
    }
    first = (first / 64 + 1) * 64;
  }
  return end;
}

#endif
