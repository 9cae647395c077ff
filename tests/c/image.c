#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/align.h"

static void require(bool condition, const char *what) {
  if (!condition) {
    printf("Bail out! image: %s\n", what);
    abort();
  }
}

void image_init(struct image *image, unsigned layout_index, uint64_t heap_header, uint64_t heap_bytes) {
  *image = (struct image){.heap_header = heap_header, .heap_bytes = heap_bytes};
  require(gb_layout_known(layout_index, &image->layout), "no such layout");
  image->reserved =
      mmap(NULL, 2 * GB_HEAP_MAX, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(image->reserved != MAP_FAILED, "no address space");
  image->heap = gb_align_up((uintptr_t)image->reserved, GB_HEAP_MAX);
  require(mprotect((void *)image->heap, heap_bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
  image->arena = image->heap + heap_header;
  image_set(image->heap + GB_HEAP_ARENA, image->arena);
  image_set(image->heap + GB_HEAP_SIZE, heap_bytes);
  for (unsigned bin = 1; bin <= GB_BINS; ++bin) {
    uintptr_t head = gb_bin_head(&image->layout, image->arena, bin);
    image_set(head + GB_CHUNK_FD, head);
    image_set(head + GB_CHUNK_BK, head);
  }
  image_set(image->arena + image->layout.next, image->arena);
  image_set(image->arena + image->layout.attached_threads, 1);
  image_set(image->arena + image->layout.system_mem, heap_bytes);
  image_set(image->arena + image->layout.max_system_mem, heap_bytes);
  image->at = gb_align_up(image->arena + image->layout.size, GB_CHUNK_ALIGN);
}

void image_free(struct image *image) {
  munmap(image->reserved, 2 * GB_HEAP_MAX);
}

static uintptr_t append(struct image *image, uint64_t size, bool is_free) {
  const uintptr_t chunk = image->at;
  require(chunk + size + GB_CHUNK_MIN < image->heap + image->heap_bytes, "heap is full");
  require(!(is_free && image->previous_free), "two free neighbours");
  if (image->previous_free)
    image_set(chunk, image->previous_size);
  uint64_t flags = image->previous_free ? 0 : GB_PREV_INUSE;
  if (!is_free)
    flags |= GB_NON_MAIN_ARENA;
  image_set(chunk + GB_CHUNK_SIZE, size | flags);
  image->previous_free = is_free;
  image->previous_size = size;
  image->at += size;
  return chunk;
}

uintptr_t image_live(struct image *image, uint64_t size) {
  return append(image, size, false);
}

void image_link(const struct image *image, uintptr_t chunk, unsigned bin) {
  const uintptr_t head = gb_bin_head(&image->layout, image->arena, bin);
  const uintptr_t first = gb_load(head + GB_CHUNK_FD);
  const uint64_t size = gb_load(chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  image_set(chunk + GB_CHUNK_SIZE, size | GB_PREV_INUSE);
  image_set(chunk + GB_CHUNK_FD, first);
  image_set(chunk + GB_CHUNK_BK, head);
  image_set(first + GB_CHUNK_BK, chunk);
  image_set(head + GB_CHUNK_FD, chunk);
  image_set(chunk + size, size);
  image_set(chunk + size + GB_CHUNK_SIZE, gb_load(chunk + size + GB_CHUNK_SIZE) & ~GB_PREV_INUSE);
}

void image_unlink(const struct image *image, uintptr_t chunk) {
  (void)image;
  const uint64_t size = gb_load(chunk + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS;
  const uintptr_t next = gb_load(chunk + GB_CHUNK_FD);
  const uintptr_t previous = gb_load(chunk + GB_CHUNK_BK);
  image_set(previous + GB_CHUNK_FD, next);
  image_set(next + GB_CHUNK_BK, previous);
  image_set(chunk + size + GB_CHUNK_SIZE, gb_load(chunk + size + GB_CHUNK_SIZE) | GB_PREV_INUSE);
}

uintptr_t image_free_chunk(struct image *image, uint64_t size, unsigned bin) {
  const uintptr_t chunk = append(image, size, true);
  image_link(image, chunk, bin);
  uintptr_t start;
  uintptr_t end;
  gb_interior(chunk, size, gb_os_page_size(), &start, &end);
  if (start < end)
    image->whole_bytes += end - start;
  image->free_bytes += size;
  ++image->free_chunks;
  return chunk;
}

uintptr_t image_fast(struct image *image, uint64_t size, bool protected_links) {
  require(image->layout.fastbins != 0, "this layout has no fastbins");
  const uintptr_t chunk = append(image, size, false);
  const uintptr_t head = image->arena + image->layout.fastbins + ((size >> 4) - 2) * 8;
  const uintptr_t key = protected_links ? (chunk + GB_CHUNK_FD) >> 12 : 0;
  image_set(chunk + GB_CHUNK_FD, gb_load(head) ^ key);
  image_set(head, chunk);
  return chunk;
}

void image_finish(struct image *image) {
  const uintptr_t top = image->at;
  const uint64_t size = image->heap + image->heap_bytes - top;
  if (image->previous_free)
    image_set(top, image->previous_size);
  image_set(top + GB_CHUNK_SIZE, size | (image->previous_free ? 0 : GB_PREV_INUSE));
  image_set(image->arena + image->layout.top, top);
}
