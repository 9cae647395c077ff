/* The calling thread's tcache: small blocks that it freed and keeps for itself.
 *
 * Problem: to every arena they look in use, and the pointer to them is a hidden
 * thread-local of libc. Only the thread itself can find it with certainty, so other
 * threads' caches are not visible (they hold at most some 200 KB each by default).
 *
 * The evidence: a block that we just freed is at the head of its list. A word near the
 * thread pointer that points to a heap block which, at the place where one of the known
 * tcache layouts has its first entry, holds the address of our block, is it.
 */
#ifndef GIVEBACK_HEAP_TCACHE_H
#define GIVEBACK_HEAP_TCACHE_H

#include <stdbool.h>
#include <stdint.h>

struct gb_tcache {
  bool visible; /* else the figures mean nothing */
  uint64_t chunks;
  uint64_t bytes; /* with headers, as an arena counts them */
};

/* Looks at the calling thread's. Uses malloc and free once. Not async-signal-safe. Reads through
 * /proc/self/mem, where a word that only looks like a pointer is a failed read and not a fault.
 * Not visible, too, where the tcache is off or that file cannot be opened. */
void gb_tcache_look(struct gb_tcache *tcache);

#endif
