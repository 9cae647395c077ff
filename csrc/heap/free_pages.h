/* A set of pages: the whole free pages of one arena.
 *
 * One bit a page, in blocks of 64 MiB (2 KiB of bits each) that exist only where a
 * page was added; so adding needs no sorting, adding twice changes nothing, and
 * comparing with what is resident is an AND of two bitmaps.
 *
 * Not thread-safe; allocates (gb_os_alloc), so never used while an arena is held.
 */
#ifndef GIVEBACK_HEAP_FREE_PAGES_H
#define GIVEBACK_HEAP_FREE_PAGES_H

#include "os/os.h"

struct gb_page_block; /* one 64 MiB block */

struct gb_free_pages {
  struct gb_page_block *blocks;
  uint32_t *index; /* open addressing: block number + 1, 0 is free */
  size_t count;
  size_t capacity; /* of blocks; the index has twice as many slots */
  size_t last;
  size_t page; /* bytes of a page */
};

enum gb_status gb_free_pages_init(struct gb_free_pages *pages);
void gb_free_pages_free(struct gb_free_pages *pages);
void gb_free_pages_clear(struct gb_free_pages *pages);

/* pre: page-aligned, start < end. Fails with GB_NO_MEMORY, having added a part. */
enum gb_status gb_free_pages_add(struct gb_free_pages *pages, uintptr_t start, uintptr_t end);

/* ---- asking and taking out; these allocate nothing and are hold-safe ---- */

/* The next run of pages of the set in [from, end), or false. */
bool gb_free_pages_next(struct gb_free_pages *pages, uintptr_t from, uintptr_t end, struct gb_span *run);

void gb_free_pages_remove(struct gb_free_pages *pages, uintptr_t start, uintptr_t end);

/* Bytes of all pages of the set. */
uint64_t gb_free_pages_bytes(const struct gb_free_pages *pages);

/* Runs of adjacent pages; one that crosses a block's border counts as two. */
uint64_t gb_free_pages_runs(const struct gb_free_pages *pages);

/* ---- sets and the kernel -------------------------------------------------- */

/* Keeps only what is in `other`, too. */
void gb_free_pages_intersect(struct gb_free_pages *pages, struct gb_free_pages *other);

/* Takes out what is in `other`. */
void gb_free_pages_subtract(struct gb_free_pages *pages, struct gb_free_pages *other);

/* Adds all of `other`. Fails with GB_NO_MEMORY, having added a part. */
enum gb_status gb_free_pages_unite(struct gb_free_pages *pages, const struct gb_free_pages *other);

/* Keeps only the pages that are in memory or in swap; or, for `resident` false, only those that are not. */
enum gb_status gb_free_pages_filter(struct gb_free_pages *pages, const struct gb_residency *residency,
                                    bool resident);

/* Bytes. A page that is neither resident nor in swap has been returned. */
struct gb_page_figures {
  uint64_t whole;
  uint64_t resident;
  uint64_t swapped;
};

/* Adds the figures of all pages of the set to *figures. */
enum gb_status gb_free_pages_measure(const struct gb_free_pages *pages, const struct gb_residency *residency,
                                     struct gb_page_figures *figures);

#endif
