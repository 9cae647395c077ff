#include "heap/derive.h"

#include <string.h>

#include "base/align.h"

/* libc's writable data is 20-60 KB; anything much larger is not a libc we know. */
#define MAX_DATA_BYTES (UINT64_C(4) << 20)
#define WINDOW_WORDS 512u

static uint64_t word_at(const unsigned char *copy, size_t offset) {
  uint64_t word;
  memcpy(&word, copy + offset, sizeof word);
  return word;
}

static uint32_t half_at(const unsigned char *copy, size_t offset) {
  uint32_t half;
  memcpy(&half, copy + offset, sizeof half);
  return half;
}

/* Evidence 3 for one arena. A running program may be writing to it: torn values
 * can make this fail, in which case deriving is simply tried again. */
static bool arena_is_plausible(const struct gb_memory *memory, const struct gb_layout *layout,
                               uintptr_t arena) {
  unsigned char copy[GB_ARENA_MAX_SIZE];
  if (!memory->read(memory, arena, copy, layout->size))
    return false;
  if (half_at(copy, GB_ARENA_MUTEX) > 2)
    return false;
  /* Bits ever used: FASTCHUNKS (until 2.26), NONCONTIGUOUS, ARENA_CORRUPTION (until 2.26). */
  if (half_at(copy, GB_ARENA_FLAGS) > 7)
    return false;
  if (word_at(copy, layout->system_mem) > word_at(copy, layout->max_system_mem))
    return false;
  if (!gb_is_aligned(word_at(copy, layout->top), 8))
    return false;
  for (unsigned bin = 1; bin <= GB_BINS; ++bin) {
    uintptr_t head = gb_bin_head(layout, arena, bin);
    uint64_t first = word_at(copy, layout->bins + (size_t)(bin - 1) * 16);
    uint64_t last = word_at(copy, layout->bins + (size_t)(bin - 1) * 16 + 8);
    if (first == 0 || last == 0 || (first == head) != (last == head))
      return false;
    if (!gb_is_aligned(first, 8) || !gb_is_aligned(last, 8))
      return false;
    if (bin == GB_BIN_NEVER_USED && first != head)
      return false;
  }
  return true;
}

/* Evidence 4. */
static uint64_t heap_header_of(const struct gb_memory *memory, uintptr_t arena) {
  uint64_t distance = arena & (GB_HEAP_MAX - 1);
  if (distance != GB_HEAP_HEADER_OLD && distance != GB_HEAP_HEADER_NEW)
    return 0;
  uint64_t owner;
  if (!gb_read_word(memory, arena - distance + GB_HEAP_ARENA, &owner) || owner != arena)
    return 0;
  return distance;
}

/* Evidence 2, 3 and 4 for the ring that starts at `glibc->main_arena`. */
static bool ring_is_plausible(const struct gb_memory *memory, struct gb_glibc *glibc) {
  uintptr_t arena = glibc->main_arena;
  for (size_t steps = 0; steps < GB_MAX_ARENAS; ++steps) {
    if (arena != glibc->main_arena) {
      uint64_t header = heap_header_of(memory, arena);
      if (header == 0 || (glibc->heap_header != 0 && header != glibc->heap_header))
        return false;
      glibc->heap_header = header;
    }
    if (!arena_is_plausible(memory, &glibc->layout, arena))
      return false;
    if (!gb_read_word(memory, arena + glibc->layout.next, &arena))
      return false;
    if (arena == glibc->main_arena)
      return true;
  }
  return false;
}

/* Tries the candidate of evidence 1 with every known layout. */
static unsigned try_candidate(const struct gb_memory *memory, uintptr_t never_used_bin,
                              struct gb_glibc *glibc, struct gb_glibc *found) {
  const uintptr_t bins = never_used_bin - (uintptr_t)(GB_BIN_NEVER_USED - 1) * 16;
  unsigned matches = 0;
  struct gb_layout layout;
  for (unsigned i = 0; gb_layout_known(i, &layout); ++i) {
    struct gb_glibc trial = *glibc;
    trial.layout = layout;
    trial.main_arena = bins - layout.bins;
    if (trial.main_arena < glibc->data_start || trial.main_arena + layout.size > glibc->data_end)
      continue;
    if (ring_is_plausible(memory, &trial)) {
      *found = trial;
      ++matches;
    }
  }
  return matches;
}

enum gb_status gb_derive(const struct gb_memory *memory, uintptr_t data_start, uintptr_t data_end,
                         struct gb_glibc *glibc) {
  data_start = gb_align_up(data_start, 8);
  if (data_end <= data_start || data_end - data_start > MAX_DATA_BYTES)
    return GB_UNKNOWN_LAYOUT;

  struct gb_glibc trial = {.data_start = data_start, .data_end = data_end};
  unsigned matches = 0;
  uint64_t window[WINDOW_WORDS];
  for (uintptr_t at = data_start; at + 16 <= data_end;) {
    size_t bytes = data_end - at < sizeof window ? (data_end - at) & ~(size_t)7 : sizeof window;
    if (!memory->read(memory, at, window, bytes))
      return GB_UNKNOWN_LAYOUT;
    const size_t words = bytes / 8;
    for (size_t i = 0; i + 1 < words; ++i) {
      uintptr_t address = at + i * 8;
      if (window[i] == address - GB_CHUNK_FD && window[i + 1] == window[i])
        matches += try_candidate(memory, address, &trial, glibc);
    }
    /* The last word is looked at again: a pair may lie across two windows. */
    at += words < WINDOW_WORDS ? bytes : bytes - 8;
  }
  return matches == 1 ? GB_OK : GB_UNKNOWN_LAYOUT;
}

