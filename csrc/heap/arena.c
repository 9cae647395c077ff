#include "heap/arena.h"

#include <string.h>
#include <unistd.h>

#include "base/align.h"

static uint32_t *mutex_of(uintptr_t arena) {
  return (uint32_t *)(arena + GB_ARENA_MUTEX);
}

/* How many arenas are ours now, and how many forks are under way that must see none. */
static uint32_t gate_held;
static uint32_t gate_closed;

#define GATE_TRIES 10000u
#define GATE_PAUSE_NS UINT64_C(100000)

void gb_arena_gate_close(void) {
  __atomic_add_fetch(&gate_closed, 1, __ATOMIC_SEQ_CST);
  for (unsigned tries = 0; __atomic_load_n(&gate_held, __ATOMIC_SEQ_CST) != 0 && tries < GATE_TRIES; ++tries)
    gb_os_sleep_ns(GATE_PAUSE_NS);
}

void gb_arena_gate_open(void) {
  __atomic_sub_fetch(&gate_closed, 1, __ATOMIC_RELEASE);
}

void gb_arena_gate_enter(void) {
  for (;;) {
    __atomic_add_fetch(&gate_held, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&gate_closed, __ATOMIC_SEQ_CST) == 0)
      return;
    __atomic_sub_fetch(&gate_held, 1, __ATOMIC_RELEASE);
    gb_os_sleep_ns(GATE_PAUSE_NS);
  }
}

void gb_arena_gate_leave(void) {
  __atomic_sub_fetch(&gate_held, 1, __ATOMIC_RELEASE);
}

void gb_arena_gate_after_fork(void) {
  __atomic_store_n(&gate_closed, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&gate_held, 0, __ATOMIC_RELAXED);
}

