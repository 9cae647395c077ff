/* Where things lie in glibc's malloc, and what a chunk's header says.
 *
 * Problem: none of it is exported, and it moved between 2.31 and 2.44.
 * Invariant: a struct gb_layout is never chosen by a version string. derive.h finds
 * the arena in the process's own data; the distance from its start to its bins
 * selects one of the layouts below, and everything else is checked against it.
 *
 * Source of the offsets: malloc/malloc.c and malloc/arena.c of glibc 2.31, 2.36,
 * 2.41, 2.43, 2.44, x86-64 and aarch64 (both 64-bit little-endian, alignment 16).
 */
#ifndef GIVEBACK_HEAP_LAYOUT_H
#define GIVEBACK_HEAP_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- chunks -------------------------------------------------------------- */

#define GB_CHUNK_ALIGN 16u
#define GB_CHUNK_MIN 32u /* MINSIZE */
#define GB_CHUNK_HEADER 16u /* prev_size and size: where the user's memory starts */
#define GB_CHUNK_FREE_HEADER 48u /* what a free chunk uses at most: fd_nextsize, bk_nextsize */

#define GB_CHUNK_SIZE 8u /* offset of the size word */
#define GB_CHUNK_FD 16u
#define GB_CHUNK_BK 24u

#define GB_PREV_INUSE UINT64_C(1)
#define GB_IS_MMAPPED UINT64_C(2)
#define GB_NON_MAIN_ARENA UINT64_C(4)
#define GB_SIZE_FLAGS UINT64_C(7)

/* ---- bins ---------------------------------------------------------------- */

#define GB_BINS 127u /* bins 1 (unsorted) to 127 (never used: always empty) */
#define GB_BIN_UNSORTED 1u
#define GB_BIN_FIRST_LARGE 64u
#define GB_BIN_NEVER_USED 127u
#define GB_FASTBINS 10u
#define GB_BINMAP_WORDS 4u

/* The bin in which malloc files a free chunk of this size (never the unsorted). */
unsigned gb_bin_of_size(uint64_t size);

/* The first bin whose chunks may hold a whole page inside. */
static inline unsigned gb_bin_of_page(size_t page) {
  return gb_bin_of_size(page + GB_CHUNK_FREE_HEADER);
}

/* ---- malloc_state and heap_info ------------------------------------------ */

#define GB_HEAP_MAX (UINT64_C(64) << 20) /* HEAP_MAX_SIZE without glibc.malloc.hugetlb=2 */
#define GB_ARENA_MUTEX 0u
#define GB_ARENA_FLAGS 4u
#define GB_ARENA_NONCONTIGUOUS 2u /* flag */
#define GB_ARENA_CONTENTS 8u /* from here on: what the mutex guards */

#define GB_HEAP_ARENA 0u
#define GB_HEAP_PREVIOUS 8u
#define GB_HEAP_SIZE 16u
#define GB_HEAP_HEADER_OLD 32u /* sizeof(heap_info) up to 2.34 */
#define GB_HEAP_HEADER_NEW 48u /* from 2.35 on */

/* Offsets in malloc_state, bytes. */
struct gb_layout {
  uint16_t fastbins; /* 0: this glibc has none (2.43 on) */
  uint16_t top;
  uint16_t bins;
  uint16_t binmap;
  uint16_t next;
  uint16_t attached_threads;
  uint16_t system_mem;
  uint16_t max_system_mem;
  uint16_t size;
};

/* The largest malloc_state of all layouts. */
#define GB_ARENA_MAX_SIZE 2200u

/* The layout whose bins start `bins` bytes behind the arena's start; false if
 * there is none that we know. */
bool gb_layout_of_bins(uint64_t bins, struct gb_layout *layout);

/* `index` from 0: the layouts we know, for trying each; false behind the last. */
bool gb_layout_known(unsigned index, struct gb_layout *layout);

/* Address of the list head of a bin, as the chunk that glibc pretends it is. */
static inline uintptr_t gb_bin_head(const struct gb_layout *layout, uintptr_t arena, unsigned bin) {
  return arena + layout->bins + (uintptr_t)(bin - 1) * 16 - GB_CHUNK_FD;
}

/* Whole pages inside a free chunk (or top): [*start, *end), empty if *start >= *end.
 * The same range that malloc_trim releases. */
static inline void gb_interior(uintptr_t chunk, uint64_t size, size_t page, uintptr_t *start,
                               uintptr_t *end) {
  *start = (chunk + GB_CHUNK_FREE_HEADER + page - 1) & ~(uintptr_t)(page - 1);
  *end = (chunk + size) & ~(uintptr_t)(page - 1);
}

/* Asks for a chunk's header, which may lie in two cache lines. Never faults, whatever stands there. */
static inline void gb_chunk_prefetch(uintptr_t chunk) {
  __builtin_prefetch((const void *)(chunk + GB_CHUNK_SIZE));
  __builtin_prefetch((const void *)(chunk + GB_CHUNK_BK));
}

/* ---- malloc_par (mp_) ----------------------------------------------------- */

/* What we read of it. Offsets differ, so each field is valid only if `known`. */
struct gb_parameters {
  bool known;
  uint64_t trim_threshold;
  uint64_t top_pad;
  uint64_t mmap_threshold;
  uint64_t thp_pagesize; /* 0 before 2.35 */
  uint64_t hp_pagesize; /* 0 unless hugetlb=2 */
  uint64_t mmapped_chunks;
  uint64_t mmapped_bytes;
};

#endif
