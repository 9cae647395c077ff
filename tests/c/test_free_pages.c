#include "heap/free_pages.h"

#include <sys/mman.h>

#include "tap.h"

#define BLOCK (UINT64_C(64) << 20)

static struct gb_page_figures measure(struct gb_free_pages *pages) {
  struct gb_page_figures figures = {0};
  struct gb_residency residency;
  CHECK_EQUAL(gb_os_residency_open(&residency, GB_RESIDENCY_SCAN), GB_OK);
  CHECK_EQUAL(gb_free_pages_measure(pages, &residency, &figures), GB_OK);
  gb_os_residency_close(&residency);
  return figures;
}

static void adding_twice_counts_once(void) {
  const size_t page = gb_os_page_size();
  struct gb_free_pages pages;
  CHECK_EQUAL(gb_free_pages_init(&pages), GB_OK);
  const uintptr_t start = UINT64_C(0x100000000000);
  CHECK_EQUAL(gb_free_pages_add(&pages, start, start + 10 * page), GB_OK);
  CHECK_EQUAL(gb_free_pages_add(&pages, start + 5 * page, start + 15 * page), GB_OK);
  struct gb_page_figures figures = measure(&pages);
  CHECK_EQUAL(figures.whole, 15 * page);
  CHECK_EQUAL(figures.resident, 0);
  gb_free_pages_clear(&pages);
  CHECK_EQUAL(measure(&pages).whole, 0);
  gb_free_pages_free(&pages);
}

static void ranges_cross_blocks_and_tables_grow(void) {
  const size_t page = gb_os_page_size();
  struct gb_free_pages pages;
  CHECK_EQUAL(gb_free_pages_init(&pages), GB_OK);
  uint64_t expected = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    const uintptr_t start = UINT64_C(0x200000000000) + i * 3 * BLOCK + BLOCK - page;
    CHECK_EQUAL(gb_free_pages_add(&pages, start, start + BLOCK + 2 * page), GB_OK);
    expected += BLOCK + 2 * page;
  }
  CHECK_EQUAL(measure(&pages).whole, expected);
  gb_free_pages_free(&pages);
}

static void only_what_is_resident_is_counted_as_such(void) {
  const size_t page = gb_os_page_size();
  const size_t bytes = 40000 * page;
  char *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  struct gb_free_pages pages;
  CHECK_EQUAL(gb_free_pages_init(&pages), GB_OK);
  uint64_t resident = 0;
  uint64_t whole = 0;
  for (size_t i = 0; i + 7 < 40000; i += 7) {
    memory[i * page] = 1; /* in the set */
    memory[(i + 5) * page] = 1; /* not in it */
    const uintptr_t start = (uintptr_t)memory + i * page;
    CHECK_EQUAL(gb_free_pages_add(&pages, start, start + 3 * page), GB_OK);
    resident += page;
    whole += 3 * page;
  }
  struct gb_page_figures figures = measure(&pages);
  CHECK_EQUAL(figures.whole, whole);
  CHECK_EQUAL(figures.resident + figures.swapped, resident);
  gb_free_pages_free(&pages);
  munmap(memory, bytes);
}

int main(void) {
  RUN(adding_twice_counts_once);
  RUN(ranges_cross_blocks_and_tables_grow);
  RUN(only_what_is_resident_is_counted_as_such);
  FINISH();
}