bool gb_arena_try_lock(uintptr_t arena) {
  /* Sequentially consistent, both here and in gb_arena_gate_close: of the two that announce
   * themselves first and look at the other then, at least one sees the other. */
  __atomic_add_fetch(&gate_held, 1, __ATOMIC_SEQ_CST);
  uint32_t expected = 0;
  /* acquire: pairs with the release in glibc's lll_unlock and in ours, so that we
   * see every change made under the lock before. */
  if (__atomic_load_n(&gate_closed, __ATOMIC_SEQ_CST) == 0 &&
      __atomic_compare_exchange_n(mutex_of(arena), &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return true;
  __atomic_sub_fetch(&gate_held, 1, __ATOMIC_RELEASE);
  return false;
}

bool gb_arena_unlock(uintptr_t arena) {
  /* release: pairs with the acquire in glibc's lll_lock. We change nothing, but our
   * reads must not be moved behind it. */
  const bool awaited = __atomic_exchange_n(mutex_of(arena), 0, __ATOMIC_RELEASE) > 1;
  __atomic_sub_fetch(&gate_held, 1, __ATOMIC_RELEASE);
  if (awaited)
    gb_os_futex_wake_one(mutex_of(arena));
  return awaited;
}

static size_t table_bytes(size_t capacity) {
  return capacity * (sizeof(struct gb_range) + sizeof(uintptr_t));
}

static void lay_out(struct gb_ranges *ranges, void *table, size_t capacity) {
  memset(table, 0, table_bytes(capacity)); /* no page fault of ours under somebody's lock */
  ranges->sorted = table;
  ranges->chain = (uintptr_t *)(void *)(ranges->sorted + capacity);
  ranges->capacity = capacity;
  ranges->count = 0;
  memset(ranges->near, 0, sizeof ranges->near);
}

enum gb_status gb_ranges_init(struct gb_ranges *ranges) {
  void *table = gb_os_alloc(table_bytes(GB_RANGES_FIRST));
  if (table == NULL)
    return GB_NO_MEMORY;
  lay_out(ranges, table, GB_RANGES_FIRST);
  return GB_OK;
}

enum gb_status gb_ranges_grow(struct gb_ranges *ranges) {
  size_t capacity = ranges->capacity * 4;
  void *table = gb_os_alloc(table_bytes(capacity));
  if (table == NULL)
    return GB_NO_MEMORY;
  gb_ranges_free(ranges);
  lay_out(ranges, table, capacity);
  return GB_OK;
}

void gb_ranges_free(struct gb_ranges *ranges) {
  gb_os_free(ranges->sorted, table_bytes(ranges->capacity));
  *ranges = (struct gb_ranges){0};
}

void gb_ranges_prefetch(const struct gb_ranges *ranges) {
  for (size_t i = 0; i < ranges->heaps; ++i)
    __builtin_prefetch((const void *)ranges->chain[i]);
}

/* Shell sort: in place, no allocation, and the input is nearly sorted backwards. */
static void sort(struct gb_range *entries, size_t count) {
  for (size_t gap = count / 2; gap > 0; gap /= 2) {
    for (size_t i = gap; i < count; ++i) {
      struct gb_range moving = entries[i];
      size_t at = i;
      for (; at >= gap && entries[at - gap].start > moving.start; at -= gap)
        entries[at] = entries[at - gap];
      entries[at] = moving;
    }
  }
}

/* Adds what of [start, end) can be read and written. Programs protect parts of blocks that they got from malloc:
 * no free chunk lies there. But a heap that has grown since the snapshot looks as if its end were
 * protected. */
static enum gb_status add_readable(struct gb_ranges *ranges, const struct gb_maps *maps, uintptr_t start,
                                   uintptr_t end) {
  const size_t first = ranges->count;
  while (start < end) {
    const struct gb_mapping *mapping = gb_os_maps_find(maps, start);
    if (mapping == NULL)
      return GB_STALE;
    if (mapping->kind == GB_MAPPING_HUGETLB)
      return GB_HUGETLB;
    const uintptr_t stop = mapping->end < end ? mapping->end : end;
    if (mapping->readable && mapping->writable && mapping->kind != GB_MAPPING_FILE) {
      if (ranges->count > first && ranges->sorted[ranges->count - 1].end == start) {
        ranges->sorted[ranges->count - 1].end = stop;
      } else {
        if (ranges->count == ranges->capacity)
          return GB_NO_ROOM;
        ranges->sorted[ranges->count++] = (struct gb_range){start, stop};
      }
    } else if (stop == end || ranges->count == first) {
      return GB_STALE;
    }
    start = stop;
  }
  return GB_OK;
}

static enum gb_status ranges_of_thread_arena(struct gb_ranges *ranges, const struct gb_layout *layout,
                                             uintptr_t arena, uint64_t heap_header,
                                             const struct gb_maps *maps) {
  const uint64_t system_mem = gb_load(arena + layout->system_mem);
  uintptr_t heap = gb_align_down(gb_load(arena + layout->top), GB_HEAP_MAX);
  uint64_t total = 0;
  for (ranges->heaps = 0; heap != 0; ++ranges->heaps) {
    if (ranges->heaps == ranges->capacity)
      return GB_NO_ROOM;
    if (!gb_is_aligned(heap, GB_HEAP_MAX))
      return GB_DOUBT_HEAP;
    const struct gb_mapping *mapping = gb_os_maps_find(maps, heap);
    if (mapping == NULL || !mapping->writable)
      return GB_STALE;
    const uint64_t size = gb_load(heap + GB_HEAP_SIZE);
    if (gb_load(heap + GB_HEAP_ARENA) != arena || size > GB_HEAP_MAX || size < heap_header ||
        !gb_is_aligned(size, gb_os_page_size()))
      return GB_DOUBT_HEAP;
    total += size;
    if (total > system_mem) /* also ends a chain that loops */
      return GB_DOUBT_HEAP;
    ranges->chain[ranges->heaps] = heap;
    uintptr_t first = heap + heap_header;
    if (first == arena)
      first += layout->size;
    if (first > heap + size)
      return GB_DOUBT_HEAP;
    const enum gb_status status = add_readable(ranges, maps, first, heap + size);
    if (status != GB_OK)
      return status;
    heap = gb_load(heap + GB_HEAP_PREVIOUS);
  }
  if (total != system_mem)
    return GB_DOUBT_HEAP;
  sort(ranges->sorted, ranges->count);
  return GB_OK;
}

/* What brk has given out may shrink after the snapshot; the C library knows where it ends, and
 * malloc moves that end under this arena's lock only. */
static uintptr_t end_of_mapping(const struct gb_mapping *mapping) {
  const uintptr_t brk_end = (uintptr_t)sbrk(0);
  return mapping->kind == GB_MAPPING_BRK && brk_end < mapping->end ? brk_end : mapping->end;
}

static enum gb_status ranges_of_contiguous(struct gb_ranges *ranges, uintptr_t top, uint64_t system_mem,
                                           const struct gb_maps *maps) {
  const uintptr_t end = top + (gb_load(top + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS);
  if (end < top || end < system_mem)
    return GB_DOUBT_TOP;
  return add_readable(ranges, maps, end - system_mem, end);
}

static enum gb_status ranges_of_mappings(struct gb_ranges *ranges, const struct gb_maps *maps) {
  size_t count = 0;
  for (size_t i = 0; i < maps->count; ++i) {
    const struct gb_mapping *mapping = &maps->entries[i];
    if (!mapping->readable || !mapping->writable ||
        (mapping->kind != GB_MAPPING_ANONYMOUS && mapping->kind != GB_MAPPING_BRK))
      continue;
    const uintptr_t end = end_of_mapping(mapping);
    if (end <= mapping->start)
      continue;
    if (count > 0 && ranges->sorted[count - 1].end == mapping->start) {
      ranges->sorted[count - 1].end = end;
      continue;
    }
    if (count == ranges->capacity)
      return GB_NO_ROOM;
    ranges->sorted[count++] = (struct gb_range){mapping->start, end};
  }
  ranges->count = count;
  return GB_OK;
}

static enum gb_status ranges_of_main_arena(struct gb_ranges *ranges, const struct gb_layout *layout,
                                           uintptr_t arena, const struct gb_maps *maps) {
  const uintptr_t top = gb_load(arena + layout->top);
  const uint64_t system_mem = gb_load(arena + layout->system_mem);
  if (system_mem == 0) /* nothing allocated from it yet */
    return GB_OK;
  if (!gb_is_aligned(top, GB_CHUNK_ALIGN) || top > UINTPTR_MAX - GB_CHUNK_HEADER)
    return GB_DOUBT_TOP;
  const struct gb_mapping *mapping = gb_os_maps_find(maps, top);
  if (mapping != NULL && mapping->kind == GB_MAPPING_HUGETLB)
    return GB_HUGETLB;
  if (!gb_os_maps_cover(maps, top, top + GB_CHUNK_HEADER, true))
    return GB_STALE;
  const bool contiguous = (gb_load_half(arena + GB_ARENA_FLAGS) & GB_ARENA_NONCONTIGUOUS) == 0;
  return contiguous ? ranges_of_contiguous(ranges, top, system_mem, maps) : ranges_of_mappings(ranges, maps);
}

enum gb_status gb_ranges_of_arena(struct gb_ranges *ranges, const struct gb_layout *layout, uintptr_t arena,
                                  uint64_t heap_header, bool is_main, const struct gb_maps *maps) {
  ranges->count = 0;
  ranges->heaps = 0;
  memset(ranges->near, 0, sizeof ranges->near);
  ranges->sorted[0] = (struct gb_range){0}; /* what an empty table finds: nothing */
  return is_main ? ranges_of_main_arena(ranges, layout, arena, maps)
                 : ranges_of_thread_arena(ranges, layout, arena, heap_header, maps);
}
