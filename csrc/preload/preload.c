/* libgiveback.so, preloaded: reads GIVEBACK, and starts the engine once the process is worth it.
 *
 * Nothing here may stop a program: what is wrong is said in one line, and the program runs without an
 * engine. The library is never unloaded (-z nodelete), since its thread may be anywhere. */
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "heap/arena.h"
#include "heap/symbols.h"
#include "preload/first_calls.h"
#include "release/engine.h"
#include "release/trim.h"

/* Threads, memory or the sandbox may be had later. */
#define TRY_AGAIN_NS UINT64_C(10000000000)
#define TRY_SOON_NS UINT64_C(100000000) /* somebody else is starting it */

static struct gb_config config;

/* Nobody may read it any more: SIGPIPE would end the program. */
static bool send_line(const char *line, size_t length) {
  sigset_t pipe_signal;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  (void)sigpending(&pending);
  (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const bool sent = write(STDERR_FILENO, line, length) == (ssize_t)length;
  const struct timespec none = {0};
  if (!sent && sigismember(&pending, SIGPIPE) == 0)
    (void)sigtimedwait(&pipe_signal, NULL, &none);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return sent;
}

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
  (void)send_line(line, length);
  errno = saved;
}

static uint64_t start(void) {
  if (!gb_engine_is_own_process())
    return TRY_AGAIN_NS; /* the child of a vfork, in its parent's memory */
  const int cancellation = gb_os_cancellation_off(); /* malloc is no place to be cancelled in */
  const enum gb_status status = gb_engine_start_unasked(&config);
  gb_os_cancellation_restore(cancellation);
  if (status == GB_BUSY)
    return TRY_SOON_NS;
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
  const int cancellation = gb_os_cancellation_off();
  if (pthread_atfork(NULL, NULL, after_fork_in_child) == 0)
    gb_engine_forks_are_watched();
  if (config.policy == GB_POLICY_BACKGROUND && !config.keep_fastbins) {
    gb_fastbins_off();
    gb_engine_fastbins_are_off();
  }
  gb_os_cancellation_restore(cancellation);
  return true;
}

/* True for the file name of this library, wherever it lies. */
static bool is_ours(const char *path, size_t length) {
  static const char name[] = "/" GB_SONAME;
  const size_t name_length = sizeof name - 1;
  return length >= name_length && memcmp(path + length - name_length, name, name_length) == 0;
}

/* Out of the array itself: programs may bring an unsetenv of their own (bash does). */
static void remove_variable(const char *name) {
  const size_t length = strlen(name);
  char **into = environ;
  for (char **at = environ; at != NULL && *at != NULL; ++at) {
    if (strncmp(*at, name, length) != 0 || (*at)[length] != '=')
      *into++ = *at;
  }
  if (into != NULL)
    *into = NULL;
}

/* The value of a variable, to be changed in place; NULL if it is not set. Not by getenv, for the same reason. */
static char *find_variable(const char *name) {
  const size_t length = strlen(name);
  for (char **at = environ; at != NULL && *at != NULL; ++at) {
    if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
      return *at + length + 1;
  }
  return NULL;
}

/* Takes us out of LD_PRELOAD, in place: other entries stay as they are. */
static void keep_from_children(void) {
  remove_variable("GIVEBACK");
  char *into = find_variable("LD_PRELOAD");
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
    remove_variable("LD_PRELOAD");
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

/* In the order of loading, what is preloaded comes before the libc, and what is opened later behind it. */
static int visit_object(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  bool *preloaded = context;
  *preloaded = gb_object_holds(object, (uintptr_t)&config);
  /* Another copy before us: it is the one. */
  return *preloaded || gb_symbol_of_object(object, "giveback_engine") != 0 ||
         gb_object_holds(object, (uintptr_t)&gnu_get_libc_version);
}

/* Every program started under us pays for this: /bin/true lives for half a millisecond. */
__attribute__((constructor)) static void construct(void) {
  bool preloaded = false;
  (void)dl_iterate_phdr(visit_object, &preloaded);
  if (!preloaded)
    return;
  gb_config_default(&config);
  const char *settings = find_variable("GIVEBACK");
  if (settings != NULL && !read_settings(settings))
    return;
  gb_engine_prepare();
  /* Behind us is glibc, or a second copy of us; else it is another allocator. */
  if (gb_first_calls_find() || gb_symbol_behind((uintptr_t)&config, "giveback_engine") != 0)
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
  static uintptr_t
      found; /* by dl_iterate_phdr, which is more than a signal handler should, but not in malloc */
  if (found == 0)
    found = gb_symbol_behind((uintptr_t)&config, "_Fork");
  if (found == 0) {
    errno = ENOSYS;
    return -1;
  }
  pid_t (*next)(void);
  memcpy(&next, &found, sizeof next);
  gb_arena_gate_close();
  const pid_t child = next();
  if (child == 0)
    gb_arena_gate_after_fork();
  else
    gb_arena_gate_open();
  return child;
}
