#include "release/pass.h"

#include "base/clock.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

/* Of looks: they only count, so they can end at once when somebody waits. */
#define LOOK_PATIENCE_NS (2 * MILLISECOND)
/* A hold for which nobody waits, where the way was long; and how long to look for it. */
#define LONGEST_HOLD_NS (1500 * MICROSECOND)
#define WALK_NS (1500 * MICROSECOND)
/* Between two tries for a busy lock: doubling from the first to the last. */
#define BUSY_FIRST_NS (100 * MICROSECOND)
#define BUSY_LAST_NS (4 * MILLISECOND)
#define BUSY_LONGEST_NS (250 * MILLISECOND)
#define LONGEST_NAP_NS (20 * MILLISECOND)
/* So much of the pause may go into one batch. Larger ones are fewer calls, but a hold that has just not
 * reached its pause lasts for one more. */
#define BATCH_SHARE_PERCENT 90u
/* What a fault costs the program: the kernel zeroes the page and maps it. */
#define FAULT_NS UINT64_C(700)
/* mallinfo holds each arena for its whole list, about 100 ns a chunk. */
#define VERIFY_CHUNKS 5000u
/* So often in a row has a difference to be seen: in a heap that goes to and fro, each is chance. */
#define VERIFY_TRIES 12u
#define FIRST_STATES 32u
/* Out of reach: less is not worth another try. */
#define MUCH_LEFT (UINT64_C(1) << 20)
/* New snapshots of the mappings for the release of one arena. */
#define MOST_REFRESHES 16u

/* ---- opening ----------------------------------------------------------------------- */

static enum gb_status verify(struct gb_pass *pass) {
  const struct gb_account_options options = {
      .hold_ns = pass->config->pause_ns,
      .patience_ns = LOOK_PATIENCE_NS,
      .location = &pass->location,
      .without_pages = true,
      .without_malloc = true,
  };
  struct gb_comparison comparison;
  const struct gb_verify_limits limits = {.tries = VERIFY_TRIES, .chunks = VERIFY_CHUNKS};
  const enum gb_status status = gb_verify(&options, limits, &comparison);
  if (status != GB_OK)
    return status;
  /* Busy or too large: the structure must do, as it does for every look. */
  return comparison.verdict == GB_VERDICT_DIFFERENT ? GB_DOUBT_FIGURES : GB_OK;
}

static enum gb_status open_residency(struct gb_pass *pass) {
  if (pass->plain) /* a file, as others are read: mincore may not be expected */
    return gb_os_residency_open(&pass->residency, GB_RESIDENCY_PAGEMAP);
  return gb_os_residency_open_fast(&pass->residency,
                                   pass->config->old_kernel ? GB_RESIDENCY_PAGEMAP : GB_RESIDENCY_SCAN);
}

/* The CPU time of this thread since it was `cpu_ns` went into searching; returns it. */
static uint64_t charge_search(struct gb_pass *pass, uint64_t cpu_ns) {
  const uint64_t used = gb_thread_cpu_ns() - cpu_ns;
  gb_budget_charge(pass->budget, gb_now_ns(), used);
  gb_stats_add(&pass->stats->search_cpu_ns, used);
  return used;
}

static enum gb_status find_and_verify(struct gb_pass *pass) {
  /* First, since it costs time for each resident page, which a program that starts has fewer of. */
  enum gb_status status = gb_hazards_check(&pass->hazards, gb_now_ns());
  if (status == GB_OK)
    status = gb_locate_check(&pass->location);
  if (status == GB_OK)
    status = gb_find_glibc(&pass->location, false, &pass->maps, &pass->glibc);
  if (status == GB_OK) /* now with the libraries that were seen */
    status = gb_hazards_check(&pass->hazards, gb_now_ns());
  if (status == GB_OK)
    status = open_residency(pass);
  gb_stats_set(&pass->stats->residency, pass->residency.source);
  if (status == GB_OK)
    status = verify(pass);
  gb_os_residency_close(&pass->residency);
  return status;
}

enum gb_status gb_pass_open(struct gb_pass *pass) {
  const uint64_t cpu = gb_thread_cpu_ns();
  gb_hazards_watch(&pass->hazards, &pass->maps);
  gb_batch_begin(&pass->batch, pass->config->pause_ns * BATCH_SHARE_PERCENT / 100);
  gb_os_release_open(&pass->release, pass->plain || pass->config->old_kernel);
  gb_stats_set(&pass->stats->kernel_path, pass->release.many ? 0 : 1);
  enum gb_status status = find_and_verify(pass);
  if (status == GB_OK)
    status = gb_free_pages_init(&pass->seen);
  if (status == GB_OK)
    status = gb_looker_init(&pass->looker, &pass->glibc.layout, pass->glibc.heap_header, &pass->maps);
  (void)charge_search(pass, cpu);
  return status;
}

