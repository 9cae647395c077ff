#include "heap/path.h"

#include <string.h>

#include "heap/layout.h"

#define FIRST_MEMBERS 2048u /* 16 KiB of ours */
#define MOST_MEMBERS (UINT32_C(4) << 20) /* 32 MiB, for lists of eight million */
#define MEMBERS_AHEAD 24u /* enough to hide a cache miss */

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
  if (at + MEMBERS_AHEAD >= path->count)
    return;
  /* A header may lie in two cache lines. */
  __builtin_prefetch((const void *)(path->members[at + MEMBERS_AHEAD] + GB_CHUNK_SIZE));
  __builtin_prefetch((const void *)(path->members[at + MEMBERS_AHEAD] + GB_CHUNK_BK));
}

bool gb_path_pass(struct gb_path *path, size_t at, uintptr_t chunk, bool *full) {
  if (at < path->count && path->members[at] == chunk)
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
