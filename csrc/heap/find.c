#include "heap/find.h"

#include <stdlib.h>

#define TRIES 16u
#define PAUSE_NS UINT64_C(1000000)
#define FIRST_ARENAS 64u

/* Before the first call the arena is zeros. */
static void make_malloc_ready(void) {
  void *volatile block = malloc(1);
  free(block);
}

enum gb_status gb_find_glibc(const struct gb_location *location, bool allocates, struct gb_maps *maps,
                             struct gb_glibc *glibc) {
  enum gb_status status = GB_UNKNOWN_LAYOUT;
  for (unsigned tries = 0; tries < TRIES && status == GB_UNKNOWN_LAYOUT; ++tries) {
    status = gb_os_maps_read(maps);
    if (status != GB_OK)
      return status;
    if (tries == 1 && allocates)
      make_malloc_ready();
    if (tries > 1)
      gb_os_sleep_ns(PAUSE_NS); /* who was in the middle of a change may have been preempted */
    struct gb_own_memory own;
    gb_own_memory_init(&own, maps);
    status = gb_derive(&own.memory, location->data_start, location->data_end, glibc);
  }
  return status;
}

static enum gb_status list_once(struct gb_glibc *glibc, const struct gb_maps *maps,
                                struct gb_arena_list *list) {
  struct gb_own_memory own;
  gb_own_memory_init(&own, maps);
  size_t capacity = list->capacity == 0 ? FIRST_ARENAS : list->capacity;
  for (;;) {
    if (capacity > list->capacity) {
      uintptr_t *grown =
          gb_os_grow(list->addresses, list->capacity * sizeof *grown, capacity * sizeof *grown);
      if (grown == NULL)
        return GB_NO_MEMORY;
      list->addresses = grown;
      list->capacity = capacity;
    }
    enum gb_status status = gb_arenas(&own.memory, glibc, list->addresses, list->capacity, &list->count);
    if (status != GB_OK || list->count <= list->capacity)
      return status;
    while (capacity < list->count)
      capacity *= 2;
  }
}

enum gb_status gb_find_arenas(struct gb_glibc *glibc, struct gb_maps *maps, struct gb_arena_list *list) {
  enum gb_status status = list_once(glibc, maps, list);
  for (unsigned tries = 1; status == GB_STALE && tries < TRIES; ++tries) {
    status = gb_os_maps_read(maps);
    if (status == GB_OK)
      status = list_once(glibc, maps, list);
  }
  return status;
}

void gb_arena_list_free(struct gb_arena_list *list) {
  gb_os_free(list->addresses, list->capacity * sizeof *list->addresses);
  *list = (struct gb_arena_list){0};
}
