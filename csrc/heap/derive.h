/* Finding a process's glibc arenas, and how they are laid out, from its memory alone.
 *
 * Problem: main_arena is a static symbol; its address, and the offsets in it, must
 * come from the running process. Guessing wrong and then writing the mutex would
 * corrupt the program, so everything here only reads.
 *
 * The evidence, in order (each must hold, or the candidate is dropped):
 *   1. In libc's writable data there is a pair of words that both hold the address
 *      of a list head 16 bytes below: an empty bin. Taken as bin 127, which malloc
 *      never uses, it puts the bins' start 126 pairs earlier.
 *   2. With the arena's start at one of the known distances before the bins, the
 *      `next` words form a ring through that start.
 *   3. Each member of the ring has a mutex word of 0, 1 or 2, plausible flags,
 *      127 list heads that are all empty or all linked, system_mem <= max_system_mem.
 *   4. Every other member lies behind a heap_info at a 64 MiB boundary that names
 *      it, at the same distance for all.
 *   5. Exactly one candidate is left.
 * The sums of heaps, top chunks and lists are checked under the arena's lock by
 * every look (look.h), the totals against mallinfo (verify.h).
 *
 * Thread-safe. The ring is read without glibc's list lock: members are never
 * removed and a new one is linked in after it is complete (malloc/arena.c,
 * _int_new_arena).
 */
#ifndef GIVEBACK_HEAP_DERIVE_H
#define GIVEBACK_HEAP_DERIVE_H

#include "heap/layout.h"
#include "heap/memory.h"

/* What there is to know of one glibc in one process. */
struct gb_glibc {
  struct gb_layout layout;
  uintptr_t main_arena;
  uintptr_t data_start; /* libc's writable data, where main_arena lies */
  uintptr_t data_end;
  uint64_t heap_header; /* sizeof(heap_info); 0 as long as there is only the main arena */
};

/* Longest ring we follow: glibc's default limit is 8 arenas a core. */
#define GB_MAX_ARENAS 65536u

/* pre: [data_start, data_end) are the writable segment(s) of one libc.
 * GB_UNKNOWN_LAYOUT if no candidate, or more than one, is left. */
enum gb_status gb_derive(const struct gb_memory *memory, uintptr_t data_start, uintptr_t data_end,
                         struct gb_glibc *glibc);

/* Copies up to `capacity` addresses of the ring, the main arena first, and sets
 * *count to how many there are. GB_DOUBT_ARENA if the ring does not close. Updates
 * glibc->heap_header when the first thread arena shows. */
enum gb_status gb_arenas(const struct gb_memory *memory, struct gb_glibc *glibc, uintptr_t *arenas,
                         size_t capacity, size_t *count);

/* Reads mp_, which is found by its sbrk_base: the address that is `sbrk_base`, as
 * computed from the main arena under its lock. parameters->known says whether
 * exactly one place, and one layout of it, made sense. */
void gb_derive_parameters(const struct gb_memory *memory, const struct gb_glibc *glibc, uintptr_t sbrk_base,
                          struct gb_parameters *parameters);

#endif