enum gb_status gb_arenas(const struct gb_memory *memory, struct gb_glibc *glibc, uintptr_t *arenas,
                         size_t capacity, size_t *count) {
  uintptr_t arena = glibc->main_arena;
  *count = 0;
  do {
    if (*count == GB_MAX_ARENAS)
      return GB_DOUBT_ARENA;
    if (*count < capacity)
      arenas[*count] = arena;
    ++*count;
    if (!gb_read_word(memory, arena + glibc->layout.next, &arena))
      return GB_STALE;
    if (arena == glibc->main_arena)
      return GB_OK;
    uint64_t header = heap_header_of(memory, arena);
    if (header == 0)
      return GB_STALE;
    if (glibc->heap_header != 0 && glibc->heap_header != header)
      return GB_DOUBT_ARENA;
    glibc->heap_header = header;
  } while (true);
}

/* Offsets of the fields of mp_, relative to its start. */
struct parameters_layout {
  uint16_t bins; /* of the malloc_state it goes with */
  uint16_t thp_pagesize; /* 0: has neither */
  uint16_t hp_pagesize;
  uint16_t mmapped_chunks; /* int */
  uint16_t mmapped_chunks_max; /* int */
  uint16_t mmapped_bytes;
  uint16_t mmapped_bytes_max;
  uint16_t sbrk_base;
};
static const struct parameters_layout parameters_layouts[] = {
    {112, 0, 0, 40, 44, 56, 64, 72}, /* up to 2.34 */
    {112, 40, 48, 60, 64, 80, 88, 96}, /* 2.35 to 2.42 */
    {24, 48, 56, 68, 72, 88, 96, 104}, /* 2.43 on */
};

static bool is_huge_page_size(uint64_t size) {
  return size == 0 || (size >= UINT64_C(65536) && size <= UINT64_C(1) << 40 && (size & (size - 1)) == 0);
}

static bool read_parameters(const struct gb_memory *memory, const struct parameters_layout *layout,
                            uintptr_t start, struct gb_parameters *parameters) {
  unsigned char copy[112];
  if (!memory->read(memory, start, copy, layout->sbrk_base + 8u))
    return false;
  *parameters = (struct gb_parameters){
      .known = true,
      .trim_threshold = word_at(copy, 0),
      .top_pad = word_at(copy, 8),
      .mmap_threshold = word_at(copy, 16),
      .thp_pagesize = layout->thp_pagesize != 0 ? word_at(copy, layout->thp_pagesize) : 0,
      .hp_pagesize = layout->hp_pagesize != 0 ? word_at(copy, layout->hp_pagesize) : 0,
      .mmapped_chunks = half_at(copy, layout->mmapped_chunks),
      .mmapped_bytes = word_at(copy, layout->mmapped_bytes),
  };
  const uint64_t chunks_max = half_at(copy, layout->mmapped_chunks_max);
  return is_huge_page_size(parameters->thp_pagesize) && is_huge_page_size(parameters->hp_pagesize) &&
         parameters->mmap_threshold >= 1 && parameters->mmapped_chunks <= chunks_max &&
         gb_is_aligned(parameters->mmapped_bytes, 4096) &&
         parameters->mmapped_bytes <= word_at(copy, layout->mmapped_bytes_max) &&
         (parameters->mmapped_chunks == 0) == (parameters->mmapped_bytes == 0);
}

void gb_derive_parameters(const struct gb_memory *memory, const struct gb_glibc *glibc, uintptr_t sbrk_base,
                          struct gb_parameters *parameters) {
  *parameters = (struct gb_parameters){0};
  struct gb_parameters found = {0};
  unsigned matches = 0;
  for (uintptr_t at = glibc->data_start; at + 8 <= glibc->data_end; at += 8) {
    uint64_t word;
    if (!gb_read_word(memory, at, &word))
      return;
    if (word != sbrk_base)
      continue;
    for (size_t i = 0; i < sizeof parameters_layouts / sizeof parameters_layouts[0]; ++i) {
      const struct parameters_layout *layout = &parameters_layouts[i];
      struct gb_parameters trial;
      if (layout->bins == glibc->layout.bins && at >= glibc->data_start + layout->sbrk_base &&
          read_parameters(memory, layout, at - layout->sbrk_base, &trial)) {
        found = trial;
        ++matches;
      }
    }
  }
  if (matches == 1)
    *parameters = found;
}
