/* What a giveback function in C returns: GB_OK or the reason it did nothing.
 *
 * Layers below the Python binding never print and never throw. A status that
 * reaches a user is turned into words by gb_status_text() and gb_status_remedy(),
 * so that the preload library and the Python package say the same thing.
 */
#ifndef GIVEBACK_BASE_STATUS_H
#define GIVEBACK_BASE_STATUS_H

enum gb_status {
  GB_OK = 0,

  /* Not an answer yet. */
  GB_MORE, /* a hold ended before the work did: call again */
  GB_BUSY, /* the arena's lock could not be had in the time allowed */
  GB_STALE, /* memory was mapped after the snapshot of mappings: take a new one */
  GB_NO_ROOM, /* a table of ours is full: grow it, outside of any lock */

  /* The surroundings do not allow it. */
  GB_NO_PROC,
  GB_NO_MEMORY,
  GB_NO_RESIDENCY,
  GB_DENIED,

  /* The engine. */
  GB_BAD_CONFIG,
  GB_NO_THREAD,
  GB_NO_ENGINE,
  GB_RUNNING,
  GB_TIMEOUT,
  GB_OFF,
  GB_OTHER_ENGINE,

  /* Releasing would harm, or the kernel forbids it. */
  GB_SANDBOX, /* seccomp was set after the engine's start */
  GB_RDMA,
  GB_USERFAULTFD,
  GB_LOCKED,
  GB_RELEASE_REFUSED,

  /* Not the allocator we know. */
  GB_FOREIGN_ALLOCATOR,
  GB_NO_LIBC,
  GB_SECOND_LIBC,
  GB_UNKNOWN_LAYOUT,
  GB_HUGETLB,

  /* The layout is known but what was read contradicts it. */
  GB_DOUBT_ARENA, /* fields of malloc_state that cannot be */
  GB_DOUBT_HEAP, /* heap_info chain that does not add up to system_mem */
  GB_DOUBT_TOP, /* top chunk outside its arena or of impossible size */
  GB_DOUBT_LINK, /* list links that do not point back */
  GB_DOUBT_CHUNK, /* a free chunk whose size or footer cannot be */
  GB_DOUBT_FIGURES, /* the sums differ from what mallinfo reports */
};

/* One sentence without a full stop; never NULL. Thread-safe. */
const char *gb_status_text(enum gb_status status);

/* What a user can do about it, one sentence; NULL where there is nothing to do. */
const char *gb_status_remedy(enum gb_status status);

#endif
