#include "heap/layout.h"

#include "tap.h"

/* Independent of the table in layout.c: the largest size of some bins, as malloc_info
 * of a glibc prints them ("to" of each size range). */
static void bins_hold_the_sizes_that_malloc_info_prints(void) {
  static const struct {
    uint64_t from, to;
    unsigned bin;
  } ranges[] = {
      {32, 32, 2},           {1008, 1008, 63},
      {1024, 1087, 64},      {3072, 3135, 96},
      {3136, 3583, 97},      {10240, 10751, 111},
      {10752, 12287, 112},   {40960, 45055, 120},
      {45056, 65535, 120},   {65536, 98303, 121},
      {131072, 163839, 123}, {262144, 524287, 125},
      {524288, 786431, 126}, {786432, UINT64_C(1) << 50, 126},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; ++i) {
    CHECK_EQUAL(gb_bin_of_size(ranges[i].from), ranges[i].bin);
    CHECK_EQUAL(gb_bin_of_size(ranges[i].to), ranges[i].bin);
  }
}

static void bins_grow_with_size_and_never_reach_the_last(void) {
  unsigned before = 0;
  for (uint64_t size = GB_CHUNK_MIN; size < UINT64_C(1) << 22; size += GB_CHUNK_ALIGN) {
    unsigned bin = gb_bin_of_size(size);
    CHECK(bin >= before && bin < GB_BIN_NEVER_USED);
    before = bin;
  }
}

static void fields_of_each_layout_follow_each_other(void) {
  struct gb_layout layout;
  unsigned count = 0;
  for (; gb_layout_known(count, &layout); ++count) {
    CHECK_EQUAL(layout.bins, layout.top + 16);
    CHECK_EQUAL(layout.binmap, layout.bins + GB_BINS * 16);
    CHECK_EQUAL(layout.next, layout.binmap + GB_BINMAP_WORDS * 4);
    CHECK_EQUAL(layout.size, layout.max_system_mem + 8);
    CHECK(layout.size <= GB_ARENA_MAX_SIZE);
    struct gb_layout found;
    CHECK(gb_layout_of_bins(layout.bins, &found) && found.size == layout.size);
  }
  CHECK_EQUAL(count, 2);
  CHECK(!gb_layout_of_bins(64, &layout));
}

static void interiors_leave_the_header_and_the_next_chunk_alone(void) {
  uintptr_t start;
  uintptr_t end;
  for (uintptr_t chunk = 0x100000; chunk < 0x102000; chunk += 16) {
    for (uint64_t size = 32; size < 20000; size += 16) {
      gb_interior(chunk, size, 4096, &start, &end);
      if (start >= end)
        continue;
      CHECK(start >= chunk + GB_CHUNK_FREE_HEADER && end <= chunk + size);
      CHECK(start % 4096 == 0 && end % 4096 == 0);
    }
  }
}

int main(void) {
  RUN(bins_hold_the_sizes_that_malloc_info_prints);
  RUN(bins_grow_with_size_and_never_reach_the_last);
  RUN(fields_of_each_layout_follow_each_other);
  RUN(interiors_leave_the_header_and_the_next_chunk_alone);
  FINISH();
}
