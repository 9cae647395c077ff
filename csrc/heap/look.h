/* A look: one complete enumeration of what one arena holds, in bounded holds of its lock.
 *
 * Problem: a list of free chunks may have a million members, each a cache miss, and
 * whoever needs the arena waits while we hold it. So a look is cut into holds of
 * `hold_ns`, and goes on in the middle of a list where the last hold ended.
 *
 * The argument why this is safe, and what the figures mean:
 *
 *   C1. Within one hold nothing that we read changes: bins, tops, heaps and the headers
 *       of free chunks are written under the arena's lock only. (Fastbins, up to glibc
 *       2.42, are pushed to without it; a push changes the head and nothing below it,
 *       and we read the head once a hold.)
 *
 *   C2. No address is followed unless it lies, during this very hold, in a range that
 *       the arena owns and that a snapshot of our mappings knows to be readable
 *       (gb_ranges_of_arena). Neither a corrupt list nor a stale position can make us
 *       read elsewhere. A main arena that is not contiguous owns no range that we could
 *       know; there the snapshot must do, and no position is kept.
 *
 *   C3. A walk ends: each member of a bin must point back to the one before it, so no
 *       member is met twice, and the sizes may not add up to more than system_mem.
 *
 *   C4. A position kept across holds is a chunk of which glibc's own test for taking a
 *       chunk out of its list (malloc.c, unlink_chunk) must hold again: both neighbours
 *       point to it, and the chunk behind it says that it is free and how large it is;
 *       and the member before it must still be the same. Memory that glibc wrote and the
 *       program did not overwrite cannot pass it once the chunk left the list: taking it
 *       out makes its neighbours point past it.
 *
 *   C5. A program can write bytes that pass it. Then a figure is wrong, within C2 and
 *       C3, and nothing else: a look only counts. What releases memory must reach each
 *       chunk from the list's head within the hold in which it releases.
 *
 *   C6. If a kept position fails, an older one is tried, then the list is begun anew, at
 *       most GB_LIST_RESTARTS times; then it is left out and `complete` is false. A
 *       contradiction (C2, C3) is an error only if all of the list was read within the
 *       hold that met it.
 *
 *   C7. A long list is walked along several strands (free_list.h), of which only those
 *       count that are reached from the list's head. The pages of a strand that is
 *       dropped stay in what was delivered: they were of chunks that passed C4.
 *
 *   C8. `settled` is false if the arena's fields differ between two holds, or a list had
 *       to be begun anew: the figures are of several moments. It is true for what was
 *       read in one hold and for a quiet process; a change that undid itself, or that
 *       touched the middle of a list only, can escape it.
 *
 * Thread-safe; one look has one caller. Never waits for a lock.
 */
#ifndef GIVEBACK_HEAP_LOOK_H
#define GIVEBACK_HEAP_LOOK_H

#include "heap/arena.h"
#include "heap/free_list.h"
#include "heap/layout.h"

struct gb_look_options {
  uint64_t hold_ns; /* wall time after which a hold ends, if it saw a chunk at all */
  uint64_t patience_ns; /* wall time spent on trying for a busy arena before GB_BUSY */
  bool pages_only; /* leave out the lists whose chunks are too small to hold a whole page */
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
  uintptr_t top; /* 0: the arena has none yet */
  uintptr_t start; /* of a contiguous main arena: its sbrk_base; else 0 */
  bool contiguous;

  /* How it was taken. */
  bool settled; /* C7 */
  bool complete; /* C6 */
  uint32_t holds;
  uint32_t tries_busy;
  uint64_t longest_hold_ns; /* wall */
  uint64_t held_ns; /* wall, sum */
};

/* Learns the arena's ranges and reads its fields, top among them, for this hold.
 * pre: the lock is held. What gb_ranges_of_arena returns, or GB_DOUBT_*. */
struct gb_looker;
enum gb_status gb_look_fields(struct gb_looker *looker, uintptr_t arena, bool is_main, struct gb_look *look);

#define GB_LIST_RESTARTS 3u
/* For a list of a main arena that is not contiguous, which is walked in one hold or left out. */
#define GB_HOLD_WITHOUT_POSITIONS_NS UINT64_C(2000000)

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
