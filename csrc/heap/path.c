#include "heap/path.h"

#include <string.h>

#include "heap/layout.h"

/* In the lowest bit of a member, which is aligned. */
#define CLOSED ((uintptr_t)1)
#define MEMBERS_AHEAD 24u /* enough to hide a cache miss */
#define FIRST_MEMBERS 2048u /* 16 KiB of ours */
#define MOST_MEMBERS (UINT32_C(4) << 20) /* 32 MiB, for lists of eight million */

enum gb_status gb_path_init(struct gb_path *path) {
  *path = (struct gb_path){.members = gb_os_alloc(FIRST_MEMBERS * sizeof *path->members),
                           .capacity = FIRST_MEMBERS};
  if (path->members == NULL)
    return GB_NO_MEMORY;
  memset(path->members, 0, FIRST_MEMBERS * sizeof *path->members); /* no page fault of ours under a lock */
  return GB_OK;
}

void gb_path_free(struct gb_path *path) {
  gb_os_free(path->members, path->capacity * sizeof *path->members);
  *path = (struct gb_path){0};
}

void gb_path_grow(struct gb_path *path) {
  if (path->capacity >= MOST_MEMBERS)
    return;
  const size_t capacity = 4 * path->capacity;
  const size_t old_bytes = path->capacity * sizeof *path->members;
  uintptr_t *grown = gb_os_grow(path->members, old_bytes, capacity * sizeof *path->members);
  if (grown == NULL)
    return;
  memset(grown + path->capacity, 0, capacity * sizeof *path->members - old_bytes);
  path->members = grown;
  path->capacity = capacity;
}

void gb_path_hint(const struct gb_path *path, size_t at) {
  if (at + MEMBERS_AHEAD < path->count)
    gb_chunk_prefetch(path->members[at + MEMBERS_AHEAD]);
}

bool gb_path_pass(struct gb_path *path, size_t at, uintptr_t chunk, bool *full) {
  if (at < path->count && (path->members[at] & ~CLOSED) == chunk)
    return at < path->done;
  if (at >= path->capacity) {
    *full = true;
    return false;
  }
  path->members[at] = chunk;
  path->count = at + 1;
  if (path->done > at)
    path->done = at;
  return false;
}

void gb_path_close(struct gb_path *path, size_t at) {
  if (at < path->count)
    path->members[at] |= CLOSED;
}

void gb_path_open(struct gb_path *path, size_t at) {
  if (at < path->count)
    path->members[at] &= ~CLOSED;
}

bool gb_path_is_closed(const struct gb_path *path, size_t at) {
  return at < path->count && (path->members[at] & CLOSED) != 0;
}
