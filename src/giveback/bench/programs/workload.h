/* What all programs of the bench share: options, figures of this process, live data, JSON answers.
 *
 * A program of the bench is a plain one: it knows nothing of giveback, nor of any other allocator. It brings its
 * heap into a shape, says what it saw as one JSON object on one line, and with --wait waits for a line on its
 * standard input after each, so that others can look at it. Bookkeeping of its own lies outside of malloc.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, sizes bytes, unless a name says otherwise. A failure prints one
 * line and ends the program: code 2 for wrong options, 3 for all else.
 */
#ifndef GIVEBACK_BENCH_WORKLOAD_H
#define GIVEBACK_BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECOND UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)

/* ---- options ----------------------------------------------------------------- */

struct option_of_workload {
  const char *name; /* with its dashes */
  double *number; /* takes a value, 0 or more */
  bool *flag;
  const char **text; /* takes a word */
};

/* Reads them all, and --trim and --wait, which every program has. `options` ends with a name of NULL. */
void read_options(int argc, char **argv, const struct option_of_workload *options);

_Noreturn void fail(const char *what);

/* ---- figures of this process --------------------------------------------------- */

uint64_t now(void);
uint64_t cpu_of_process(void);
void sleep_until(uint64_t moment);

/* Resident bytes, from statm: costs no walk over the memory, which would be charged to the workload and be
 * dearer for those variants that hold more. Up to 6.15 the kernel may be off by 0.2 MB. */
uint64_t resident(void);

/* ---- memory --------------------------------------------------------------------- */

/* malloc, never NULL. */
void *allocate(size_t bytes);

/* Writes one byte for each page's worth of it, as a program that fills its buffers partly. */
void touch_pages(void *block, size_t bytes);

/* Room for pointers outside of malloc; given back with drop_pointers. */
void **new_pointers(size_t count);
void drop_pointers(void **table, size_t count);

uint64_t next_random(uint64_t *state);
/* From `least` to `most`, both included. */
size_t random_between(uint64_t *state, size_t least, size_t most);
void shuffle(void **table, size_t count, uint64_t seed);

/* Live data, filled, and chained through itself. One owner at a time, with a cache line of its own. */
struct live_data {
  _Alignas(64) struct live_block *first;
  size_t blocks;
  size_t bytes;
};

/* `bytes` is at least 32. */
void add_live(struct live_data *data, size_t bytes);
/* Ends the program if a block is not what was written. */
void check_live(const struct live_data *data);

/* ---- the answer ------------------------------------------------------------------ */

void report(const char *name, uint64_t value);
void report_seconds(const char *name, uint64_t nanoseconds);

/* Everything that was short-lived is free now: reports resident memory and the moment, and prints. With --wait
 * returns when the others have seen enough. */
void show_freed(void);

/* Prints what was reported, with the page faults and CPU so far, and begins anew. With --wait returns after the
 * next line of standard input, or its end. */
void show_report(void);

/* The end of a program: with --trim calls malloc_trim(0) and reports its time, and resident memory before and
 * after it; checks the live data of so many owners; shows the last report. */
void finish(const struct live_data *owners, size_t count);

#endif
