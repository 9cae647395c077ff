/* Everything giveback asks of the kernel, in one contract.
 *
 * Nothing here allocates from malloc, uses stdio or takes a lock, so every
 * function may be called from the preload library. None may be called while an
 * arena lock is held unless its comment says "hold-safe". All are thread-safe on
 * distinct objects. Sizes are bytes, addresses are this process's own.
 */
#ifndef GIVEBACK_OS_OS_H
#define GIVEBACK_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ---- pages and our own memory ------------------------------------------- */

/* Size of a base page. Hold-safe. */
size_t gb_os_page_size(void);

/* Private zeroed memory, at least `bytes`; NULL if the kernel refuses. A fork child does not get
 * it: these are working tables of a thread, and the child does not have that thread. */
void *gb_os_alloc(size_t bytes);

/* pre: `memory` came from gb_os_alloc(bytes), or is NULL. */
void gb_os_free(void *memory, size_t bytes);

/* Moves an allocation to one of `new_bytes`; NULL leaves the old one as it was. */
void *gb_os_grow(void *memory, size_t old_bytes, size_t new_bytes);

/* The whole of a file of /proc, with a zero byte behind it, in memory that gb_os_free(*content,
 * *bytes) frees: *bytes counts that byte. GB_NO_PROC, GB_NO_MEMORY. */
enum gb_status gb_os_read_file(const char *path, char **content, size_t *bytes);

/* ---- mappings ------------------------------------------------------------ */

enum gb_mapping_kind {
  GB_MAPPING_ANONYMOUS,
  GB_MAPPING_BRK, /* [heap] */
  GB_MAPPING_FILE,
  GB_MAPPING_HUGETLB,
  GB_MAPPING_SPECIAL, /* stacks, vdso, anything else in brackets */
};

struct gb_mapping {
  uintptr_t start;
  uintptr_t end;
  enum gb_mapping_kind kind;
  bool readable;
  bool writable;
};

/* As gb_mapping, with what only the parser sees: the path ("" if none) is valid
 * during the callback only. */
struct gb_mapping_line {
  struct gb_mapping mapping;
  uint64_t device;
  uint64_t inode;
  bool executable;
  const char *path;
};

/* Calls `each` for every line of /proc/self/maps, in address order, until it
 * returns false. GB_NO_PROC if the file cannot be read. */
enum gb_status gb_os_maps_each(bool (*each)(void *context, const struct gb_mapping_line *line),
                               void *context);

/* A snapshot of the mappings, sorted by address, adjacent ones not merged.
 * Owner: the caller, from gb_os_maps_read to gb_os_maps_free. */
struct gb_maps {
  struct gb_mapping *entries;
  size_t count;
  size_t capacity;
  /* If set, is shown every line while a snapshot is being taken. */
  void (*notice)(void *context, const struct gb_mapping_line *line);
  void *context;
};

/* pre: `maps` is zeroed or holds an earlier snapshot, which is replaced. */
enum gb_status gb_os_maps_read(struct gb_maps *maps);
void gb_os_maps_free(struct gb_maps *maps);

/* True if every byte of [start, end) lay in readable mappings of the snapshot;
 * with `writable`, in readable and writable ones that are not files. Hold-safe. */
bool gb_os_maps_cover(const struct gb_maps *maps, uintptr_t start, uintptr_t end, bool writable);

/* The mapping that holds `address`, or NULL. Hold-safe. */
const struct gb_mapping *gb_os_maps_find(const struct gb_maps *maps, uintptr_t address);

/* ---- residency ----------------------------------------------------------- */

/* In the order in which they are tried. */
enum gb_residency_source {
  GB_RESIDENCY_SCAN, /* ioctl PAGEMAP_SCAN, Linux 6.7: knows zero pages and swap */
  GB_RESIDENCY_PAGEMAP, /* pread of /proc/self/pagemap: knows swap */
  GB_RESIDENCY_MINCORE, /* mincore: swapped pages look returned */
  GB_RESIDENCY_NONE,
};

struct gb_residency {
  bool has_file; /* so that one of zeros, never opened, closes nothing: 0 is somebody's descriptor */
  int fd; /* /proc/self/pagemap */
  enum gb_residency_source source;
};

/* Opens the first source at or after `first` that answers for a page of ours.
 * GB_NO_RESIDENCY if none does. */
enum gb_status gb_os_residency_open(struct gb_residency *residency, enum gb_residency_source first);
/* The same, but mincore before pagemap, which looks at each page's own record and so takes thirty times as long, as
 * long as nothing of the whole machine is in swap. */
enum gb_status gb_os_residency_open_fast(struct gb_residency *residency, enum gb_residency_source first);
void gb_os_residency_close(struct gb_residency *residency);

/* "PAGEMAP_SCAN", "pagemap", "mincore", "none". */
const char *gb_os_residency_name(enum gb_residency_source source);

