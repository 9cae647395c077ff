/* What forbids to release anything in this process, looked for before each pass that reads the heap.
 *
 * RDMA and MPI libraries keep memory registered for devices and learn of its release by hooking
 * libc's madvise, at best (openucx/ucx#3836). A monitor behind userfaultfd may never read the event that madvise
 * then waits for. Both are recognised without system calls of their own kind: the libraries by
 * the mappings that a pass reads anyway, userfaultfd by the kernel's word on each mapping, which
 * costs milliseconds, so once a minute and at the first pass.
 */
#ifndef GIVEBACK_RELEASE_HAZARDS_H
#define GIVEBACK_RELEASE_HAZARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "os/os.h"

struct gb_hazards {
  bool device_memory; /* seen in the last snapshot */
  bool monitored; /* userfaultfd */
  bool asked; /* at all about it */
  uint64_t asked_ns; /* when */
};

/* Makes `maps` look for them whenever a snapshot is taken. `hazards` must outlive it. */
void gb_hazards_watch(struct gb_hazards *hazards, struct gb_maps *maps);

/* pre: `maps` was read just now. GB_OK, GB_RDMA, GB_USERFAULTFD, GB_NO_PROC. */
enum gb_status gb_hazards_check(struct gb_hazards *hazards, uint64_t now_ns);

/* True if a file of this name belongs to RDMA or MPI: its libraries, its device. */
bool gb_is_device_memory(const char *path);

#endif
