/* value * times / per, without overflow in between; saturates at UINT64_MAX. pre: per > 0. */
#ifndef GIVEBACK_BASE_SCALE_H
#define GIVEBACK_BASE_SCALE_H

#include <stdint.h>

static inline uint64_t gb_scale(uint64_t value, uint64_t times, uint64_t per) {
  __extension__ typedef unsigned __int128 wide;
  const wide result = (wide)value * times / per;
  return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

#endif