#define GB_RESIDENCY_MAX_PAGES 16384u /* of one query: 64 MiB of 4 KiB pages */

/* Sets bit i of `resident` (or of `swapped`) if page i from `start` is in memory
 * and counted in RSS (or in swap). Both bitmaps hold (pages + 63) / 64 words and
 * are overwritten. A page of the shared zero page is not resident where the
 * source can tell. Unmapped pages are neither.
 * pre: start is page-aligned; 0 < pages <= GB_RESIDENCY_MAX_PAGES. */
enum gb_status gb_os_residency_query(const struct gb_residency *residency, uintptr_t start, size_t pages,
                                     uint64_t *resident, uint64_t *swapped);

/* ---- releasing pages ------------------------------------------------------- */

/* Whole pages. */
struct gb_span {
  uintptr_t start;
  uintptr_t end;
};

struct gb_release {
  bool many; /* process_madvise on oneself: many ranges a call; else madvise, one a call */
  unsigned failures; /* in a row, of process_madvise on what madvise then accepted */
};

/* Chooses the way, by trying it on a page of ours; with `old_kernel`, or under seccomp, nothing is
 * tried and madvise it is. Needs no descriptor: process_madvise is used where the kernel
 * knows PIDFD_SELF (Linux 6.14), else programs that close or reuse our descriptor could turn us on
 * another process. */
void gb_os_release_open(struct gb_release *release, bool old_kernel);

struct gb_released {
  uint64_t bytes; /* from the first span on, without gaps, what the kernel took */
  unsigned calls; /* system calls */
  unsigned failures; /* of these, that it refused */
  int error; /* errno of the last failure */
};

#define GB_RELEASE_SPANS 256u /* of one call at most */

/* MADV_DONTNEED on the spans, in order, until one is refused. GB_OK: all of them. GB_BUSY: try the
 * rest again later (EAGAIN, EINTR). GB_LOCKED: the span behind `bytes` is locked memory (EINVAL).
 * GB_STALE: it is not mapped (ENOMEM). GB_RELEASE_REFUSED: anything else. Hold-safe; errno is kept.
 * pre: count <= GB_RELEASE_SPANS, spans are page-aligned and not empty. */
enum gb_status gb_os_release(struct gb_release *release, const struct gb_span *spans, size_t count,
                             struct gb_released *released);

/* ---- signals and locks --------------------------------------------------- */

/* Blocks every signal of the calling thread that may be blocked: a handler that
 * calls malloc while we hold that arena's lock would wait for itself. Goes through
 * pthread_sigmask, which leaves glibc's internal signals open: with those blocked,
 * setuid() in another thread never returns. */
struct gb_signals {
  uint64_t saved[16]; /* a sigset_t */
};
void gb_os_signals_block(struct gb_signals *signals);
void gb_os_signals_restore(const struct gb_signals *signals);

/* Thread cancellation off, and back to what it was. Cancelled in the middle, a thread would leave
 * descriptors open or, if it is cancelled asynchronously, an arena locked. */
int gb_os_cancellation_off(void);
void gb_os_cancellation_restore(int before);

/* Wakes at most one waiter of a private futex. Hold-safe. errno is kept. */
void gb_os_futex_wake_one(uint32_t *word);

/* Sleeps about `nanoseconds`; an interrupted sleep is not continued. */
void gb_os_sleep_ns(uint64_t nanoseconds);

/* ---- the engine's thread ---------------------------------------------------- */

/* A thread with a small stack, since mlockall would lock all of it, and all signals blocked; of ordinary priority, on
 * the CPUs of the main thread, whatever the calling one has. GB_NO_THREAD. */
enum gb_status gb_os_thread_start(uint64_t *thread, void *(*begin)(void *context), void *context);
void gb_os_thread_join(uint64_t thread);
/* Of the calling thread, as ps -L shows it; 15 bytes at most. */
void gb_os_thread_name(const char *name);
uint32_t gb_os_thread_id(void);
uint32_t gb_os_process_id(void);

/* Gives the calling thread a table of descriptors of its own, with nothing in it. False if the kernel cannot. */
bool gb_os_descriptors_unshare(void);

/* What the other threads of the process used up to now, those that ended included. */
struct gb_usage {
  uint64_t cpu_ns;
  uint64_t faults; /* minor and major */
};
void gb_os_usage(struct gb_usage *usage);

/* How the engine's thread sleeps until something happens.
 *
 * A timer on the CPU time of the process fires only if the process works, so that an idle one costs
 * no wake-ups at all (each is 60 us of CPU on a virtual machine). It sends a signal that
 * only this thread has, blocked, and waits for; no handler ever runs. Where that is not to be had, the
 * futex word is polled. */
