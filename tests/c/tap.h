/* Test Anything Protocol, as meson reads it. Include once a test program. */
#ifndef GIVEBACK_TESTS_TAP_H
#define GIVEBACK_TESTS_TAP_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned tap_count;
static unsigned tap_failed;
static bool tap_case_ok;

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);                                               \
      tap_case_ok = false;                                                                                   \
    }                                                                                                        \
  } while (0)

#define CHECK_EQUAL(left, right)                                                                             \
  do {                                                                                                       \
    const unsigned long long left_value = (unsigned long long)(left);                                        \
    const unsigned long long right_value = (unsigned long long)(right);                                      \
    if (left_value != right_value) {                                                                         \
      printf("# %s:%d: %s is %llu (0x%llx), not %llu (0x%llx)\n", __FILE__, __LINE__, #left, left_value,     \
             left_value, right_value, right_value);                                                          \
      tap_case_ok = false;                                                                                   \
    }                                                                                                        \
  } while (0)

#define RUN(test)                                                                                            \
  do {                                                                                                       \
    tap_case_ok = true;                                                                                      \
    test();                                                                                                  \
    ++tap_count;                                                                                             \
    if (!tap_case_ok)                                                                                        \
      ++tap_failed;                                                                                          \
    printf("%sok %u - %s\n", tap_case_ok ? "" : "not ", tap_count, #test);                                   \
    fflush(stdout);                                                                                          \
  } while (0)

#define FINISH()                                                                                             \
  do {                                                                                                       \
    printf("1..%u\n", tap_count);                                                                            \
    return tap_failed == 0 ? 0 : 1;                                                                          \
  } while (0)

#endif
