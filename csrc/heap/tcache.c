#include "heap/tcache.h"

#include <stdlib.h>

#include "base/align.h"
#include "heap/arena.h"
#include "heap/layout.h"

/* Thread-locals of the libraries loaded at start lie this close to the thread pointer. */
#define TLS_BYTES 4096u
/* More chunks than a list may hold by tunables (UINT16_MAX). */
#define MAX_CHUNKS_A_LIST UINT64_C(65535)

/* tcache_perthread_struct of malloc.c. */
struct tcache_layout {
  size_t lists;
  size_t entries; /* offset of the first list's head */
};
static const struct tcache_layout layouts[] = {
    {64, 128}, /* 2.30 to 2.41: u16 counts[64] before it */
    {76, 152}, /* 2.42 on: 64 small lists and 12 of powers of two */
};

static bool is_block(const struct gb_maps *maps, uintptr_t address, size_t bytes) {
  return gb_is_aligned(address, GB_CHUNK_ALIGN) && address > GB_CHUNK_HEADER &&
         gb_os_maps_cover(maps, address - GB_CHUNK_HEADER, address + bytes, true);
}

/* The size that the chunk around a block has, 0 if it cannot be one. */
static uint64_t chunk_size(const struct gb_maps *maps, uintptr_t block) {
  if (!is_block(maps, block, GB_CHUNK_HEADER))
    return 0;
  const uint64_t size = gb_load(block - 8) & ~GB_SIZE_FLAGS;
  return size >= GB_CHUNK_MIN && gb_is_aligned(size, GB_CHUNK_ALIGN) ? size : 0;
}

/* From 2.32 on links are XORed with their own address / 4096; the last one of a list tells. */
static uintptr_t next_of(uintptr_t block, bool protected_links) {
  const uintptr_t link = gb_load(block);
  return protected_links ? link ^ (block >> 12) : link;
}

static bool count_list(const struct gb_maps *maps, uintptr_t block, bool protected_links,
                       struct gb_tcache *tcache) {
  uint64_t chunks = 0;
  for (; block != 0; block = next_of(block, protected_links)) {
    const uint64_t size = chunk_size(maps, block);
    if (size == 0 || ++chunks > MAX_CHUNKS_A_LIST)
      return false;
    tcache->bytes += size;
  }
  tcache->chunks += chunks;
  return true;
}

static bool count_all(const struct gb_maps *maps, uintptr_t cache, const struct tcache_layout *layout,
                      bool protected_links, struct gb_tcache *tcache) {
  *tcache = (struct gb_tcache){0};
  for (size_t i = 0; i < layout->lists; ++i) {
    if (!count_list(maps, gb_load(cache + layout->entries + i * 8), protected_links, tcache))
      return false;
  }
  tcache->visible = true;
  return true;
}

void gb_tcache_look(const struct gb_maps *maps, struct gb_tcache *tcache) {
  *tcache = (struct gb_tcache){0};
  const uintptr_t thread = (uintptr_t)__builtin_thread_pointer();
  /* x86-64 keeps thread-locals below the thread pointer, aarch64 above. */
  const uintptr_t start = gb_align_down(thread, 8) - TLS_BYTES;
  const uintptr_t end = start + 2 * (uintptr_t)TLS_BYTES;

  void *volatile block = malloc(GB_CHUNK_MIN - 8);
  const uintptr_t freed = (uintptr_t)block;
  free(block);
  if (freed == 0)
    return;

  for (uintptr_t at = start; at < end; at += 8) {
    if (!gb_os_maps_cover(maps, at, at + 8, true))
      continue;
    const uintptr_t cache = gb_load(at);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; ++i) {
      const struct tcache_layout *layout = &layouts[i];
      if (!is_block(maps, cache, layout->entries + layout->lists * 8) ||
          gb_load(cache + layout->entries) != freed)
        continue;
      if (count_all(maps, cache, layout, true, tcache) || count_all(maps, cache, layout, false, tcache))
        return;
      *tcache = (struct gb_tcache){0};
    }
  }
}
