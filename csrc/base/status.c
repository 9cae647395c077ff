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
  case GB_BAD_CONFIG:
    return (struct words){"a setting is not one that giveback knows", "see docs/run.md for all keys"};
  case GB_NO_THREAD:
    return (struct words){"no thread could be started for the engine",
                          "raise the limit of processes (ulimit -u, pids.max of the cgroup)"};
  case GB_NO_ENGINE:
    return (struct words){"no engine runs in this process",
                          "start it with `giveback run -- CMD`, or giveback.start() in Python"};
  case GB_RUNNING:
    return (struct words){"an engine runs in this process already", "stop() it first to change its budgets"};
  case GB_TIMEOUT:
    return (struct words){"the time allowed was over before the release was; it goes on",
                          "allow more time, or a larger pause budget"};
  case GB_OFF:
    return (struct words){"policy=off: the engine does nothing", "choose policy=background"};
  case GB_OTHER_ENGINE:
    return (struct words){"the engine loaded in this process is of another version of giveback",
                          "use the same version for `giveback run` and for the Python package"};
  case GB_SANDBOX:
    return (struct words){
        "the process put itself under seccomp after the engine's start, where a system call could end it",
        "start giveback after the sandbox, or leave this process alone"};
  case GB_RDMA:
    return (struct words){
        "RDMA or MPI libraries are loaded: memory registered for a device must not be released behind its "
        "back",
        "leave this process alone; malloc_trim(0) is safe where its libc madvise is hooked"};
  case GB_USERFAULTFD:
    return (struct words){"the process has memory under userfaultfd: releasing could wait for its monitor",
                          "leave this process alone"};
  case GB_LOCKED:
    return (struct words){"the memory is locked (mlock, mlockall) and cannot be released",
                          "run the program without mlockall, or lock only what needs it"};
  case GB_RELEASE_REFUSED:
    return (struct words){"the kernel refuses to release pages of this process",
                          "allow madvise in the seccomp profile"};
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