void gb_pass_close(struct gb_pass *pass) {
  for (size_t i = 0; i < pass->count; ++i) {
    if (pass->states[i].in_use)
      gb_arena_state_free(&pass->states[i]);
  }
  gb_os_free(pass->states, pass->capacity * sizeof *pass->states);
  gb_looker_free(&pass->looker);
  gb_free_pages_free(&pass->seen);
  gb_arena_list_free(&pass->list);
  gb_os_maps_free(&pass->maps);
  gb_os_residency_close(&pass->residency);
  *pass = (struct gb_pass){
      .config = pass->config,
      .stats = pass->stats,
      .budget = pass->budget,
      .stop = pass->stop,
      .plain = pass->plain,
      .location = pass->location,
  };
}

/* ---- arenas ------------------------------------------------------------------------- */

/* A state for each arena of the ring: they are never removed, and new ones are linked in behind the
 * main one, so they are matched by address. */
static enum gb_status update_states(struct gb_pass *pass) {
  enum gb_status status = gb_find_arenas(&pass->glibc, &pass->maps, &pass->list);
  if (status != GB_OK)
    return status;
  pass->looker.heap_header = pass->glibc.heap_header;
  if (pass->list.count == pass->count)
    return GB_OK;
  if (pass->list.count > pass->capacity) {
    size_t capacity = pass->capacity == 0 ? FIRST_STATES : pass->capacity;
    while (capacity < pass->list.count)
      capacity *= 2;
    struct gb_arena_state *grown =
        gb_os_grow(pass->states, pass->capacity * sizeof *grown, capacity * sizeof *grown);
    if (grown == NULL)
      return GB_NO_MEMORY;
    pass->states = grown;
    pass->capacity = capacity;
  }
  for (size_t i = 0; i < pass->list.count; ++i) {
    bool known = false;
    for (size_t j = 0; j < pass->count && !known; ++j)
      known = pass->states[j].address == pass->list.addresses[i];
    if (known)
      continue;
    status = gb_arena_state_init(&pass->states[pass->count], pass->list.addresses[i], i == 0,
                                 pass->config->age_ns);
    if (status != GB_OK)
      return status;
    ++pass->count;
  }
  gb_stats_set(&pass->stats->arenas, pass->count);
  return GB_OK;
}

static void refuse(struct gb_pass *pass, enum gb_status status) {
  if ((unsigned)status < GB_STATS_STATUSES)
    gb_stats_add(&pass->stats->refused[status], 1);
}

/* ---- looking ------------------------------------------------------------------------- */

static void collect(void *context, const struct gb_span *spans, size_t count) {
  struct gb_pass *pass = context;
  for (size_t i = 0; i < count && pass->seen_status == GB_OK; ++i)
    pass->seen_status = gb_free_pages_add(&pass->seen, spans[i].start, spans[i].end);
}

static enum gb_status look(struct gb_pass *pass, struct gb_arena_state *state) {
  const struct gb_look_options options = {
      .hold_ns = pass->config->pause_ns,
      .patience_ns = LOOK_PATIENCE_NS,
      .pages_only = true,
      .spans = collect,
      .context = pass,
  };
  gb_free_pages_clear(&pass->seen);
  pass->seen_status = GB_OK;
  struct gb_look look;
  enum gb_status status = gb_look_at(&pass->looker, state->address, state->is_main, &options, &look);
  gb_stats_add(&pass->stats->looks, 1);
  if (look.holds > 0)
    gb_stats_looks(pass->stats, look.holds, look.held_ns, look.longest_hold_ns);
  if (status == GB_OK)
    status = pass->seen_status;
  if (status != GB_OK)
    return status;
  uintptr_t start;
  uintptr_t end;
  gb_interior(look.top, look.top_bytes, pass->seen.page, &start, &end);
  if (look.top != 0 && start < end)
    status = gb_free_pages_add(&pass->seen, start, end);
  if (status == GB_OK)
    status = gb_free_pages_filter(&pass->seen, &pass->residency, true);
  return status;
}

