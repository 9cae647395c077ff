/* What the engine did, published in a page of shared memory that other processes can read.
 *
 * Problem: `giveback stats PID` must work for an ordinary user where Yama forbids to read
 * another process's memory, and may cost the process nothing. So the engine counts in a
 * small file in /dev/shm, mapped and then closed (a descriptor would be closed or reused by
 * programs that close all of theirs), whose name shows in /proc/PID/maps.
 *
 * Ownership: written by the engine's thread only, but for `wanted`, which whoever asks
 * for a release adds to. Words are read and written with relaxed atomics: each is right by
 * itself, together they may be of two moments. A fork child does not inherit the mapping.
 *
 * All times are nanoseconds, all sizes bytes.
 */
#ifndef GIVEBACK_RELEASE_STATS_H
#define GIVEBACK_RELEASE_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define GB_STATS_MAGIC UINT64_C(0x317374617462675f) /* "_gbtats1" */
#define GB_STATS_VERSION 1u
#define GB_STATS_STATUSES 48u /* room for every enum gb_status */
/* Holds by length: 8 buckets an octave from 1 us on, so a percentile is at most 12.5 % too high. */
#define GB_HOLD_BUCKETS 192u

enum gb_engine_state {
  GB_ENGINE_NONE, /* never started, or stopped */
  GB_ENGINE_RUNS,
  GB_ENGINE_REFUSES, /* the thread is there, but `reason` keeps it from touching anything */
};

struct gb_stats {
  uint64_t magic;
  uint32_t version;
  uint32_t bytes; /* of this structure */
  uint32_t state; /* enum gb_engine_state */
  uint32_t reason; /* enum gb_status: why it refuses, or GB_OK */
  uint32_t pid; /* as the process sees itself */
  uint32_t thread; /* the engine's thread id, as the process sees it */
  uint32_t wake_signal; /* blocked by that thread, which waits for it; 0: it polls */

  /* The request for a release: a futex word that counts requests, and the answer to the last. */
  uint32_t wanted;
  uint32_t answered; /* a futex word: the value of `wanted` that was answered last */
  uint32_t policy; /* enum gb_policy */
  uint64_t answer_bytes; /* came back for it */
  uint64_t answer_ns; /* wall, from the request being seen until its end */

  /* The budgets in force. */
  uint64_t cpu_ppm;
  uint64_t duty_ppm;
  uint64_t pause_ns;
  uint64_t age_ns;

  uint64_t started_ns; /* CLOCK_REALTIME */
  uint64_t wakeups;
  uint64_t passes; /* times it asked each arena whether there is something to do */
  uint64_t looks; /* arenas walked, to see what is free */
  uint64_t arenas;
  uint64_t returned_bytes; /* resident pages released */
  uint64_t returned_top_bytes; /* of these, from top chunks */
  uint64_t advised_bytes; /* given to madvise or process_madvise */
  uint64_t release_calls; /* system calls for it */
  uint64_t release_failures; /* of these, refused by the kernel */
  uint64_t release_errno; /* of the last failure */
  uint64_t refaulted_bytes; /* came back into use after we had released them */
  uint64_t held_bytes; /* whole free resident pages, when last looked at; not all may be old enough */

  uint64_t engine_cpu_ns; /* all of it, of the engine's thread */
  uint64_t search_cpu_ns; /* of it, charged to the budget `cpu` */
  uint64_t over_budget; /* passes cut short by that budget */

  uint64_t holds;
  uint64_t held_ns; /* sum, wall */
  uint64_t hold_max_ns; /* wall */
  uint64_t holds_cut; /* ended early since somebody waited */
  uint64_t busy; /* arenas skipped since their lock was taken */
  uint64_t out_of_reach; /* lists too long to be walked while others want the lock */
  uint64_t hold_buckets[GB_HOLD_BUCKETS];

  uint64_t trims; /* malloc_trim(0), of policy trim or as fallback */
  uint64_t trim_ns; /* wall, sum */
  uint64_t trim_max_ns;

  uint64_t kernel_path; /* 0: process_madvise, 1: madvise */
  uint64_t residency; /* enum gb_residency_source */
  uint64_t refused[GB_STATS_STATUSES]; /* how often each status kept us from an arena */
};

/* A page of our own. Never fails: without /dev/shm it is private memory, `*shared` is false, and no
 * other process can read it. NULL only if there is no memory at all. */
struct gb_stats *gb_stats_open(bool *shared);

/* Removes the name, so that nobody finds it; the memory stays. Safe at exit, and if it was
 * never opened. */
void gb_stats_unlink(void);

/* Forgets the page, which a fork child does not have. */
void gb_stats_after_fork(void);

void gb_stats_close(struct gb_stats *stats);

/* A hold in which pages were released. */
void gb_stats_hold(struct gb_stats *stats, uint64_t ns);

/* The holds of one look, of which only the longest is known by itself. */
void gb_stats_looks(struct gb_stats *stats, uint64_t holds, uint64_t held_ns, uint64_t longest_ns);

/* Longest hold of the shortest `share` (0 to 1) of all holds, nanoseconds; 0 without holds. */
uint64_t gb_stats_percentile(const struct gb_stats *stats, double share);

// NOLINTNEXTLINE(readability-non-const-parameter): the builtin writes through it
static inline void gb_stats_add(uint64_t *word, uint64_t much) {
  __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + much, __ATOMIC_RELAXED);
}

// NOLINTNEXTLINE(readability-non-const-parameter): the builtin writes through it
static inline void gb_stats_set(uint64_t *word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

#endif
