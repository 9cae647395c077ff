#include "base/status.h"

#include <stddef.h>

struct words {
  const char *text;
  const char *remedy;
};

static struct words words_of(enum gb_status status) {
  switch (status) {
  case GB_OK:
    return (struct words){"done", NULL};
  case GB_MORE:
    return (struct words){"not finished", "call again"};
  case GB_BUSY:
    return (struct words){"the arena's lock was busy for as long as we were willing to try",
                          "try again; a busy arena is never waited for"};
  case GB_STALE:
    return (struct words){"the heap grew faster than its mappings could be read", "try again"};
  case GB_NO_ROOM:
    return (struct words){"a table of ours is full", "try again"};
  case GB_NO_PROC:
    return (struct words){"/proc/self cannot be read, so no address can be checked",
                          "mount /proc in this container or chroot"};
  case GB_NO_MEMORY:
    return (struct words){"the kernel gave us no memory for our own tables",
                          "raise RLIMIT_AS or the memory limit of the cgroup"};
  case GB_NO_RESIDENCY:
    return (struct words){"neither PAGEMAP_SCAN, /proc/self/pagemap nor mincore works here",
                          "mount /proc, and allow mincore in the seccomp profile"};
  case GB_DENIED:
    return (struct words){"the kernel does not let us read that process",
                          "run as the same user or as root; with Yama, ptrace_scope=0 or CAP_SYS_PTRACE"};
  case GB_FOREIGN_ALLOCATOR:
    return (struct words){"malloc in this process is not glibc's, so glibc's arenas are not what it uses",
                          "use that allocator's own purge or decay settings, or run the program without it"};
  case GB_NO_LIBC:
    return (struct words){"no glibc is loaded as a shared library (statically linked, or another libc)",
                          "link the program dynamically against glibc"};
  case GB_SECOND_LIBC:
    return (struct words){"two copies of libc are loaded, and which one owns a block cannot be told",
                          "load one libc only (no dlmopen of a second one)"};
  case GB_UNKNOWN_LAYOUT:
    return (struct words){"this glibc's malloc_state does not look like any layout we know",
                          "report the glibc version and the output of `giveback doctor --json`"};
  case GB_HUGETLB:
    return (struct words){"malloc uses explicit huge pages (glibc.malloc.hugetlb=2), which we do not touch",
                          "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=0 (or 1)"};
  case GB_DOUBT_ARENA:
    return (struct words){"an arena's own fields contradict each other",
                          "the heap may be corrupt: run the program under ASan or Valgrind"};
  case GB_DOUBT_HEAP:
    return (struct words){"an arena's heaps do not add up to its system_mem",
                          "the heap may be corrupt: run the program under ASan or Valgrind"};
  case GB_DOUBT_TOP:
    return (struct words){"an arena's top chunk lies where it cannot",
                          "the heap may be corrupt: run the program under ASan or Valgrind"};
  case GB_DOUBT_LINK:
    return (struct words){"a list of free chunks does not link back",
                          "the heap may be corrupt: run the program under ASan or Valgrind"};
  case GB_DOUBT_CHUNK:
    return (struct words){"a free chunk has a size that cannot be",
                          "the heap may be corrupt: run the program under ASan or Valgrind"};
  case GB_DOUBT_FIGURES:
    return (struct words){"what we counted differs from what mallinfo reports",
                          "report the glibc version and the output of `giveback doctor --json`"};
  }
  return (struct words){"unknown status", NULL};
}

const char *gb_status_text(enum gb_status status) {
  return words_of(status).text;
}

const char *gb_status_remedy(enum gb_status status) {
  return words_of(status).remedy;
}
