/* What the engine remembers of one arena from pass to pass: which pages were free, since when, and
 * which it has released.
 *
 * All of it steers what is worth to be looked at; none of it says what may be released
 * (reach.h, R5). Two ways lead a page to its release:
 *
 *   quiet  the arena's own fields have not changed for the basic age: everything that is free in it now
 *          has been free for as long. One look, each time it falls quiet.
 *   old    the arena is at work: pages that two looks, `age` apart, both saw free and in memory. Where most
 *          stand alone, several looks later: each then costs as much as a large run, is
 *          soon taken again, and its neighbours may be free by then, too.
 *
 * Owner: the engine's thread.
 */
#ifndef GIVEBACK_RELEASE_ARENA_STATE_H
#define GIVEBACK_RELEASE_ARENA_STATE_H

#include "heap/free_pages.h"
#include "heap/reach.h"
#include "release/age.h"

struct gb_arena_state {
  uintptr_t address;
  bool is_main;
  bool in_use; /* the sets below exist */
  bool known; /* the fingerprint was taken */
  uint64_t known_since_ns;
  uint64_t fingerprint; /* of the arena's fields */
  uint64_t quiet_since_ns;
  bool quiet_done; /* it was released since it fell quiet */
  uint64_t before_ns; /* when `before` was taken; 0: never */
  unsigned put_off; /* looks in a row that found old pages, but only small runs of them */
  struct gb_age age;
  uint64_t look_cost_ns; /* CPU time of the last look: one that is dear is not repeated so soon */
  unsigned failed_looks; /* in a row, since it changed last */
  unsigned tries_to_reach; /* releases since it changed last that left much behind */
  uint64_t look_not_before_ns; /* after one of either */
  uint64_t held_bytes; /* when last looked at */
  struct gb_free_pages before; /* free and in memory then */
  struct gb_free_pages wanted; /* to be released in this pass */
  struct gb_free_pages released; /* by us, and not in use again since, as far as is known */

  /* The release under way. */
  struct gb_path paths[2];
  struct gb_reach reach;
  bool pending;
  uint64_t not_before_ns; /* duty, or a lock that was busy */
  uint64_t busy_since_ns; /* 0: it was not */
  uint64_t busy_pause_ns;
  uint64_t wanted_bytes; /* at the start of the release */
  unsigned refreshes; /* of the mappings, for it */
};

enum gb_status gb_arena_state_init(struct gb_arena_state *state, uintptr_t address, bool is_main,
                                   uint64_t age_ns);
void gb_arena_state_free(struct gb_arena_state *state);

/* A figure that changes when the arena's fields do. Read without the lock: a torn one is no harm, it
 * differs once more. */
uint64_t gb_arena_fingerprint(const struct gb_layout *layout, uintptr_t arena);

/* What to do with an arena whose fingerprint is `fingerprint` now. */
enum gb_arena_turn {
  GB_TURN_SKIP, /* nothing to do, now or later, until it changes */
  GB_TURN_WAIT, /* not old enough: come again */
  GB_TURN_QUIET,
  GB_TURN_OLD, /* also the first look */
};
enum gb_arena_turn gb_arena_turn(struct gb_arena_state *state, uint64_t fingerprint, uint64_t now_ns);

/* After every try to look at it. One that fails is tried again, ever later, a few times; then not before the
 * arena changes. */
void gb_arena_state_looked(struct gb_arena_state *state, bool succeeded, uint64_t now_ns);

/* After a release that left much behind in lists too long to be walked: the machine may have been slow just then.
 * The arena comes up again, ever later, a few times; then not before it changes. */
void gb_arena_state_out_of_reach(struct gb_arena_state *state, uint64_t now_ns);

/* Takes over a look: `seen`, the pages that are free and in memory; its content is then undefined.
 * Fills in `wanted`; `all` wants everything, whatever its age. */
enum gb_status gb_arena_state_seen(struct gb_arena_state *state, struct gb_free_pages *seen,
                                   enum gb_arena_turn turn, bool all, uint64_t now_ns);

/* What of our releases is in use again: forgets and returns those bytes, and learns from them. */
enum gb_status gb_arena_state_refaults(struct gb_arena_state *state, const struct gb_residency *residency,
                                       uint64_t *bytes);

/* After the release: what is left in `wanted` was not done. */
void gb_arena_state_done(struct gb_arena_state *state);

#endif
