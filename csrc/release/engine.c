#include "release/engine.h"

#include <pthread.h>
#include <stddef.h>

#include "base/clock.h"
#include "heap/arena.h"
#include "release/pace.h"
#include "release/pass.h"
#include "release/trim.h"

#define MILLISECOND UINT64_C(1000000)
/* A refusal may end (RDMA libraries are unloaded, memory is there again): asked again after this. */
#define RETRY_NS UINT64_C(10000000000)

/* The one engine of this process: all that is global in this layer, with the name of stats.c. */
static struct gb_engine {
  uint32_t lock; /* guards starting and stopping; a futex word, 0 free, 1 taken */
  uint32_t process; /* whose all this is */
  uint32_t stop; /* the thread shall end */
  bool runs; /* the thread exists */
  bool forks_watched; /* gb_engine_after_fork is called in children of fork() */
  bool early; /* fastbins were switched off when they were empty */
  uint64_t thread; /* to be joined */
  bool stopped; /* by whoever asked for it */
  struct gb_config config;
  struct gb_location location;
  struct gb_sandbox sandbox;
  int free_signal; /* for the thread to wait for */
  struct gb_waiter waiter;
  struct gb_stats *stats;
  struct gb_budget budget; /* of the thread, as is the pass */
  struct gb_pass pass;
} engine;

/* ---- the lock, and forks --------------------------------------------------------------- */

static void forget_parent(uint32_t process) {
  engine.lock = 0;
  engine.stop = 0;
  engine.runs = false;
  engine.thread = 0;
  engine.stats = NULL;
  /* Not closed: its tables are not mapped here (gb_os_alloc). */
  engine.pass = (struct gb_pass){0};
  engine.waiter = (struct gb_waiter){0};
  engine.process = process;
  gb_stats_after_fork();
  gb_arena_gate_after_fork();
}

/* Right after fork(): the thread, its tables and the page of stats are the parent's. How seccomp stands must
 * be asked before the child can put itself under it. */
void gb_engine_after_fork(void) {
  forget_parent(gb_os_process_id());
  gb_os_sandbox_begin_again(&engine.sandbox);
}

