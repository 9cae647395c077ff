/* Which pages of this process are in memory. Three sources, best first; see
 * Documentation/admin-guide/mm/pagemap.rst of the kernel for the first two. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/bits.h"
#include "os/os.h"

/* The kernel's interface of PAGEMAP_SCAN (Linux 6.7), declared here because the
 * headers of many build machines are older than the kernels we run on. */
struct pagemap_region {
  uint64_t start;
  uint64_t end;
  uint64_t categories;
};
struct pagemap_scan {
  uint64_t size;
  uint64_t flags;
  uint64_t start;
  uint64_t end;
  uint64_t walk_end;
  uint64_t regions;
  uint64_t regions_length;
  uint64_t max_pages;
  uint64_t category_inverted;
  uint64_t category_mask;
  uint64_t category_anyof_mask;
  uint64_t return_mask;
};
#define PAGEMAP_SCAN_REQUEST _IOWR('f', 16, struct pagemap_scan)
#define PAGE_PRESENT (UINT64_C(1) << 3)
#define PAGE_SWAPPED (UINT64_C(1) << 4)
#define PAGE_ZERO (UINT64_C(1) << 5)

#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)

/* 6 KiB of stack: a 64 MiB heap that is resident throughout needs one region. */
#define REGIONS_A_CALL 256u
/* 4 KiB of stack. */
#define ENTRIES_A_READ 512u

static bool query_scan(int fd, uintptr_t start, size_t pages, uint64_t *resident, uint64_t *swapped) {
  const size_t page = gb_os_page_size();
  struct pagemap_region regions[REGIONS_A_CALL];
  struct pagemap_scan scan = {
      .size = sizeof scan,
      .start = start,
      .end = start + pages * page,
      .regions = (uint64_t)(uintptr_t)regions,
      .regions_length = REGIONS_A_CALL,
      .category_anyof_mask = PAGE_PRESENT | PAGE_SWAPPED,
      .return_mask = PAGE_PRESENT | PAGE_SWAPPED | PAGE_ZERO,
  };
  while (scan.start < scan.end) {
    int filled = ioctl(fd, PAGEMAP_SCAN_REQUEST, &scan);
    if (filled < 0 || scan.walk_end <= scan.start || scan.walk_end > scan.end)
      return false;
    for (int i = 0; i < filled; ++i) {
      const struct pagemap_region *region = &regions[i];
      if (region->start < start || region->end > scan.end || region->start > region->end)
        return false;
      size_t first = (region->start - start) / page;
      size_t count = (region->end - region->start) / page;
      if ((region->categories & PAGE_SWAPPED) != 0)
        gb_set_bits(swapped, first, count);
      else if ((region->categories & PAGE_ZERO) == 0)
        gb_set_bits(resident, first, count);
    }
    scan.start = scan.walk_end;
  }
  return true;
}

static bool query_pagemap(int fd, uintptr_t start, size_t pages, uint64_t *resident, uint64_t *swapped) {
  const size_t page = gb_os_page_size();
  uint64_t entries[ENTRIES_A_READ];
  for (size_t done = 0; done < pages;) {
    size_t want = pages - done < ENTRIES_A_READ ? pages - done : ENTRIES_A_READ;
    off_t offset = (off_t)((start / page + done) * sizeof entries[0]);
    ssize_t got = pread(fd, entries, want * sizeof entries[0], offset);
    if (got <= 0)
      return false;
    size_t count = (size_t)got / sizeof entries[0];
    for (size_t i = 0; i < count; ++i) {
      if ((entries[i] & ENTRY_PRESENT) != 0)
        gb_set_bits(resident, done + i, 1);
      else if ((entries[i] & ENTRY_SWAPPED) != 0)
        gb_set_bits(swapped, done + i, 1);
    }
    done += count;
  }
  return true;
}

/* mincore fails with ENOMEM as a whole if a page of the range is unmapped, so the
 * range is halved until it succeeds or is one unmapped page. */