struct gb_waiter {
  bool has_timer;
  bool armed; /* the timer was set, and may still be */
  int timer; /* of the kernel's */
  int signal; /* the number; 0 without a timer */
};

/* A real-time signal that nobody handles, and that the calling thread does not block, as it would to wait for it;
 * 0 if there is none. */
int gb_os_free_signal(void);

/* Called by the thread that will wait. `signal` 0: only futex, as under seccomp. If that signal turns out to be
 * somebody's, it is passed on, and futex it is from then on. */
void gb_os_waiter_open(struct gb_waiter *waiter, int signal);
void gb_os_waiter_close(struct gb_waiter *waiter);

/* Sleeps until *word is not `seen`, gb_os_waiter_wake was called, `timeout_ns` are over or, if cpu_ns is not 0
 * and there is a timer, the process has used that much CPU time. May return early. */
void gb_os_wait(struct gb_waiter *waiter, uint32_t *word, uint32_t seen, uint64_t timeout_ns,
                uint64_t cpu_ns);

/* Wakes it, from another thread of this process, after *word was changed. */
void gb_os_wake(const struct gb_waiter *waiter, uint32_t thread, uint32_t *word);

/* Waits until *word is not `seen`, for `timeout_ns` at most; the word may be in shared memory. */
void gb_os_futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void gb_os_futex_wake_all(uint32_t *word);

/* ---- what the process is subject to ------------------------------------------ */

/* Knowing whether seccomp was set since, without a system call that could end a process that has
 * it set. See linux_sandbox.c. */
struct gb_sandbox {
  bool known; /* gb_os_sandbox_begin was called */
  bool has_file;
  bool apart; /* in a table of descriptors that the process does not share */
  int fd; /* /proc/self/status */
  int mode; /* as in field Seccomp, at the beginning: 0 off, 1 strict, 2 filter */
  int filters; /* field Seccomp_filters then; -1: this kernel does not tell */
  bool no_new_privileges; /* then, under a filter */
};

/* At the start of a program, or right after a fork: remembers how things are. 0.3 us without seccomp; with it,
 * a file is opened, which filters set before must allow since the dynamic linker does it. */
void gb_os_sandbox_begin(struct gb_sandbox *sandbox);
/* In a fork child: the file is the parent's. Closes it if it is still that. */
void gb_os_sandbox_forget(struct gb_sandbox *sandbox);
/* This thread has descriptors of its own now: the file is to be opened there. */
void gb_os_sandbox_forget_file(struct gb_sandbox *sandbox);

/* As gb_os_sandbox_begin, in a fork child: if a filter was set since the parent's beginning, nothing is opened,
 * and gb_os_sandbox_check will say so. */
void gb_os_sandbox_begin_again(struct gb_sandbox *sandbox);

/* As gb_os_sandbox_check, but opens nothing where none is open. */
enum gb_status gb_os_sandbox_glance(struct gb_sandbox *sandbox);

/* GB_OK: as it was at the beginning. GB_NO_PROC: nothing was added, but the file cannot be opened.
 * GB_SANDBOX: something was added, or it cannot be known any more: make no system call but madvise and
 * futex from now on. */
enum gb_status gb_os_sandbox_check(struct gb_sandbox *sandbox);

/* True if a mapping of this process lies under userfaultfd (VmFlags of smaps: um, uw). Costs
 * milliseconds a GB. */
enum gb_status gb_os_userfaultfd(bool *found);

/* ---- shared pages ------------------------------------------------------------- */

/* Memory that other processes can map by a file name in /dev/shm; NULL if there is no such
 * folder or it is full. No descriptor is kept, a fork child does not get it.
 * `name` is filled in for gb_os_shared_unlink. Names of processes that are gone are removed. */
#define GB_SHARED_NAME 80u
void *gb_os_shared_alloc(size_t bytes, char name[GB_SHARED_NAME]);
void gb_os_shared_unlink(const char name[GB_SHARED_NAME]);

/* ---- what this kernel can do --------------------------------------------- */

enum gb_feature {
  GB_FEATURE_NO = 0,
  GB_FEATURE_YES = 1,
  GB_FEATURE_UNTRIED = 2, /* seccomp is on: trying could kill the process */
};

struct gb_kernel_features {
  enum gb_feature process_madvise; /* MADV_DONTNEED on oneself, about Linux 6.13 */
  enum gb_feature pidfd_self; /* the same without opening a descriptor, 6.14 */
  enum gb_feature pagemap_scan; /* 6.7 */
  enum gb_feature pagemap;
  enum gb_feature mincore;
  enum gb_feature madv_free; /* 4.5 */
  int seccomp; /* field of /proc/self/status, -1 if unknown */
};

/* Tries each on a page of ours. Where seccomp filters this process nothing is
 * tried that it may not expect. */
void gb_os_probe_features(struct gb_kernel_features *features);

#endif
