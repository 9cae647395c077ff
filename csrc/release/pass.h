/* One pass: look at the arenas that changed, decide what is old enough, release it.
 *
 * Invariant: everything here runs on the engine's thread, which has no arena of its own: it never calls
 * malloc. One lock at a time, in gb_look_at and gb_reach_release only.
 *
 * Ownership: tables are ours (gb_os_alloc); stats are the engine's page.
 */
#ifndef GIVEBACK_RELEASE_PASS_H
#define GIVEBACK_RELEASE_PASS_H

#include "heap/find.h"
#include "heap/verify.h"
#include "release/arena_state.h"
#include "release/budget.h"
#include "release/config.h"
#include "release/hazards.h"
#include "release/stats.h"

struct gb_pass {
  const struct gb_config *config;
  struct gb_stats *stats;
  struct gb_budget *budget; /* outlives a pass that is opened anew */
  const uint32_t *stop; /* not 0: return soon */
  bool plain; /* under seccomp: only what is known to be allowed */

  struct gb_location location;
  struct gb_glibc glibc;
  struct gb_maps maps;
  struct gb_hazards hazards;
  struct gb_arena_list list;
  struct gb_looker looker;
  struct gb_residency residency;
  struct gb_release release;
  struct gb_batch batch;
  struct gb_arena_state *states;
  size_t count;
  size_t capacity;
  struct gb_free_pages seen;
  enum gb_status seen_status;
  size_t next; /* the arena to begin with: a pass that ran out of budget goes on there */
};

/* What came of a pass. */
struct gb_pass_result {
  bool changed; /* an arena was not as before */
  bool waiting; /* something is to be looked at again */
  uint64_t bytes; /* returned */
};

/* Verifies the layout by structure and, where that takes no long holds, against mallinfo; charges that to `budget`.
 * pre: `pass` is closed, and its fields down to `location`, from gb_locate_provider, are filled in. GB_OK, or why
 * nothing may be touched: then gb_pass_close must follow all the same. */
enum gb_status gb_pass_open(struct gb_pass *pass);
/* Its first fields, down to `location`, stay. */
void gb_pass_close(struct gb_pass *pass);

/* `all`: whatever is held, whatever its age. GB_OK; or GB_RDMA, GB_USERFAULTFD, GB_NO_*: nothing was
 * touched, and the next pass may find it otherwise. */
enum gb_status gb_pass_run(struct gb_pass *pass, bool all, struct gb_pass_result *result);

#endif
