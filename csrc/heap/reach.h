/* Releasing the pages of free chunks, each reached from a list's head within the hold.
 *
 * Problem: what we know of a chunk from an earlier hold is worth nothing: it may have been taken,
 * merged, or be inside a live block by now whose bytes look like it. But finding the way to it
 * again is a walk along its list, a cache miss a member, and a list may have 65,536. So from a member that was
 * reached, those near it in memory are reached, too: then a few hundred members lead to all of a list in
 * random order, and each hold passes a short way.
 *
 * The argument why only free pages are released:
 *
 *   R1. Within one hold nobody but us changes the arena (look.h, C1), and no thread of the process
 *       takes a chunk out of a bin or out of top without that lock. (A process that has only one
 *       thread besides ours made by raw clone takes no locks: see docs/safety.md.)
 *
 *   R2. A chunk is reached only by links: the list head lies in the arena; the head names its first
 *       member; a member's links are glibc's words, since it is a free chunk; so what they name is a
 *       free chunk. By induction every chunk reached is one, whatever bytes programs write
 *       elsewhere. Or it is reached from such a chunk through memory (neighbour.h): the chunk behind
 *       a chunk begins where that ends, by glibc's words, and counts as free only if the one behind it says so and
 *       it is linked into a list. Nothing that was kept from another hold takes part in either.
 *
 *       Or it is reached in the same way from the first chunk of a thread arena's heap, which begins where the
 *       heap's own header, or the arena behind it, ends (arena.c, new_heap and _int_new_arena).
 *
 *   R3. Each step is checked all the same, so that a heap that the program has corrupted stops us: the member
 *       lies in a range of the arena (C2), links back to the one before it, has a size that fits
 *       its range and its bin, and, before its pages are released, the chunk behind it says that it
 *       is free and how large it is. The sizes may not add up to more than system_mem, so the walk
 *       ends. What fails releases nothing more of this arena. (Through memory it ends the way, no more: there
 *       the headers of live chunks are read, which a program may have overwritten and not noticed.)
 *
 *   R4. Released is only [align_up(chunk + 48), align_down(chunk + size)): behind everything that malloc keeps in a
 *       free chunk (fd_nextsize and bk_nextsize at most), before the next chunk's header; and of top
 *       the same. It is the range that malloc_trim uses.
 *
 *   R5. What is kept across holds says where it is worth to look, never what may be released: `wanted`,
 *       pages that were free and resident when last seen, only takes away from R4; `paths`, the
 *       members passed last time, or the chunks from the start of a heap, are only hints what to prefetch, and
 *       which members need no second look at `wanted`, as long as each is found at the same place of the list
 *       again. Prefetching never faults.
 *
 *   R6. The system call runs within the hold: pages that were given back after the unlock could be a live
 *       block's by then.
 *
 *   R7. A hold lets nobody wait for longer than `pause`, and one batch: after each batch, and every few
 *       members, the lock's word says whether somebody waits, and then the hold ends. If nobody does, it
 *       ends when `pause` is over, or, where finding the way took long, when three times
 *       that has gone by (at most `longest`): else a long list would cost more to walk than to
 *       release. Where no page to release is met for `walk`, it ends too; if that leads nowhere, the
 *       next ones may walk for twice as long, unless what is left is little.
 *
 * Thread-safe; one reach has one caller, who has blocked signals. Never waits for a lock.
 */
#ifndef GIVEBACK_HEAP_REACH_H
#define GIVEBACK_HEAP_REACH_H

#include "heap/batch.h"
#include "heap/free_pages.h"
#include "heap/look.h"
#include "heap/path.h"

struct gb_reach_options {
  uint64_t pause_ns;
  uint64_t longest_ns; /* of a hold for which nobody waits */
  uint64_t walk_ns; /* without meeting a page to release; doubled where that leads nowhere */
};

/* From chunk to chunk in memory. */
struct gb_steps {
  uint64_t steps;
  uint64_t pages; /* met by them, and wanted */
};

/* The lists first: mostly they are short. Where the way along one took longer than `pause`, each heap of a
 * thread arena from its start, which is never farther than 64 MiB. Then the lists for what is left. */
enum gb_ways { GB_WAYS_LISTS, GB_WAYS_HEAPS, GB_WAYS_LISTS_AGAIN };

/* One arena's release, over several holds. */
struct gb_reach {
  struct gb_looker *looker;
  struct gb_release *release;
  struct gb_batch *batch;
  struct gb_path *paths; /* two: from the list's head, and from its end */
  struct gb_free_pages *wanted;
  uint64_t left; /* bytes of `wanted` */
  uintptr_t arena;
  bool is_main;
  unsigned bin; /* the list to go on with; GB_BINS: top */
  bool backwards; /* the next hold walks the list from its end */
  size_t deepest; /* members that holds without a release got to know */
  unsigned stuck; /* holds on this list that neither released anything nor got any deeper */
  struct gb_steps near; /* behind members */
  enum gb_ways ways;
  uintptr_t heap_from; /* heaps before it are done */
  struct gb_steps heap; /* of the one under way: steps of this hold, pages of all */
  uint32_t unreached; /* lists given up */
  uint32_t locked; /* spans that the kernel calls locked */
};

/* What one hold did. */
struct gb_reach_hold {
  bool held; /* the lock was had at all */
  bool awaited; /* somebody waited when it was given back */
  struct gb_path *full; /* gb_path_grow would help; or NULL */
  uint64_t hold_ns; /* wall */
  uint64_t bytes; /* released, from bins */
  uint64_t top_bytes; /* and from top */
  uint32_t calls;
  uint32_t failures;
  int error; /* errno of the last failure */
};

void gb_reach_begin(struct gb_reach *reach, uintptr_t arena, bool is_main, struct gb_free_pages *wanted);

/* One hold. GB_OK: everything that could be reached was. GB_MORE: call again. GB_BUSY: the lock was taken, or
 * the kernel asked to try again. GB_STALE, GB_NO_ROOM: refresh the looker, then call again.
 * GB_DOUBT_*, GB_LOCKED, GB_RELEASE_REFUSED, GB_HUGETLB: leave this arena alone. */
enum gb_status gb_reach_release(struct gb_reach *reach, const struct gb_reach_options *options,
                                struct gb_reach_hold *hold);

#endif
