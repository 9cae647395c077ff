#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "os/os.h"
#include "tap.h"

static void mappings_are_sorted_and_found(void) {
  const size_t page = gb_os_page_size();
  char *three = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(three + page, page, PROT_READ);
  struct gb_maps maps = {0};
  CHECK_EQUAL(gb_os_maps_read(&maps), GB_OK);
  for (size_t i = 1; i < maps.count; ++i)
    CHECK(maps.entries[i - 1].end <= maps.entries[i].start);
  const uintptr_t start = (uintptr_t)three;
  CHECK(gb_os_maps_cover(&maps, start, start + 3 * page, false));
  CHECK(!gb_os_maps_cover(&maps, start, start + 3 * page, true));
  CHECK(gb_os_maps_cover(&maps, start, start + page, true));
  CHECK(gb_os_maps_cover(&maps, start + 5, start + 5, true));
  CHECK(!gb_os_maps_cover(&maps, start + 5, start + 4, true));
  munmap(three, 3 * page);
  CHECK_EQUAL(gb_os_maps_read(&maps), GB_OK);
  CHECK(!gb_os_maps_cover(&maps, start, start + page, false));
  CHECK(gb_os_maps_find(&maps, 1) == NULL);
  CHECK(gb_os_maps_find(&maps, UINTPTR_MAX) == NULL);
  gb_os_maps_free(&maps);
}

/* More mappings than one read and the first table hold. */
static void thousands_of_mappings_are_read(void) {
  enum { COUNT = 3000 };
  const size_t page = gb_os_page_size();
  char *all = mmap(NULL, 2 * COUNT * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t i = 0; i < COUNT; ++i)
    mprotect(all + 2 * i * page, page, PROT_NONE);
  struct gb_maps maps = {0};
  CHECK_EQUAL(gb_os_maps_read(&maps), GB_OK);
  CHECK(maps.count >= 2 * COUNT);
  for (size_t i = 0; i < COUNT; ++i) {
    const uintptr_t closed = (uintptr_t)all + 2 * i * page;
    CHECK(!gb_os_maps_cover(&maps, closed, closed + page, false));
    CHECK(gb_os_maps_cover(&maps, closed + page, closed + 2 * page, true));
  }
  gb_os_maps_free(&maps);
  munmap(all, 2 * COUNT * page);
}

/* Touched, untouched, released, unmapped and zero pages, over every source. */
static void each_source_sees_what_is_resident(void) {
  enum { PAGES = 1500 };
  const size_t page = gb_os_page_size();
  char *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, PAGES * page, MADV_NOHUGEPAGE);
  bool expected[PAGES] = {false};
  for (size_t i = 0; i < PAGES; i += 3) {
    memory[i * page] = 1;
    expected[i] = true;
  }
  madvise(memory + 300 * page, 100 * page, MADV_DONTNEED);
  munmap(memory + 700 * page, 50 * page);
  for (size_t i = 300; i < 400; ++i)
    expected[i] = false;
  for (size_t i = 700; i < 750; ++i)
    expected[i] = false;
  const volatile char *zero = memory + 1 * page; /* a read maps the shared zero page */
  CHECK_EQUAL(*zero, 0);

  unsigned tried = 0;
  for (int source = GB_RESIDENCY_SCAN; source < GB_RESIDENCY_NONE; ++source) {
    struct gb_residency residency;
    if (gb_os_residency_open(&residency, (enum gb_residency_source)source) != GB_OK ||
        (int)residency.source != source) {
      printf("# skip %s: not on this kernel\n", gb_os_residency_name((enum gb_residency_source)source));
      continue;
    }
    ++tried;
    uint64_t resident[(PAGES + 63) / 64];
    uint64_t swapped[(PAGES + 63) / 64];
    CHECK_EQUAL(gb_os_residency_query(&residency, (uintptr_t)memory, PAGES, resident, swapped), GB_OK);
    for (size_t i = 0; i < PAGES; ++i) {
      const bool there = ((resident[i / 64] | swapped[i / 64]) >> (i % 64) & 1) != 0;
      if (i == 1 && source != GB_RESIDENCY_SCAN)
        continue; /* the other sources cannot tell a zero page */
      CHECK_EQUAL(there, expected[i]);
    }
    gb_os_residency_close(&residency);
  }
  CHECK(tried > 0);
  munmap(memory, PAGES * page);
}

static void signals_are_blocked_and_restored(void) {
  struct gb_signals saved;
  sigset_t now;
  gb_os_signals_block(&saved);
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  CHECK(sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGUSR1) == 1);
  gb_os_signals_restore(&saved);
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  CHECK(sigismember(&now, SIGTERM) == 0 && sigismember(&now, SIGUSR1) == 0);
}

static void memory_grows_and_keeps_its_content(void) {
  const size_t page = gb_os_page_size();
  unsigned char *memory = gb_os_grow(NULL, 0, page);
  memset(memory, 7, page);
  memory = gb_os_grow(memory, page, 64 * page);
  CHECK(memory[0] == 7 && memory[page - 1] == 7 && memory[page] == 0);
  gb_os_free(memory, 64 * page);
  gb_os_free(NULL, page);
  CHECK(gb_os_alloc((size_t)1 << 62) == NULL);
}

static void features_are_probed_without_side_effects(void) {
  struct gb_kernel_features features;
  gb_os_probe_features(&features);
  CHECK(features.mincore != GB_FEATURE_UNTRIED);
  CHECK(features.seccomp >= -1);
}

int main(void) {
  RUN(mappings_are_sorted_and_found);
  RUN(thousands_of_mappings_are_read);
  RUN(each_source_sees_what_is_resident);
  RUN(signals_are_blocked_and_restored);
  RUN(memory_grows_and_keeps_its_content);
  RUN(features_are_probed_without_side_effects);
  FINISH();
}
