#include "heap/tcache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/align.h"
#include "heap/layout.h"
#include "heap/memory.h"

/* Thread-locals of the libraries loaded at start lie this close to the thread pointer. */
#define TLS_BYTES 4096u
/* More chunks than a list may hold by tunables (UINT16_MAX). */
#define MAX_CHUNKS_A_LIST UINT64_C(65535)

/* tcache_perthread_struct of malloc.c. */
struct tcache_layout {
  size_t lists;
  size_t entries; /* offset of the first list's head */
};
#define MAX_LISTS 76u
static const struct tcache_layout layouts[] = {
    {64, 128}, /* 2.30 to 2.41: u16 counts[64] before it */
    {76, 152}, /* 2.42 on: 64 small lists and 12 of powers of two */
};

/* The word, 0 if it cannot be read. */
static uint64_t word_at(const struct gb_memory *memory, uintptr_t address) {
  uint64_t word;
  return gb_read_word(memory, address, &word) ? word : 0;
}

/* The size that the chunk around a block has, 0 if it cannot be one. */
static uint64_t chunk_size(const struct gb_memory *memory, uintptr_t block) {
  if (!gb_is_aligned(block, GB_CHUNK_ALIGN) || block < GB_CHUNK_HEADER)
    return 0;
  const uint64_t size = word_at(memory, block - 8) & ~GB_SIZE_FLAGS;
  return size >= GB_CHUNK_MIN && gb_is_aligned(size, GB_CHUNK_ALIGN) ? size : 0;
}

/* From 2.32 on links are XORed with their own address / 4096; a whole list makes sense in one
 * reading only. */
static bool count_list(const struct gb_memory *memory, uintptr_t block, bool protected_links,
                       struct gb_tcache *tcache) {
  uint64_t chunks = 0;
  while (block != 0) {
    const uint64_t size = chunk_size(memory, block);
    if (size == 0 || ++chunks > MAX_CHUNKS_A_LIST)
      return false;
    tcache->bytes += size;
    const uintptr_t link = word_at(memory, block);
    block = protected_links ? link ^ (block >> 12) : link;
  }
  tcache->chunks += chunks;
  return true;
}

static bool count_all(const struct gb_memory *memory, const uint64_t *heads, size_t lists,
                      bool protected_links, struct gb_tcache *tcache) {
  *tcache = (struct gb_tcache){0};
  for (size_t i = 0; i < lists; ++i) {
    if (!count_list(memory, heads[i], protected_links, tcache))
      return false;
  }
  tcache->visible = true;
  return true;
}

/* Whether `cache` is the tcache whose first list begins with the block just freed. */
static bool look_at(const struct gb_memory *memory, uintptr_t cache, uintptr_t freed,
                    struct gb_tcache *tcache) {
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; ++i) {
    const struct tcache_layout *layout = &layouts[i];
    uint64_t heads[MAX_LISTS];
    if (word_at(memory, cache + layout->entries) != freed ||
        !memory->read(memory, cache + layout->entries, heads, layout->lists * sizeof heads[0]))
      continue;
    if (count_all(memory, heads, layout->lists, true, tcache) ||
        count_all(memory, heads, layout->lists, false, tcache))
      return true;
  }
  *tcache = (struct gb_tcache){0};
  return false;
}

/* x86-64 keeps thread-locals below the thread pointer, aarch64 above it. */
static uintptr_t thread_locals(void) {
  const uintptr_t thread = gb_align_down((uintptr_t)__builtin_thread_pointer(), 8);
#ifdef __x86_64__
  return thread - TLS_BYTES;
#else
  return thread;
#endif
}

void gb_tcache_look(struct gb_tcache *tcache) {
  *tcache = (struct gb_tcache){0};
  const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  struct gb_file_memory file;
  gb_file_memory_init(&file, fd);

  void *volatile block = malloc(GB_CHUNK_MIN - 8);
  const uintptr_t freed = (uintptr_t)block;
  free(block);
  const uintptr_t start = thread_locals();
  for (uintptr_t at = start; freed != 0 && at < start + TLS_BYTES; at += 8) {
    const uintptr_t cache = word_at(&file.memory, at);
    if (chunk_size(&file.memory, cache) != 0 && look_at(&file.memory, cache, freed, tcache))
      break;
  }
  (void)close(fd);
}
