/* Finding glibc in this process, and its arenas, also while the program works: the first candidates can be
 * torn while they are read, so each step is tried again.
 *
 * Thread-safe; waits a few milliseconds at most. */
#ifndef GIVEBACK_HEAP_FIND_H
#define GIVEBACK_HEAP_FIND_H

#include "heap/derive.h"
#include "heap/locate.h"

/* Derives the layout of the libc that `location` names. `maps` is the caller's, read anew.
 * `allocates`: may call malloc once, without which an arena that was never used looks like nothing we
 * know; not on a thread that should have no arena of its own. What gb_derive and
 * gb_os_maps_read return. */
enum gb_status gb_find_glibc(const struct gb_location *location, bool allocates, struct gb_maps *maps,
                             struct gb_glibc *glibc);

/* Addresses of arenas, ours (gb_os_alloc). */
struct gb_arena_list {
  uintptr_t *addresses; /* the main arena first */
  size_t count;
  size_t capacity;
};
/* pre: `list` is zeroed or was filled before. `maps` is read anew if it turns out to be stale. */
enum gb_status gb_find_arenas(struct gb_glibc *glibc, struct gb_maps *maps, struct gb_arena_list *list);
void gb_arena_list_free(struct gb_arena_list *list);

#endif
