/* libgiveback.so, preloaded: reads GIVEBACK, and starts the engine once the process is worth it.
 *
 * Nothing here may stop a program: what is wrong is said in one line, and the program runs without an
 * engine. The library is never unloaded (-z nodelete), since its thread may be anywhere. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "heap/arena.h"
#include "preload/first_calls.h"
#include "release/engine.h"
#include "release/trim.h"

/* Threads, memory or the sandbox may be had later. */
#define TRY_AGAIN_NS UINT64_C(10000000000)

static struct gb_config config;

static void say(const char *message) {
  char line[GB_CONFIG_MESSAGE + 96];
  size_t length = 0;
  const char *parts[] = {"giveback: GIVEBACK: ", message, "; this program runs without giveback\n"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
    const size_t more = strlen(parts[i]);
    if (length + more > sizeof line)
      break;
    memcpy(line + length, parts[i], more);
    length += more;
  }
  const int saved = errno;
  (void)!write(STDERR_FILENO, line, length);
  errno = saved;
}

static uint64_t start(void) {
  if (!gb_engine_is_own_process())
    return TRY_AGAIN_NS; /* the child of a vfork, in its parent's memory */
  const enum gb_status status = gb_engine_start(&config);
  if (status == GB_OK || status == GB_RUNNING)
    return 0;
  gb_engine_refuse(&config, status);
  return status == GB_NO_THREAD || status == GB_NO_MEMORY ? TRY_AGAIN_NS : 0;
}

static bool first(void);
static const struct gb_first_calls calls = {.first = first, .start = start};

/* The child has no engine: it gets its own as the parent did. */
static void after_fork_in_child(void) {
  gb_engine_after_fork();
  if (!gb_engine_was_stopped())
    gb_first_calls_count(&calls);
}

/* A program that never allocates has no use for any of it. */
static bool first(void) {
  if (!gb_first_calls_arrive())
    return false;
  if (pthread_atfork(NULL, NULL, after_fork_in_child) == 0)
    gb_engine_forks_are_watched();
  if (config.policy == GB_POLICY_BACKGROUND && !config.keep_fastbins) {
    gb_fastbins_off();
    gb_engine_fastbins_are_off();
  }
  return true;
}

/* True for the file name of this library, wherever it lies. */
static bool is_ours(const char *path, size_t length) {
  static const char name[] = "/" GB_SONAME;
  const size_t name_length = sizeof name - 1;
  return length >= name_length && memcmp(path + length - name_length, name, name_length) == 0;
}

/* Takes us out of LD_PRELOAD, in place: other entries stay as they are. */
static void keep_from_children(void) {
  (void)unsetenv("GIVEBACK");
  char *into = getenv("LD_PRELOAD");
  if (into == NULL)
    return;
  const char *at = into;
  bool any = false;
  while (*at != '\0') { // NOLINT(clang-analyzer-security.ArrayBound): strspn and strcspn stop at its end
    at += strspn(at, ": ");
    const size_t length = strcspn(at, ": ");
    if (length > 0 && !is_ours(at, length)) {
      if (any)
        *into++ = ':';
      memmove(into, at, length);
      into += length;
      any = true;
    }
    at += length;
  }
  *into = '\0';
  if (!any)
    (void)unsetenv("LD_PRELOAD");
}

static bool read_settings(const char *text) {
  char message[GB_CONFIG_MESSAGE];
  if (gb_config_parse(&config, text, message) != GB_OK) {
    say(message);
    return false;
  }
  if (!config.children)
    keep_from_children();
  return config.policy != GB_POLICY_OFF;
}

/* Every program started under us pays for this: /bin/true lives for half a millisecond. */
__attribute__((constructor)) static void construct(void) {
  gb_config_default(&config);
  const char *settings = getenv("GIVEBACK");
  if (settings != NULL && (!gb_first_calls_arrive() || !read_settings(settings)))
    return;
  gb_engine_prepare();
  gb_first_calls_count(&calls);
}

__attribute__((destructor)) static void destruct(void) {
  gb_engine_at_exit();
}

/* glibc 2.34 and later, for programs that fork from a signal handler: takes no locks and runs no
 * handlers, so an arena that the engine holds at that moment would stay locked in the child. */
// NOLINTNEXTLINE(readability-redundant-declaration): older headers do not have it
__attribute__((visibility("default"))) pid_t _Fork(void);
__attribute__((visibility("default"))) pid_t _Fork(void) {
  static pid_t (*next)(void);
  if (next == NULL) {
    void *found = dlsym(RTLD_NEXT, "_Fork");
    if (found == NULL) {
      errno = ENOSYS;
      return -1;
    }
    memcpy(&next, &found, sizeof found);
  }
  gb_arena_gate_close();
  const pid_t child = next();
  if (child == 0)
    gb_arena_gate_after_fork();
  else
    gb_arena_gate_open();
  return child;
}
