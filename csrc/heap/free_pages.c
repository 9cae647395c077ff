#include "heap/free_pages.h"

#include <string.h>

#include "base/bits.h"

#define BLOCK_PAGES GB_RESIDENCY_MAX_PAGES
#define BLOCK_WORDS (BLOCK_PAGES / 64)
/* 256 MiB of heap before the first growth, 8 KiB of ours. */
#define FIRST_BLOCKS 4u

struct gb_page_block {
  uintptr_t number; /* address / bytes of a block */
  uint64_t bits[BLOCK_WORDS];
};

static size_t table_bytes(size_t capacity) {
  return capacity * sizeof(struct gb_page_block) + 2 * capacity * sizeof(uint32_t);
}

static size_t slot_of(uintptr_t number, size_t slots) {
  /* Fibonacci hashing; `slots` is a power of two. */
  return (size_t)((number * UINT64_C(11400714819323198485)) >> 32) & (slots - 1);
}

static void enter(struct gb_free_pages *pages, size_t block) {
  const size_t slots = 2 * pages->capacity;
  size_t slot = slot_of(pages->blocks[block].number, slots);
  while (pages->index[slot] != 0)
    slot = (slot + 1) & (slots - 1);
  pages->index[slot] = (uint32_t)block + 1;
}

static enum gb_status resize(struct gb_free_pages *pages, size_t capacity) {
  struct gb_page_block *blocks = gb_os_alloc(table_bytes(capacity));
  if (blocks == NULL)
    return GB_NO_MEMORY;
  if (pages->count > 0)
    memcpy(blocks, pages->blocks, pages->count * sizeof *blocks);
  gb_os_free(pages->blocks, table_bytes(pages->capacity));
  pages->blocks = blocks;
  pages->index = (uint32_t *)(void *)(blocks + capacity);
  pages->capacity = capacity;
  for (size_t i = 0; i < pages->count; ++i)
    enter(pages, i);
  return GB_OK;
}

enum gb_status gb_free_pages_init(struct gb_free_pages *pages) {
  *pages = (struct gb_free_pages){.page = gb_os_page_size()};
  return resize(pages, FIRST_BLOCKS);
}

void gb_free_pages_free(struct gb_free_pages *pages) {
  gb_os_free(pages->blocks, table_bytes(pages->capacity));
  *pages = (struct gb_free_pages){0};
}

void gb_free_pages_clear(struct gb_free_pages *pages) {
  memset(pages->index, 0, 2 * pages->capacity * sizeof *pages->index);
  pages->count = 0;
  pages->last = 0;
}

/* The block of this number, NULL if there is none. */
static struct gb_page_block *find_block(struct gb_free_pages *pages, uintptr_t number) {
  if (pages->last < pages->count && pages->blocks[pages->last].number == number)
    return &pages->blocks[pages->last];
  const size_t slots = 2 * pages->capacity;
  for (size_t slot = slot_of(number, slots); pages->index[slot] != 0; slot = (slot + 1) & (slots - 1)) {
    const size_t found = pages->index[slot] - 1;
    if (pages->blocks[found].number == number) {
      pages->last = found;
      return &pages->blocks[found];
    }
  }
  return NULL;
}

static struct gb_page_block *block_of(struct gb_free_pages *pages, uintptr_t number) {
  struct gb_page_block *known = find_block(pages, number);
  if (known != NULL)
    return known;
  if (pages->count == pages->capacity && resize(pages, 2 * pages->capacity) != GB_OK)
    return NULL;
  pages->last = pages->count++;
  struct gb_page_block *block = &pages->blocks[pages->last];
  memset(block, 0, sizeof *block);
  block->number = number;
  enter(pages, pages->last);
  return block;
}

enum gb_status gb_free_pages_add(struct gb_free_pages *pages, uintptr_t start, uintptr_t end) {
  uintptr_t first = start / pages->page;
  const uintptr_t last = end / pages->page;
  while (first < last) {
    const uintptr_t number = first / BLOCK_PAGES;
    const uintptr_t block_end = (number + 1) * BLOCK_PAGES;
    const uintptr_t stop = last < block_end ? last : block_end;
    struct gb_page_block *block = block_of(pages, number);
    if (block == NULL)
      return GB_NO_MEMORY;
    gb_set_bits(block->bits, first % BLOCK_PAGES, stop - first);
    first = stop;
  }
  return GB_OK;
}

static uint64_t count_common(const uint64_t *left, const uint64_t *right, size_t words) {
  uint64_t count = 0;
  for (size_t i = 0; i < words; ++i)
    count += (unsigned)__builtin_popcountll(left[i] & right[i]);
  return count;
}

bool gb_free_pages_next(struct gb_free_pages *pages, uintptr_t from, uintptr_t end, struct gb_span *run) {
  uintptr_t first = from / pages->page;
  const uintptr_t last = end / pages->page;
  while (first < last) {
    const uintptr_t number = first / BLOCK_PAGES;
    const uintptr_t block_end = (number + 1) * BLOCK_PAGES;
    const uintptr_t stop = last < block_end ? last : block_end;
    const struct gb_page_block *block = find_block(pages, number);
    if (block != NULL) {
      const size_t limit = stop - number * BLOCK_PAGES;
      const size_t start = gb_find_bit(block->bits, first % BLOCK_PAGES, limit, true);
      if (start < limit) {
        const size_t finish = gb_find_bit(block->bits, start, limit, false);
        run->start = (number * BLOCK_PAGES + start) * pages->page;
        run->end = (number * BLOCK_PAGES + finish) * pages->page;
        return true;
      }
    }
    first = stop;
  }
  return false;
}