static bool query_mincore(uintptr_t start, size_t pages, uint64_t *resident) {
  const size_t page = gb_os_page_size();
  unsigned char present[ENTRIES_A_READ];
  for (size_t done = 0; done < pages;) {
    size_t want = pages - done < ENTRIES_A_READ ? pages - done : ENTRIES_A_READ;
    while (mincore((void *)(start + done * page), want * page, present) != 0) {
      if (errno != ENOMEM)
        return false;
      if (want == 1) {
        present[0] = 0;
        break;
      }
      want /= 2;
    }
    for (size_t i = 0; i < want; ++i) {
      if ((present[i] & 1) != 0)
        gb_set_bits(resident, done + i, 1);
    }
    done += want;
  }
  return true;
}

enum gb_status gb_os_residency_query(const struct gb_residency *residency, uintptr_t start, size_t pages,
                                     uint64_t *resident, uint64_t *swapped) {
  const size_t bytes = (pages + 63) / 64 * sizeof *resident;
  memset(resident, 0, bytes);
  memset(swapped, 0, bytes);
  bool done = false;
  switch (residency->source) {
  case GB_RESIDENCY_SCAN:
    done = query_scan(residency->fd, start, pages, resident, swapped);
    break;
  case GB_RESIDENCY_PAGEMAP:
    done = query_pagemap(residency->fd, start, pages, resident, swapped);
    break;
  case GB_RESIDENCY_MINCORE:
    done = query_mincore(start, pages, resident);
    break;
  case GB_RESIDENCY_NONE:
    break;
  }
  return done ? GB_OK : GB_NO_RESIDENCY;
}

/* A source works if it says of a page of our stack that it is there. Asked in every pass, so no page is
 * touched for it that was not in use before. */
static bool answers(const struct gb_residency *residency) {
  volatile char probe = 1;
  const uintptr_t at = (uintptr_t)&probe;
  uint64_t resident;
  uint64_t swapped;
  const enum gb_status status =
      gb_os_residency_query(residency, at - at % gb_os_page_size(), 1, &resident, &swapped);
  return status == GB_OK && (resident | swapped) == 1;
}

enum gb_status gb_os_residency_open(struct gb_residency *residency, enum gb_residency_source first) {
  residency->fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  residency->has_file = residency->fd >= 0;
  for (int source = (int)first; source < GB_RESIDENCY_NONE; ++source) {
    residency->source = (enum gb_residency_source)source;
    bool needs_file = residency->source != GB_RESIDENCY_MINCORE;
    if ((!needs_file || residency->has_file) && answers(residency))
      return GB_OK;
  }
  gb_os_residency_close(residency);
  return GB_NO_RESIDENCY;
}

static bool anything_is_swapped(void) {
  struct sysinfo machine;
  return sysinfo(&machine) != 0 || machine.freeswap != machine.totalswap;
}

enum gb_status gb_os_residency_open_fast(struct gb_residency *residency, enum gb_residency_source first) {
  const enum gb_status status = gb_os_residency_open(residency, first);
  if (status != GB_OK || residency->source != GB_RESIDENCY_PAGEMAP || anything_is_swapped())
    return status;
  struct gb_residency fast;
  if (gb_os_residency_open(&fast, GB_RESIDENCY_MINCORE) == GB_OK) {
    gb_os_residency_close(residency);
    *residency = fast;
  }
  return GB_OK;
}

void gb_os_residency_close(struct gb_residency *residency) {
  if (residency->has_file)
    (void)close(residency->fd);
  residency->has_file = false;
  residency->source = GB_RESIDENCY_NONE;
}

const char *gb_os_residency_name(enum gb_residency_source source) {
  switch (source) {
  case GB_RESIDENCY_SCAN:
    return "PAGEMAP_SCAN";
  case GB_RESIDENCY_PAGEMAP:
    return "pagemap";
  case GB_RESIDENCY_MINCORE:
    return "mincore";
  case GB_RESIDENCY_NONE:
    break;
  }
  return "none";
}