static enum gb_status look_and_choose(struct gb_pass *pass, struct gb_arena_state *state,
                                      enum gb_arena_turn turn, bool all) {
  uint64_t refaulted = 0;
  enum gb_status status = look(pass, state);
  if (status == GB_OK)
    status = gb_arena_state_refaults(state, &pass->residency, &refaulted);
  gb_stats_add(&pass->stats->refaulted_bytes, refaulted);
  gb_budget_charge(pass->budget, gb_now_ns(), refaulted / gb_os_page_size() * FAULT_NS);
  if (status == GB_OK)
    status = gb_arena_state_seen(state, &pass->seen, turn, all, gb_now_ns());
  return status;
}

static void publish_held(struct gb_pass *pass) {
  uint64_t held = 0;
  for (size_t i = 0; i < pass->count; ++i)
    held += pass->states[i].held_bytes;
  gb_stats_set(&pass->stats->held_bytes, held);
}

/* Looks at every arena that is due. False if the budget ran out before. */
static bool look_at_all(struct gb_pass *pass, bool all, struct gb_pass_result *result) {
  uint64_t cpu = gb_thread_cpu_ns();
  bool finished = true;
  for (size_t i = 0; i < pass->count && *pass->stop == 0; ++i) {
    const size_t number = (pass->next + i) % pass->count;
    struct gb_arena_state *state = &pass->states[number];
    const uint64_t now = gb_now_ns();
    const uint64_t fingerprint = gb_arena_fingerprint(&pass->glibc.layout, state->address);
    result->changed |= fingerprint != state->fingerprint;
    enum gb_arena_turn turn = gb_arena_turn(state, fingerprint, now);
    result->waiting |= turn != GB_TURN_SKIP;
    if ((turn == GB_TURN_SKIP || turn == GB_TURN_WAIT) && !all)
      continue;
    if (gb_budget_wait(pass->budget, now) != 0 && !all) {
      gb_stats_add(&pass->stats->over_budget, 1);
      pass->next = number;
      finished = false;
      break;
    }
    const enum gb_status status = look_and_choose(pass, state, turn, all);
    gb_arena_state_looked(state, status == GB_OK, gb_now_ns());
    if (status == GB_BUSY || status == GB_STALE || status == GB_NO_ROOM)
      gb_stats_add(&pass->stats->busy, 1);
    else if (status != GB_OK)
      refuse(pass, status);
    state->look_cost_ns = charge_search(pass, cpu);
    cpu += state->look_cost_ns;
  }
  publish_held(pass);
  return finished;
}

/* ---- releasing ------------------------------------------------------------------------ */

static void count_hold(struct gb_pass *pass, const struct gb_reach_hold *hold) {
  struct gb_stats *stats = pass->stats;
  gb_stats_hold(stats, hold->hold_ns);
  gb_stats_add(&stats->holds_cut, hold->awaited ? 1 : 0);
  gb_stats_add(&stats->returned_bytes, hold->bytes + hold->top_bytes);
  gb_stats_add(&stats->returned_top_bytes, hold->top_bytes);
  gb_stats_add(&stats->advised_bytes, hold->bytes + hold->top_bytes);
  gb_stats_add(&stats->release_calls, hold->calls);
  gb_stats_add(&stats->release_failures, hold->failures);
  if (hold->failures != 0)
    gb_stats_set(&stats->release_errno, (uint64_t)hold->error);
  gb_stats_set(&stats->kernel_path, pass->release.many ? 0 : 1);
}

static void finish(struct gb_pass *pass, struct gb_arena_state *state) {
  gb_stats_add(&pass->stats->out_of_reach, state->reach.unreached);
  if (state->reach.locked > 0)
    refuse(pass, GB_LOCKED);
  const uint64_t left = gb_free_pages_bytes(&state->wanted);
  state->held_bytes -= state->wanted_bytes > left ? state->wanted_bytes - left : 0;
  if (state->reach.unreached > 0 && left >= MUCH_LEFT)
    gb_arena_state_out_of_reach(state, gb_now_ns());
  gb_arena_state_done(state);
}

static void was_busy(struct gb_pass *pass, struct gb_arena_state *state, uint64_t now) {
  if (state->busy_since_ns == 0) {
    state->busy_since_ns = now;
    state->busy_pause_ns = BUSY_FIRST_NS;
  } else if (state->busy_pause_ns < BUSY_LAST_NS) {
    state->busy_pause_ns *= 2;
  }
  state->not_before_ns = now + state->busy_pause_ns;
  if (now - state->busy_since_ns >= BUSY_LONGEST_NS) {
    gb_stats_add(&pass->stats->busy, 1);
    state->quiet_done = false; /* it comes up again in the next pass */
    finish(pass, state);
  }
}