void gb_free_pages_remove(struct gb_free_pages *pages, uintptr_t start, uintptr_t end) {
  uintptr_t first = start / pages->page;
  const uintptr_t last = end / pages->page;
  while (first < last) {
    const uintptr_t number = first / BLOCK_PAGES;
    const uintptr_t block_end = (number + 1) * BLOCK_PAGES;
    const uintptr_t stop = last < block_end ? last : block_end;
    struct gb_page_block *block = find_block(pages, number);
    if (block != NULL)
      gb_clear_bits(block->bits, first % BLOCK_PAGES, stop - first);
    first = stop;
  }
}

uint64_t gb_free_pages_bytes(const struct gb_free_pages *pages) {
  uint64_t count = 0;
  for (size_t i = 0; i < pages->count; ++i)
    count += count_common(pages->blocks[i].bits, pages->blocks[i].bits, BLOCK_WORDS);
  return count * pages->page;
}

uint64_t gb_free_pages_runs(const struct gb_free_pages *pages) {
  uint64_t runs = 0;
  for (size_t i = 0; i < pages->count; ++i) {
    uint64_t before = 0; /* the page before this word's first is in the set */
    for (size_t word = 0; word < BLOCK_WORDS; ++word) {
      const uint64_t bits = pages->blocks[i].bits[word];
      runs += (unsigned)__builtin_popcountll(bits & ~(bits << 1 | before));
      before = bits >> 63;
    }
  }
  return runs;
}

void gb_free_pages_intersect(struct gb_free_pages *pages, struct gb_free_pages *other) {
  for (size_t i = 0; i < pages->count; ++i) {
    struct gb_page_block *block = &pages->blocks[i];
    const struct gb_page_block *with = find_block(other, block->number);
    for (size_t word = 0; word < BLOCK_WORDS; ++word)
      block->bits[word] &= with == NULL ? 0 : with->bits[word];
  }
}

void gb_free_pages_subtract(struct gb_free_pages *pages, struct gb_free_pages *other) {
  for (size_t i = 0; i < pages->count; ++i) {
    struct gb_page_block *block = &pages->blocks[i];
    const struct gb_page_block *without = find_block(other, block->number);
    for (size_t word = 0; without != NULL && word < BLOCK_WORDS; ++word)
      block->bits[word] &= ~without->bits[word];
  }
}

enum gb_status gb_free_pages_unite(struct gb_free_pages *pages, const struct gb_free_pages *other) {
  for (size_t i = 0; i < other->count; ++i) {
    struct gb_page_block *block = block_of(pages, other->blocks[i].number);
    if (block == NULL)
      return GB_NO_MEMORY;
    for (size_t word = 0; word < BLOCK_WORDS; ++word)
      block->bits[word] |= other->blocks[i].bits[word];
  }
  return GB_OK;
}

/* What the kernel says of the part of a block that has pages of the set: words [*low, *high). */
static enum gb_status query_block(const struct gb_free_pages *pages, const struct gb_page_block *block,
                                  const struct gb_residency *residency, size_t *low, size_t *high,
                                  uint64_t *resident, uint64_t *swapped) {
  *low = 0;
  *high = BLOCK_WORDS;
  while (*low < *high && block->bits[*low] == 0)
    ++*low;
  while (*high > *low && block->bits[*high - 1] == 0)
    --*high;
  if (*low == *high)
    return GB_OK;
  const uintptr_t first_page = block->number * BLOCK_PAGES + *low * 64;
  return gb_os_residency_query(residency, first_page * pages->page, (*high - *low) * 64, resident, swapped);
}

enum gb_status gb_free_pages_filter(struct gb_free_pages *pages, const struct gb_residency *residency,
                                    bool resident) {
  uint64_t in_memory[BLOCK_WORDS];
  uint64_t swapped[BLOCK_WORDS];
  for (size_t i = 0; i < pages->count; ++i) {
    struct gb_page_block *block = &pages->blocks[i];
    size_t low;
    size_t high;
    const enum gb_status status = query_block(pages, block, residency, &low, &high, in_memory, swapped);
    if (status != GB_OK)
      return status;
    for (size_t word = low; word < high; ++word) {
      const uint64_t occupied = in_memory[word - low] | swapped[word - low];
      block->bits[word] &= resident ? occupied : ~occupied;
    }
  }
  return GB_OK;
}

enum gb_status gb_free_pages_measure(const struct gb_free_pages *pages, const struct gb_residency *residency,
                                     struct gb_page_figures *figures) {
  uint64_t resident[BLOCK_WORDS];
  uint64_t swapped[BLOCK_WORDS];
  for (size_t i = 0; i < pages->count; ++i) {
    const struct gb_page_block *block = &pages->blocks[i];
    size_t low;
    size_t high;
    const enum gb_status status = query_block(pages, block, residency, &low, &high, resident, swapped);
    if (status != GB_OK)
      return status;
    const uint64_t *bits = block->bits + low;
    const size_t words = high - low;
    figures->whole += count_common(bits, bits, words) * pages->page;
    figures->resident += count_common(bits, resident, words) * pages->page;
    figures->swapped += count_common(bits, swapped, words) * pages->page;
  }
  return GB_OK;
}