static bool try_lock(void) {
  /* After raw clone() or _Fork() no handler ran. */
  if (engine.process != gb_os_process_id() && engine.process != 0)
    gb_engine_after_fork();
  uint32_t expected = 0;
  return __atomic_compare_exchange_n(&engine.lock, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void take_lock(void) {
  while (!try_lock())
    gb_os_futex_wait(&engine.lock, 1, MILLISECOND);
}

static void give_lock(void) {
  __atomic_store_n(&engine.lock, 0, __ATOMIC_RELEASE);
}

void gb_engine_prepare(void) {
  const uint32_t process = gb_os_process_id();
  if (engine.process != process)
    forget_parent(process);
  if (!engine.sandbox.known)
    gb_os_sandbox_begin(&engine.sandbox);
}

bool gb_engine_was_stopped(void) {
  return engine.stopped;
}

bool gb_engine_is_own_process(void) {
  return engine.process == gb_os_process_id();
}

void gb_engine_fastbins_are_off(void) {
  engine.early = true;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void publish_state(enum gb_engine_state state, enum gb_status reason) {
  __atomic_store_n(&engine.stats->reason, (uint32_t)reason, __ATOMIC_RELAXED);
  __atomic_store_n(&engine.stats->state, (uint32_t)state, __ATOMIC_RELAXED);
}

static void publish_budgets(const struct gb_config *config, struct gb_stats *stats) {
  stats->policy = (uint32_t)config->policy;
  stats->cpu_ppm = config->cpu_ppm;
  stats->duty_ppm = config->duty_ppm;
  stats->pause_ns = config->pause_ns;
  stats->age_ns = config->age_ns;
}

static bool shall_stop(void) {
  return __atomic_load_n(&engine.stop, __ATOMIC_ACQUIRE) != 0;
}

static void answer(uint32_t wanted, uint64_t bytes, uint64_t begin_ns) {
  struct gb_stats *stats = engine.stats;
  gb_stats_set(&stats->answer_bytes, bytes);
  gb_stats_set(&stats->answer_ns, gb_now_ns() - begin_ns);
  /* release: pairs with the acquire of whoever waits for it, who then reads the two above. */
  __atomic_store_n(&stats->answered, wanted, __ATOMIC_RELEASE);
  gb_os_futex_wake_all(&stats->answered);
}

static void wait_for_work(uint64_t timeout_ns, uint64_t cpu_ns) {
  struct gb_stats *stats = engine.stats;
  gb_stats_set(&stats->engine_cpu_ns, gb_thread_cpu_ns());
  gb_os_wait(&engine.waiter, &stats->wanted, __atomic_load_n(&stats->answered, __ATOMIC_RELAXED), timeout_ns,
             cpu_ns);
  __atomic_store_n(&stats->wake_signal, (uint32_t)engine.waiter.signal, __ATOMIC_RELEASE);
  gb_stats_add(&stats->wakeups, 1);
}

/* For good: a system call could end the process, so nothing but futex from here on. */
static void sit_out_sandbox(void) {
  struct gb_stats *stats = engine.stats;
  __atomic_store_n(&stats->wake_signal, 0, __ATOMIC_RELEASE); /* nor from who asks us */
  publish_state(GB_ENGINE_REFUSES, GB_SANDBOX);
  while (!shall_stop()) {
    const uint32_t wanted = __atomic_load_n(&stats->wanted, __ATOMIC_ACQUIRE);
    answer(wanted, 0, gb_now_ns());
    gb_os_futex_wait(&stats->wanted, wanted, RETRY_NS);
  }
}

/* One turn under policy `trim`, or as the fallback. */
static void trim_once(void) {
  const uint64_t cpu = gb_thread_cpu_ns();
  gb_trim(engine.stats);
  gb_budget_charge(&engine.budget, gb_now_ns(), gb_thread_cpu_ns() - cpu);
}

/* What the thread knows from one turn to the next. */
struct turn {
  struct gb_pace pace;
  struct gb_usage seen; /* at the last pass */
  bool open; /* engine.pass can be used */
  bool waiting; /* something has to be looked at again */
  bool first;
  uint64_t nap_ns;
};

static enum gb_status open_pass(void) {
  gb_pass_close(&engine.pass);
  const enum gb_status status = gb_pass_open(&engine.pass);
  if (status == GB_OK && !engine.early && !engine.config.keep_fastbins)
    gb_fastbins_empty(&engine.pass);
  return status;
}

/* Returns the bytes that came back. */
static uint64_t run_pass(struct turn *turn, bool all) {
  struct gb_pass_result result = {0};
  enum gb_status status = GB_OK;
  if (!turn->open) {
    status = open_pass();
    turn->open = status == GB_OK;
  }
  if (turn->open)
    status = gb_pass_run(&engine.pass, all, &result);
  publish_state(status == GB_OK ? GB_ENGINE_RUNS : GB_ENGINE_REFUSES, status);
  turn->waiting = result.waiting;
  if (status == GB_OK) {
    turn->nap_ns = gb_pace_next(&turn->pace, result.changed, result.waiting);
  } else if (gb_trim_may_help(status)) {
    turn->nap_ns = engine.config.every_ns;
    trim_once();
  } else {
    turn->nap_ns = RETRY_NS;
  }
  const uint64_t budget = gb_budget_wait(&engine.budget, gb_now_ns());
  if (budget > turn->nap_ns)
    turn->nap_ns = budget;
  return result.bytes;
}

static uint64_t run_policy(struct turn *turn, bool asked) {
  if (engine.config.policy != GB_POLICY_TRIM)
    return run_pass(turn, asked);
  uint64_t bytes = 0;
  if (asked)
    bytes = run_pass(turn, true);
  else
    publish_state(GB_ENGINE_RUNS, GB_OK);
  if (!asked && !turn->first) /* the timer begins at the start */
    trim_once();
  turn->nap_ns = engine.config.every_ns;
  turn->waiting = false;
  return bytes;
}

/* The difference of two clocks that are read one after the other can fall by a microsecond. */
static uint64_t grown(uint64_t now, uint64_t before) {
  return now > before ? now - before : 0;
}

/* Does what is to be done now, and sleeps until there may be something again. */
static void take_turn(struct turn *turn) {
  const uint64_t begin = gb_now_ns();
  const uint32_t wanted = __atomic_load_n(&engine.stats->wanted, __ATOMIC_ACQUIRE);
  const bool asked = wanted != engine.stats->answered;
  struct gb_usage usage;
  gb_os_usage(&usage);
  const bool active =
      gb_pace_is_active(grown(usage.cpu_ns, turn->seen.cpu_ns), grown(usage.faults, turn->seen.faults));
  if (asked || active || turn->waiting || turn->first) {
    turn->seen = usage;
    const uint64_t bytes = run_policy(turn, asked);
    turn->first = false;
    if (asked)
      answer(wanted, bytes, begin);
    wait_for_work(turn->nap_ns, 0);
  } else if (engine.waiter.has_timer) {
    wait_for_work(GB_PACE_SETTLED_NS, GB_PACE_ACTIVE_CPU_NS);
  } else {
    wait_for_work(GB_PACE_SLOWEST_NS, 0);
  }
}

static void begin(struct turn *turn) {
  struct gb_stats *stats = engine.stats;
  const bool plain = engine.sandbox.mode > 0;
  /* Descriptors of our own: the program can neither close nor reuse them, nor find them in its way. */
  if (!plain && gb_os_descriptors_unshare())
    gb_os_sandbox_forget_file(&engine.sandbox);
  gb_os_thread_name("giveback");
  *turn = (struct turn){.first = true};
  gb_pace_begin(&turn->pace, engine.config.age_ns);
  gb_budget_begin(&engine.budget, engine.config.cpu_ppm, gb_now_ns());
  engine.pass = (struct gb_pass){
      .config = &engine.config,
      .stats = stats,
      .budget = &engine.budget,
      .stop = &engine.stop,
      .plain = plain,
      .location = engine.location,
  };
  __atomic_store_n(&stats->thread, gb_os_thread_id(), __ATOMIC_RELAXED);
  gb_os_waiter_open(&engine.waiter, plain ? 0 : engine.free_signal);
  __atomic_store_n(&stats->wake_signal, (uint32_t)engine.waiter.signal, __ATOMIC_RELEASE);
}

static void *run(void *unused) {
  (void)unused;
  struct gb_stats *stats = engine.stats;
  struct turn turn;
  begin(&turn);
  for (;;) {
    const enum gb_status surroundings = gb_os_sandbox_check(&engine.sandbox);
    if (surroundings == GB_SANDBOX) {
      sit_out_sandbox();
      return NULL; /* leaving everything as it is: no system call that is not needed */
    }
    if (shall_stop())
      break;
    if (surroundings == GB_OK) {
      take_turn(&turn);
      continue;
    }
    publish_state(GB_ENGINE_REFUSES, surroundings);
    answer(__atomic_load_n(&stats->wanted, __ATOMIC_ACQUIRE), 0, gb_now_ns());
    wait_for_work(RETRY_NS, 0);
  }
  gb_pass_close(&engine.pass);
  gb_os_waiter_close(&engine.waiter);
  answer(__atomic_load_n(&stats->wanted, __ATOMIC_ACQUIRE), 0, gb_now_ns());
  return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------ */

static void wake_thread(void) {
  struct gb_stats *stats = engine.stats;
  /* Under a filter that was set since, the signal could end the process: then the thread notices by itself. */
  const bool signals = gb_os_sandbox_glance(&engine.sandbox) == GB_OK;
  const int number = signals ? (int)__atomic_load_n(&stats->wake_signal, __ATOMIC_ACQUIRE) : 0;
  const struct gb_waiter waiter = {.signal = number, .has_timer = number != 0};
  gb_os_wake(&waiter, __atomic_load_n(&stats->thread, __ATOMIC_RELAXED), &stats->wanted);
}

static enum gb_status open_stats(void) {
  bool shared;
  engine.stats = gb_stats_open(&shared);
  if (engine.stats == NULL)
    return GB_NO_MEMORY;
  publish_budgets(&engine.config, engine.stats);
  gb_stats_set(&engine.stats->started_ns, gb_clock_read(CLOCK_REALTIME));
  return GB_OK;
}

/* Under a filter that was set since, removing the name could end the process. */
static bool may_unlink(void) {
  return __atomic_load_n(&engine.stats->reason, __ATOMIC_RELAXED) != GB_SANDBOX &&
         gb_os_sandbox_glance(&engine.sandbox) == GB_OK;
}

static void close_stats(void) {
  if (engine.stats == NULL)
    return;
  if (!may_unlink())
    gb_stats_after_fork(); /* the name stays until the next engine removes it */
  gb_stats_close(engine.stats);
  engine.stats = NULL;
}

static enum gb_status start_thread(void) {
  enum gb_status status = gb_locate_provider(&engine.location);
  if (status != GB_OK)
    return status;
  status = open_stats();
  if (status != GB_OK)
    return status;
  engine.free_signal = gb_os_free_signal();
  engine.stop = 0;
  engine.stopped = false;
  publish_state(GB_ENGINE_RUNS, GB_OK);
  status = gb_os_thread_start(&engine.thread, run, NULL);
  if (status != GB_OK) {
    close_stats();
    return status;
  }
  engine.runs = true;
  return GB_OK;
}

/* pre: the lock is ours. */
static enum gb_status start_with(const struct gb_config *config) {
  if (config->policy == GB_POLICY_OFF)
    return GB_OFF;
  if (engine.runs)
    return GB_RUNNING;
  engine.config = *config;
  if (gb_os_sandbox_glance(&engine.sandbox) != GB_OK) {
    if (engine.stats != NULL) /* of a start that failed before */
      publish_state(GB_ENGINE_REFUSES, GB_SANDBOX);
    return GB_SANDBOX;
  }
  close_stats();
  return start_thread();
}

enum gb_status gb_engine_start_unasked(const struct gb_config *config) {
  /* Called from within malloc, perhaps that of a thread that is starting the engine right now. */
  if (!try_lock())
    return GB_BUSY;
  const enum gb_status status = start_with(config);
  if (status != GB_OK && status != GB_RUNNING && status != GB_SANDBOX && engine.stats == NULL) {
    engine.config = *config;
    if (open_stats() == GB_OK)
      publish_state(GB_ENGINE_REFUSES, status);
  }
  give_lock();
  return status;
}

/* The preload library watches forks by itself. */
static void watch_forks(void) {
  take_lock();
  if (!engine.forks_watched)
    engine.forks_watched = pthread_atfork(NULL, NULL, gb_engine_after_fork) == 0;
  give_lock();
}

void gb_engine_forks_are_watched(void) {
  engine.forks_watched = true;
}

static enum gb_status api_start(const char *text, char message[GB_CONFIG_MESSAGE]) {
  struct gb_config config;
  gb_config_default(&config);
  const enum gb_status status = gb_config_parse(&config, text, message);
  if (status != GB_OK)
    return status;
  const int cancellation = gb_os_cancellation_off();
  gb_engine_prepare();
  watch_forks();
  take_lock();
  const enum gb_status started = start_with(&config);
  give_lock();
  gb_os_cancellation_restore(cancellation);
  return started;
}

static enum gb_status api_stop(void) {
  const int cancellation = gb_os_cancellation_off();
  take_lock();
  if (engine.runs) {
    __atomic_store_n(&engine.stop, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&engine.stats->wanted, 1, __ATOMIC_RELEASE);
    wake_thread();
    gb_os_thread_join(engine.thread);
    engine.runs = false;
    engine.stopped = true;
  }
  close_stats();
  give_lock();
  gb_os_cancellation_restore(cancellation);
  return GB_OK;
}

static enum gb_status release_and_wait(uint64_t timeout_ns, struct gb_release_answer *answered) {
  *answered = (struct gb_release_answer){0};
  take_lock();
  struct gb_stats *stats = engine.runs ? engine.stats : NULL;
  if (stats == NULL) {
    give_lock();
    return GB_NO_ENGINE;
  }
  const uint32_t mine = __atomic_add_fetch(&stats->wanted, 1, __ATOMIC_ACQ_REL);
  wake_thread();
  give_lock();
  const uint64_t begin = gb_now_ns();
  for (;;) {
    /* Within the lock: stop() unmaps the page. acquire: pairs with the release in answer(). */
    take_lock();
    enum gb_status status = GB_MORE;
    uint32_t seen = 0;
    if (!engine.runs || engine.stats != stats) {
      status = GB_NO_ENGINE;
    } else {
      seen = __atomic_load_n(&stats->answered, __ATOMIC_ACQUIRE);
      if ((int32_t)(seen - mine) >= 0) {
        answered->bytes = stats->answer_bytes;
        answered->ns = stats->answer_ns;
        status = (enum gb_status)__atomic_load_n(&stats->reason, __ATOMIC_RELAXED);
      }
    }
    give_lock();
    if (status != GB_MORE)
      return status;
    const uint64_t passed = gb_now_ns() - begin;
    if (passed >= timeout_ns)
      return GB_TIMEOUT;
    /* Short naps: the page may be gone after each. */
    gb_os_sleep_ns(timeout_ns - passed < MILLISECOND ? timeout_ns - passed : MILLISECOND);
  }
}

static enum gb_status api_release(uint64_t timeout_ns, struct gb_release_answer *answered) {
  const int cancellation = gb_os_cancellation_off();
  const enum gb_status status = release_and_wait(timeout_ns, answered);
  gb_os_cancellation_restore(cancellation);
  return status;
}

static enum gb_status api_stats(struct gb_stats *stats) {
  const int cancellation = gb_os_cancellation_off();
  take_lock();
  const enum gb_status status = engine.stats == NULL ? GB_NO_ENGINE : GB_OK;
  *stats = engine.stats == NULL ? (struct gb_stats){0} : *engine.stats;
  give_lock();
  gb_os_cancellation_restore(cancellation);
  return status;
}

void gb_engine_at_exit(void) {
  /* Without the lock, and without waiting for anybody: exit() may have been called anywhere. */
  if (engine.stats != NULL && engine.process == gb_os_process_id() && may_unlink())
    gb_stats_unlink();
}

const struct gb_engine_api *giveback_engine(void) {
  static const struct gb_engine_api api = {
      .abi = GB_ENGINE_ABI,
      .bytes = sizeof(struct gb_engine_api),
      .start = api_start,
      .stop = api_stop,
      .release = api_release,
      .stats = api_stats,
  };
  return &api;
}
