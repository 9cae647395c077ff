/* The engine of this process: at most one thread, started and stopped by whoever asks.
 *
 * One process has one engine. It lives in libgiveback.so; a second user of it in the same process
 * (`import giveback` under `giveback run`) finds that library by its soname and calls through
 * the table below, after checking its version.
 *
 * Thread-safe, not async-signal-safe. A fork child has no engine until it is started there; after
 * raw clone() or _Fork() likewise, which is noticed by the process id.
 */
#ifndef GIVEBACK_RELEASE_ENGINE_H
#define GIVEBACK_RELEASE_ENGINE_H

#include "release/config.h"
#include "release/stats.h"

#define GB_SONAME "libgiveback.so"
#define GB_ENGINE_ABI 1u

struct gb_release_answer {
  uint64_t bytes; /* came back */
  uint64_t ns; /* wall */
};

struct gb_engine_api {
  uint32_t abi; /* GB_ENGINE_ABI; everything behind it is defined by that number */
  uint32_t bytes; /* of this structure */

  /* GB_OK; GB_RUNNING, nothing changed: it runs already; GB_BAD_CONFIG with `message`; GB_NO_THREAD;
   * GB_NO_MEMORY. What is refused later is in the stats. `text` as GIVEBACK=; NULL: defaults. */
  enum gb_status (*start)(const char *text, char message[GB_CONFIG_MESSAGE]);

  /* Ends the thread and waits for it: for the end of the look, the hold, or the call of glibc's (mallinfo,
   * malloc_trim) under way. GB_OK, also if there was none. */
  enum gb_status (*stop)(void);

  /* Releases what is held now, whatever its age, and waits for it. GB_OK; GB_NO_ENGINE;
   * GB_TIMEOUT: it goes on, but timeout_ns have passed (UINT64_MAX: wait for ever); or why the engine refuses. */
  enum gb_status (*release)(uint64_t timeout_ns, struct gb_release_answer *answer);

  /* A copy. GB_NO_ENGINE, with zeros, if none runs in this process. */
  enum gb_status (*stats)(struct gb_stats *stats);
};

/* ---- for the preload library, which links this in --------------------------- */

/* Before the first start in this process, as early as can be: remembers how seccomp stands. */
void gb_engine_prepare(void);

/* False in the child of a vfork(), which must leave the parent's memory alone, and of a fork that
 * gb_engine_after_fork was not told of. */
bool gb_engine_is_own_process(void);

/* Somebody called stop(): a fork child shall not start it again by itself. */
bool gb_engine_was_stopped(void);

/* In the child of a fork: there is no engine. */
void gb_engine_after_fork(void);
void gb_engine_forks_are_watched(void); /* gb_engine_after_fork will be called */

/* gb_fastbins_off was called when they were empty: nothing is left to merge. */
void gb_engine_fastbins_are_off(void);

/* From within malloc: GB_BUSY if somebody else is at it. GB_OK, GB_RUNNING; GB_OFF, GB_NO_THREAD, GB_NO_MEMORY,
 * GB_SANDBOX, or what gb_locate_provider returns: then the page of stats says so. */
enum gb_status gb_engine_start_unasked(const struct gb_config *config);

/* Removes the name of the stats; waits for nobody. */
void gb_engine_at_exit(void);

/* The only symbol of libgiveback.so but for those it puts in front of others when preloaded. */
__attribute__((visibility("default"))) const struct gb_engine_api *giveback_engine(void);

#endif
