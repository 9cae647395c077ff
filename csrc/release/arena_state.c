#include "release/arena_state.h"

/* Looks at an arena that is at work take at most the 40th part of the time, whatever the budget. */
#define TIMES_LOOK_COST 40u
#define MOST_TRIES_TO_REACH 6u
#define MOST_FAILED_LOOKS 6u /* the last one 32 ages after the one before */
/* An arena at work: less is not worth the locks; it is more the next time, or all of it once the arena is
 * quiet. */
#define LITTLE_BYTES (UINT64_C(1) << 20)
/* Runs that are shorter than this on average are put off, for so many looks at most. */
#define SMALL_RUN_BYTES (UINT64_C(32) << 10)
#define MOST_PUT_OFF 8u

enum gb_status gb_arena_state_init(struct gb_arena_state *state, uintptr_t address, bool is_main,
                                   uint64_t age_ns) {
  *state = (struct gb_arena_state){.address = address, .is_main = is_main};
  gb_age_begin(&state->age, age_ns);
  enum gb_status status = gb_free_pages_init(&state->before);
  if (status == GB_OK)
    status = gb_free_pages_init(&state->wanted);
  if (status == GB_OK)
    status = gb_free_pages_init(&state->released);
  if (status != GB_OK) {
    gb_arena_state_free(state);
    return status;
  }
  state->in_use = true;
  return GB_OK;
}

void gb_arena_state_free(struct gb_arena_state *state) {
  gb_free_pages_free(&state->before);
  gb_free_pages_free(&state->wanted);
  gb_free_pages_free(&state->released);
  gb_path_free(&state->paths[0]);
  gb_path_free(&state->paths[1]);
  state->in_use = false;
}

uint64_t gb_arena_fingerprint(const struct gb_layout *layout, uintptr_t arena) {
  uint64_t figure = 0;
  for (uintptr_t at = arena + GB_ARENA_CONTENTS; at + 8 <= arena + layout->size; at += 8)
    figure = (figure ^ gb_load(at)) * UINT64_C(0x9e3779b97f4a7c15) + (figure >> 29);
  return figure;
}

enum gb_arena_turn gb_arena_turn(struct gb_arena_state *state, uint64_t fingerprint, uint64_t now_ns) {
  if (!state->known)
    state->known_since_ns = now_ns;
  if (fingerprint != state->fingerprint || !state->known) {
    state->known = true;
    state->fingerprint = fingerprint;
    state->quiet_since_ns = now_ns;
    state->quiet_done = false;
    state->failed_looks = 0;
    state->tries_to_reach = 0;
  }
  if (state->quiet_done || state->failed_looks >= MOST_FAILED_LOOKS)
    return GB_TURN_SKIP;
  if (now_ns < state->look_not_before_ns)
    return GB_TURN_WAIT;
  if (now_ns - state->quiet_since_ns >= state->age.base_ns)
    return GB_TURN_QUIET;
  const uint64_t dear = state->look_cost_ns * TIMES_LOOK_COST;
  /* Also the first look, which releases nothing, is not due at once: the arena may fall quiet before. */
  const uint64_t since = state->before_ns == 0 ? state->known_since_ns : state->before_ns;
  const uint64_t due = since + (state->age.now_ns > dear ? state->age.now_ns : dear);
  return now_ns >= due ? GB_TURN_OLD : GB_TURN_WAIT;
}

void gb_arena_state_looked(struct gb_arena_state *state, bool succeeded, uint64_t now_ns) {
  if (succeeded) {
    state->failed_looks = 0;
    state->look_not_before_ns = 0;
    return;
  }
  ++state->failed_looks;
  state->look_not_before_ns = now_ns + (state->age.base_ns << state->failed_looks);
}

void gb_arena_state_out_of_reach(struct gb_arena_state *state, uint64_t now_ns) {
  if (state->tries_to_reach == MOST_TRIES_TO_REACH)
    return;
  ++state->tries_to_reach;
  state->quiet_done = false;
  state->look_not_before_ns = now_ns + (state->age.base_ns << state->tries_to_reach);
}

static void swap(struct gb_free_pages *left, struct gb_free_pages *right) {
  const struct gb_free_pages kept = *left;
  *left = *right;
  *right = kept;
}

/* Of an arena at work: whether `wanted` is worth releasing now. */
static bool is_worth_it(struct gb_arena_state *state) {
  const uint64_t bytes = gb_free_pages_bytes(&state->wanted);
  if (bytes < LITTLE_BYTES)
    return false;
  const bool small = bytes / gb_free_pages_runs(&state->wanted) < SMALL_RUN_BYTES;
  state->put_off = small && state->put_off < MOST_PUT_OFF ? state->put_off + 1 : 0;
  return state->put_off == 0;
}

enum gb_status gb_arena_state_seen(struct gb_arena_state *state, struct gb_free_pages *seen,
                                   enum gb_arena_turn turn, bool all, uint64_t now_ns) {
  enum gb_status status = GB_OK;
  state->held_bytes = gb_free_pages_bytes(seen);
  gb_free_pages_clear(&state->wanted);
  if (all || turn == GB_TURN_QUIET) {
    /* Also the next generation's start: what cannot be reached now is old already. */
    gb_free_pages_clear(&state->before);
    status = gb_free_pages_unite(&state->before, seen);
    swap(&state->wanted, seen);
    state->quiet_done = turn == GB_TURN_QUIET;
    state->put_off = 0;
  } else {
    if (state->before_ns != 0) {
      status = gb_free_pages_unite(&state->wanted, seen);
      gb_free_pages_intersect(&state->wanted, &state->before);
      if (!is_worth_it(state))
        gb_free_pages_clear(&state->wanted);
    }
    swap(&state->before, seen);
  }
  state->before_ns = now_ns;
  state->wanted_bytes = gb_free_pages_bytes(&state->wanted);
  state->pending = state->wanted_bytes > 0;
  state->not_before_ns = 0;
  state->busy_since_ns = 0;
  state->refreshes = 0;
  if (status == GB_OK)
    status = gb_free_pages_unite(&state->released, &state->wanted);
  return status;
}

enum gb_status gb_arena_state_refaults(struct gb_arena_state *state, const struct gb_residency *residency,
                                       uint64_t *bytes) {
  const uint64_t before = gb_free_pages_bytes(&state->released);
  *bytes = 0;
  if (before == 0)
    return GB_OK;
  const enum gb_status status = gb_free_pages_filter(&state->released, residency, false);
  *bytes = before - gb_free_pages_bytes(&state->released);
  gb_age_learn(&state->age, before, *bytes);
  return status;
}

void gb_arena_state_done(struct gb_arena_state *state) {
  state->pending = false;
  gb_path_free(&state->paths[0]);
  gb_path_free(&state->paths[1]);
  gb_free_pages_subtract(&state->released, &state->wanted);
  gb_free_pages_clear(&state->wanted);
}
