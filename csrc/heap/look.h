/* A look: one complete enumeration of what one arena holds, in bounded holds of its lock.
 *
 * Problem: a list of free chunks may have a million members, each a cache miss, and
 * whoever needs the arena waits while we hold it. So a look is cut into holds of
 * `hold_ns`, and goes on in the middle of a list where the last hold ended.
 *
 * The argument why this is safe, and what the figures mean:
 *   C1. Within one hold nothing that we read changes: bins, tops, heaps and the
 *       headers of free chunks are written under the arena's lock only. (Fastbins, up
 *       to glibc 2.42, are pushed to without it; a push changes the head and nothing
 *       below it, and we read the head once a hold.)
 *   C2. No address is followed unless it lies, during this very hold, in a range that
 *       the arena owns and that a snapshot of our mappings knows to be readable
 *       (gb_ranges_of_arena). Neither a corrupt list nor a stale position can make us
 *       read elsewhere.
 *   C3. A walk ends: each member must point back to the one before it, so no member
 *       is met twice, and their sizes may not add up to more than system_mem.
 *   C4. A position kept across holds is a chunk of which glibc's own test for taking a
 *       chunk out of its list (malloc.c, unlink_chunk) must hold again: both
 *       neighbours point to it, and the chunk behind it says that it is free and how
 *       large it is; and the member before it must still be the same. Memory that glibc wrote and the program
 * did not overwrite cannot pass it once the chunk left the list: taking it out makes its neighbours point
 * past it. C5. A program can write bytes that pass it. Then a figure is wrong, within C2 and C3, and nothing
 * else: **a look only counts**. What releases memory must reach each chunk from the list's head within the
 * hold in which it releases. C6. If a kept position fails, an older one is tried, then the list is begun
 * anew, at most GB_LIST_RESTARTS times; then its rest is left out and `complete` is false. A contradiction
 * (C2, C3) is blamed on the arena only if its fields did not change meanwhile. C7. If the arena's fields
 * changed between two holds, `settled` is false: the figures are of several moments. A quiet process is
 * always settled.
 *
 * Thread-safe; one look has one caller. Never waits for a lock.
 */
#ifndef GIVEBACK_HEAP_LOOK_H
#define GIVEBACK_HEAP_LOOK_H

#include "heap/arena.h"
#include "heap/free_list.h"
#include "heap/layout.h"

struct gb_look_options {
  uint64_t hold_ns;     /* wall time after which a hold ends, if it saw a chunk at all */
  uint64_t patience_ns; /* wall time spent on trying for a busy arena before GB_BUSY */
  /* Called between holds with what was found; may allocate. NULL: spans are not wanted. */
  void (*spans)(void *context, const struct gb_span *spans, size_t count);
  void *context;
};

struct gb_look {
  /* The arena, bytes unless it says chunks. */
  uint64_t system_bytes; /* obtained from the kernel */
  uint64_t max_system_bytes;
  uint64_t attached_threads;
  uint64_t bins_bytes;
  uint64_t bins_chunks;
  uint64_t fastbins_bytes;
  uint64_t fastbins_chunks;
  uint64_t top_bytes;
  uintptr_t top;   /* 0: the arena has none yet */
  uintptr_t start; /* of a contiguous main arena: its sbrk_base; else 0 */
  bool contiguous;

  /* How it was taken. */
  bool settled;  /* C7 */
  bool complete; /* C6 */
  uint32_t holds;
  uint32_t tries_busy;
  uint64_t longest_hold_ns; /* wall */
  uint64_t held_ns;         /* wall, sum */
};

#define GB_LIST_RESTARTS 3u

/* Tables of ours that looks share, one after the other. */
struct gb_looker {
  struct gb_layout layout;
  uint64_t heap_header;
  struct gb_maps *maps; /* the caller's; read again by a look that finds it stale */
  struct gb_ranges ranges;
  struct gb_span *spans;
  struct gb_free_list *list;
};
enum gb_status gb_looker_init(struct gb_looker *looker, const struct gb_layout *layout, uint64_t heap_header,
                              struct gb_maps *maps);
void gb_looker_free(struct gb_looker *looker);

/* GB_OK; GB_BUSY; GB_STALE (mapped faster than read); GB_NO_MEMORY; GB_HUGETLB; GB_DOUBT_*. */
enum gb_status gb_look_at(struct gb_looker *looker, uintptr_t arena, bool is_main,
                          const struct gb_look_options *options, struct gb_look *look);

#endif
