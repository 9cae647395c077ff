/* When to start the engine in a program that knows nothing of us.
 *
 * Problem: a thread costs /bin/true a tenth of its life, and makes a single-threaded program a
 * multi-threaded one; most programs are over before there is anything to give back. So the start waits
 * until the process is old or large. Only the program's own thread can start it (a single-threaded
 * process takes no arena locks), and what every program does sooner or later is to allocate.
 *
 * So malloc, calloc and realloc are ours until then: they count, and pass on. Afterwards each is one jump
 * through a pointer, a third of a nanosecond. free is glibc's all the time.
 */
#ifndef GIVEBACK_PRELOAD_FIRST_CALLS_H
#define GIVEBACK_PRELOAD_FIRST_CALLS_H

#include <stdbool.h>
#include <stdint.h>

struct gb_first_calls {
  /* At the first call: what would cost programs that never allocate. False: never start. */
  bool (*first)(void);
  uint64_t (*start)(void); /* once the process is old or large: 0, or nanoseconds until to try again */
};

/* From the constructor: finds the functions behind ours, and whether they are glibc's own. If they are not, dlsym has
 * to be asked: later, within malloc, that could wait for the dynamic linker's lock, and would throw away the program's
 * dlerror(). */
bool gb_first_calls_find(void);

/* Counts from now on; the process is old a second after the first few calls. May be called again in a fork child; `first` is called once. */
void gb_first_calls_count(const struct gb_first_calls *calls);

#endif