/* One hold of one arena. */
static void release_once(struct gb_pass *pass, struct gb_arena_state *state, struct gb_pass_result *result) {
  const struct gb_reach_options options = {
      .pause_ns = pass->config->pause_ns,
      .longest_ns = LONGEST_HOLD_NS,
      .walk_ns = WALK_NS,
  };
  struct gb_reach_hold hold;
  enum gb_status status = gb_reach_release(&state->reach, &options, &hold);
  const uint64_t now = gb_now_ns();
  if (hold.held) {
    count_hold(pass, &hold);
    result->bytes += hold.bytes + hold.top_bytes;
    if (status != GB_BUSY) /* the lock was had, but the kernel may have asked to come again (EAGAIN) */
      state->busy_since_ns = 0;
    if (hold.awaited)
      state->not_before_ns = now + gb_duty_pause(pass->config->duty_ppm, hold.hold_ns);
    if (hold.full != NULL)
      gb_path_grow(hold.full);
  }
  if (status == GB_STALE && hold.failures == 0 && state->refreshes < MOST_REFRESHES) {
    ++state->refreshes;
    status = gb_os_maps_read(&pass->maps) == GB_OK ? GB_MORE : GB_NO_PROC;
  } else if (status == GB_NO_ROOM) {
    status = gb_ranges_grow(&pass->looker.ranges) == GB_OK ? GB_MORE : GB_NO_MEMORY;
  }
  if (status == GB_BUSY) {
    was_busy(pass, state, now);
  } else if (status != GB_MORE) {
    if (status != GB_OK && status != GB_LOCKED)
      refuse(pass, status);
    finish(pass, state);
  }
}

static bool begin_release(struct gb_pass *pass, struct gb_arena_state *state) {
  if (gb_path_init(&state->paths[0]) != GB_OK || gb_path_init(&state->paths[1]) != GB_OK)
    return false;
  state->reach = (struct gb_reach){
      .looker = &pass->looker,
      .release = &pass->release,
      .batch = &pass->batch,
      .paths = state->paths,
  };

  gb_reach_begin(&state->reach, state->address, state->is_main, &state->wanted);
  return true;
}

static void release_all(struct gb_pass *pass, struct gb_pass_result *result) {
  for (size_t i = 0; i < pass->count; ++i) {
    struct gb_arena_state *state = &pass->states[i];
    if (state->pending && !begin_release(pass, state)) {
      refuse(pass, GB_NO_MEMORY);
      gb_arena_state_done(state);
    }
  }
  for (;;) {
    uint64_t earliest = UINT64_MAX;
    for (size_t i = 0; i < pass->count; ++i) {
      struct gb_arena_state *state = &pass->states[i];
      /* One arena as long as nobody minds: its list is in the caches. */
      while (state->pending && *pass->stop == 0 && gb_now_ns() >= state->not_before_ns)
        release_once(pass, state, result);
      if (state->pending && *pass->stop != 0)
        finish(pass, state);
      if (state->pending && state->not_before_ns < earliest)
        earliest = state->not_before_ns;
    }
    if (earliest == UINT64_MAX)
      return;
    const uint64_t now = gb_now_ns();
    if (earliest > now) /* in short naps, to be stopped in between */
      gb_os_sleep_ns(earliest - now < LONGEST_NAP_NS ? earliest - now : LONGEST_NAP_NS);
  }
}

enum gb_status gb_pass_run(struct gb_pass *pass, bool all, struct gb_pass_result *result) {
  *result = (struct gb_pass_result){0};
  const uint64_t cpu = gb_thread_cpu_ns();
  pass->hazards.device_memory = false;
  enum gb_status status = gb_os_maps_read(&pass->maps);
  if (status == GB_OK)
    status = gb_hazards_check(&pass->hazards, gb_now_ns());
  if (status == GB_OK)
    status = open_residency(pass);
  if (status == GB_OK)
    status = update_states(pass);
  (void)charge_search(pass, cpu);
  if (status == GB_OK) {
    gb_stats_add(&pass->stats->passes, 1);
    if (!look_at_all(pass, all, result))
      result->waiting = true;
    release_all(pass, result);
    publish_held(pass);
  }
  gb_os_residency_close(&pass->residency);
  return status;
}
