/* Members that were passed on one list, in order, from one of its ends: hints for the next time.
 *
 * Nothing is believed that stands here (reach.h, R5): a member that is found again at the same place was
 * dealt with, or could be prefetched in time, and that is all.
 *
 * Ownership: ours (gb_os_alloc), 8 bytes a member. One for each end of the list under way of an arena.
 */
#ifndef GIVEBACK_HEAP_PATH_H
#define GIVEBACK_HEAP_PATH_H

#include <stdbool.h>

#include "os/os.h"

struct gb_path {
  uintptr_t *members;
  size_t capacity;
  size_t count; /* known */
  size_t done; /* of these, whose pages need no second look */
};

enum gb_status gb_path_init(struct gb_path *path);
void gb_path_free(struct gb_path *path);

/* More room, outside of holds; keeps what it has. Failing is no harm: the walk is slower. */
void gb_path_grow(struct gb_path *path);

/* ---- hold-safe ---- */

static inline void gb_path_forget(struct gb_path *path) {
  path->count = 0;
  path->done = 0;
}

/* Asks for the header of a member that will be visited soon. Never faults, whatever stands there. */
void gb_path_hint(const struct gb_path *path, size_t at);

/* `chunk` is at place `at` now. True if it was there before and was dealt with; else the path is what is
 * visited from now on. *full if there is no more room. */
bool gb_path_pass(struct gb_path *path, size_t at, uintptr_t chunk, bool *full);

/* Of the member at place `at`, passed just now: nothing is left to be done behind it in memory. */
void gb_path_close(struct gb_path *path, size_t at);
void gb_path_open(struct gb_path *path, size_t at);
bool gb_path_is_closed(const struct gb_path *path, size_t at);

#endif
