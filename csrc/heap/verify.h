/* Comparing what we counted with what glibc says of itself.
 *
 * mallinfo waits for every arena's lock and holds each for its whole list, so this
 * is for the first look of a process and for `giveback doctor`, never for a loop; and not
 * at all where the account already found so many chunks that the wait would hurt.
 */
#ifndef GIVEBACK_HEAP_VERIFY_H
#define GIVEBACK_HEAP_VERIFY_H

#include "heap/account.h"

enum gb_verdict {
  GB_VERDICT_EQUAL, /* difference 0 in every figure */
  GB_VERDICT_DIFFERENT, /* a quiet process, and yet a difference: do not trust the account */
  GB_VERDICT_BUSY, /* the heap changed with every try, or an arena was busy */
  GB_VERDICT_TOO_LARGE, /* asking would hold a lock too long */
};

/* mallinfo's names; bytes, but for the two counts. */
struct gb_comparison {
  enum gb_verdict verdict;
  bool wide; /* mallinfo2; else mallinfo, whose figures are modulo 2^32 */
  unsigned tries;
  struct {
    uint64_t arena, ordblks, smblks, fsmblks, fordblks, keepcost;
  } ours, glibcs;
};

struct gb_verify_limits {
  unsigned tries;
  uint64_t chunks; /* mallinfo is not asked where there are more */
};
/* 100,000 chunks: about 10 ms of cache misses in mallinfo. */
#define GB_VERIFY_LIMITS ((struct gb_verify_limits){.tries = 8, .chunks = 100000})

/* Takes accounts until two of them, one before and one after mallinfo, agree.
 * GB_OK with comparison->verdict, or why no account could be taken. */
enum gb_status gb_verify(const struct gb_account_options *options, struct gb_verify_limits limits,
                         struct gb_comparison *comparison);

/* "equal", "different", "busy", "too large". */
const char *gb_verdict_name(enum gb_verdict verdict);

#endif
