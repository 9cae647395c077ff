#include "heap/layout.h"

/* fastbins, top, bins, binmap, next, attached_threads, system_mem, max_system_mem, size */
static const struct gb_layout known_layouts[] = {
    {16, 96, 112, 2144, 2160, 2176, 2184, 2192, 2200}, /* 2.27 to 2.42 */
    {0, 8, 24, 2056, 2072, 2088, 2096, 2104, 2112}, /* 2.43 on: no fastbins */
};

bool gb_layout_known(unsigned index, struct gb_layout *layout) {
  if (index >= sizeof known_layouts / sizeof known_layouts[0])
    return false;
  *layout = known_layouts[index];
  return true;
}

bool gb_layout_of_bins(uint64_t bins, struct gb_layout *layout) {
  for (unsigned i = 0; gb_layout_known(i, layout); ++i) {
    if (layout->bins == bins)
      return true;
  }
  return false;
}

unsigned gb_bin_of_size(uint64_t size) {
  /* largebin_index_64 of malloc.c: bins get coarser by powers of eight. */
  static const struct {
    uint64_t last;
    unsigned shift;
    unsigned base;
  } steps[] = {{48, 6, 48}, {20, 9, 91}, {10, 12, 110}, {4, 15, 119}, {2, 18, 124}};

  if (size < 1024)
    return (unsigned)(size >> 4);
  for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; ++i) {
    if (size >> steps[i].shift <= steps[i].last)
      return steps[i].base + (unsigned)(size >> steps[i].shift);
  }
  return 126;
}
