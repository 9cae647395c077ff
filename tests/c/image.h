/* An arena made by hand, in real memory, of either layout: what a glibc would have
 * built, so that the code under test meets known figures, or known damage. */
#ifndef GIVEBACK_TESTS_IMAGE_H
#define GIVEBACK_TESTS_IMAGE_H

#include "heap/arena.h"
#include "heap/layout.h"

#define IMAGE_MAX_CHUNKS 100000u

struct image {
  struct gb_layout layout;
  uint64_t heap_header;
  char *reserved; /* 128 MiB of address space, of which one 64 MiB heap is used */
  uintptr_t heap;
  uintptr_t arena;
  uintptr_t at; /* where the next chunk goes */
  bool previous_free;
  uint64_t previous_size;
  uint64_t heap_bytes;
  uint64_t free_bytes; /* in bins */
  uint64_t free_chunks;
  uint64_t whole_bytes; /* of whole pages in them */
};

/* A thread arena of `heap_bytes`, with all lists empty. layout_index as in gb_layout_known. */
void image_init(struct image *image, unsigned layout_index, uint64_t heap_header, uint64_t heap_bytes);
void image_free(struct image *image);

/* Appends a live or a free chunk; a free one is linked at the front of `bin` as
 * malloc does. Returns its address. Two free chunks may not be neighbours. */
uintptr_t image_live(struct image *image, uint64_t size);
uintptr_t image_free_chunk(struct image *image, uint64_t size, unsigned bin);

/* Appends a fastbin chunk of `size` and pushes it; `protected_links` as from 2.32 on. */
uintptr_t image_fast(struct image *image, uint64_t size, bool protected_links);

/* The rest of the heap becomes top. Call last. */
void image_finish(struct image *image);

/* As malloc and free would, later: takes the chunk out of its list (it becomes live),
 * puts it back at the front of `bin`. The caller holds the arena's lock if others look. */
void image_unlink(const struct image *image, uintptr_t chunk);
void image_link(const struct image *image, uintptr_t chunk, unsigned bin);

static inline void image_set(uintptr_t address, uint64_t word) {
  __atomic_store_n((uint64_t *)address, word, __ATOMIC_RELAXED);
}

#endif
