#include "heap/neighbour.h"

#include "base/align.h"

/* A list head in the arena, or where a chunk's links may be read. */
static bool can_be_linked(struct gb_looker *looker, uintptr_t arena, uintptr_t member) {
  const struct gb_layout *layout = &looker->layout;
  if (member >= gb_bin_head(layout, arena, GB_BIN_UNSORTED) && member <= gb_bin_head(layout, arena, GB_BINS))
    return (member - gb_bin_head(layout, arena, GB_BIN_UNSORTED)) % 16 == 0;
  if (!gb_is_aligned(member, GB_CHUNK_ALIGN))
    return false;
  const struct gb_range *range = gb_ranges_find(&looker->ranges, member);
  return range != NULL && range->end - member >= GB_CHUNK_MIN;
}

static bool is_listed(struct gb_looker *looker, uintptr_t arena, uintptr_t chunk) {
  const uintptr_t next = gb_load(chunk + GB_CHUNK_FD);
  const uintptr_t previous = gb_load(chunk + GB_CHUNK_BK);
  return can_be_linked(looker, arena, next) && can_be_linked(looker, arena, previous) &&
         gb_load(next + GB_CHUNK_BK) == chunk && gb_load(previous + GB_CHUNK_FD) == chunk;
}

enum gb_neighbour gb_neighbour_at(struct gb_looker *looker, uintptr_t arena, const struct gb_range *range,
                                  uintptr_t at, uint64_t *size) {
  if (at >= range->end || range->end - at < GB_CHUNK_MIN + GB_CHUNK_HEADER)
    return GB_NEIGHBOUR_END;
  const uint64_t word = gb_load(at + GB_CHUNK_SIZE);
  *size = word & ~GB_SIZE_FLAGS;
  if ((word & GB_IS_MMAPPED) != 0 || *size < GB_CHUNK_MIN || !gb_is_aligned(*size, GB_CHUNK_ALIGN) ||
      *size > range->end - at - GB_CHUNK_HEADER)
    return GB_NEIGHBOUR_END; /* also top, which reaches to the end, and what closes a heap */
  if ((gb_load(at + *size + GB_CHUNK_SIZE) & GB_PREV_INUSE) != 0)
    return GB_NEIGHBOUR_USED;
  /* Two free chunks side by side would be one. */
  if ((word & GB_PREV_INUSE) == 0 || gb_load(at + *size) != *size || !is_listed(looker, arena, at))
    return GB_NEIGHBOUR_END;
  return GB_NEIGHBOUR_FREE;
}
