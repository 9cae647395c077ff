/* One arena: its lock, its fields, and where its chunks may lie.
 *
 * Ownership: glibc's. We write one word of it, the mutex, by glibc's own protocol
 * (sysdeps/nptl/lowlevellock.h: 0 free, 1 held, 2 held and awaited), and only after
 * derive.h has found the layout.
 */
#ifndef GIVEBACK_HEAP_ARENA_H
#define GIVEBACK_HEAP_ARENA_H

#include "heap/layout.h"
#include "os/os.h"

/* ---- lock ---------------------------------------------------------------- */

/* Tries once, never waits. While held: no allocation, no stdio, no lazy binding,
 * no second arena, signals blocked (gb_os_signals_block).
 * A single-threaded process does not take its own lock (SINGLE_THREAD_P): this
 * excludes nobody there, and there is nobody but the caller. */
bool gb_arena_try_lock(uintptr_t arena);

/* pre: held by us. True if somebody waited for it; one waiter is woken. */
bool gb_arena_unlock(uintptr_t arena);

/* For a fork that does not go through glibc's fork(): with the gate closed no try succeeds, and closing
 * it waits until no arena is ours, a second at most; so the child's arenas are not locked by a thread
 * that it does not have. Async-signal-safe. May be closed by several threads at once. */
void gb_arena_gate_close(void);
void gb_arena_gate_open(void);
/* Around calls of glibc's that lock arenas (malloc_trim, mallinfo, mallopt): waits while it is closed. */
void gb_arena_gate_enter(void);
void gb_arena_gate_leave(void);
void gb_arena_gate_after_fork(void); /* in the child: nobody has it closed, nothing is held */

/* ---- reading words that may change under us ------------------------------- */

static inline uint64_t gb_load(uintptr_t address) {
  return __atomic_load_n((const uint64_t *)address, __ATOMIC_RELAXED);
}

static inline uint32_t gb_load_half(uintptr_t address) {
  return __atomic_load_n((const uint32_t *)address, __ATOMIC_RELAXED);
}

/* ---- where chunks may lie -------------------------------------------------- */

/* Sorted, disjoint address ranges in which this arena may have chunks during one
 * hold. Owner: a look; the tables are ours (gb_os_alloc). */
struct gb_range {
  uintptr_t start;
  uintptr_t end;
};
#define GB_RANGES_NEAR 128u
struct gb_ranges {
  struct gb_range *sorted;
  uintptr_t *chain; /* heap addresses, newest first, as last walked */
  size_t heaps; /* in it */
  size_t count;
  size_t capacity;
  uint32_t near[GB_RANGES_NEAR]; /* where the last address of the same 64 MiB (modulo the table) was found */
};

#define GB_RANGES_FIRST 64u /* 4 GiB of thread arena; grown between holds when needed */

enum gb_status gb_ranges_init(struct gb_ranges *ranges);
enum gb_status gb_ranges_grow(struct gb_ranges *ranges);
void gb_ranges_free(struct gb_ranges *ranges);

/* Brings up the cache lines that gb_ranges_of_arena will need. Never faults, so it
 * may name heaps that are gone. Call it before locking. */
void gb_ranges_prefetch(const struct gb_ranges *ranges);

/* Learns the ranges of the arena from its own fields.
 *   thread arena: its chain of heaps, whose sizes must add up to system_mem;
 *   main arena, contiguous: the system_mem bytes below the end of top;
 *   in both, what of them the snapshot says can be read and written;
 *   main arena, not contiguous: every private writable mapping of the snapshot.
 * pre: the arena's lock is held; `maps` was read after the arena was found.
 * GB_STALE: something lies in no mapping of the snapshot. GB_NO_ROOM: the table is
 * full, grow it after the hold. GB_DOUBT_*: the fields contradict each other. */
enum gb_status gb_ranges_of_arena(struct gb_ranges *ranges, const struct gb_layout *layout, uintptr_t arena,
                                  uint64_t heap_header, bool is_main, const struct gb_maps *maps);

/* The range that holds `address`, or NULL. Hold-safe. */
static inline const struct gb_range *gb_ranges_find(struct gb_ranges *ranges, uintptr_t address) {
  /* A list in random order goes from heap to heap: a search for each member would cost more than all the rest. */
  uint32_t *near = &ranges->near[(address / GB_HEAP_MAX) % GB_RANGES_NEAR];
  const struct gb_range *hit = &ranges->sorted[*near];
  if (address >= hit->start && address < hit->end)
    return hit;
  size_t low = 0;
  size_t high = ranges->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges->sorted[middle].end <= address)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == ranges->count || ranges->sorted[low].start > address)
    return NULL;
  *near = (uint32_t)low;
  return &ranges->sorted[low];
}

#endif
