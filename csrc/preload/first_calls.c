#include "preload/first_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "heap/symbols.h"

/* Either makes a process worth a thread: 90 us at the start, which are nothing by then. */
#define OLD_NS UINT64_C(1000000000)
#define LARGE_BYTES (UINT64_C(32) << 20)
/* The clock is read once in so many calls: 5 ns. */
#define CALLS_A_CLOCK 16u

typedef void *(*malloc_function)(size_t bytes);
typedef void *(*calloc_function)(size_t count, size_t bytes);
typedef void *(*realloc_function)(void *memory, size_t bytes);

static void *first_malloc(size_t bytes);
static void *first_calloc(size_t members, size_t bytes);
static void *first_realloc(void *memory, size_t bytes);

/* What our three jump to. */
static malloc_function jump_malloc = first_malloc;
static calloc_function jump_calloc = first_calloc;
static realloc_function jump_realloc = first_realloc;

/* What is behind us. */
static malloc_function next_malloc;
static calloc_function next_calloc;
static realloc_function next_realloc;

static struct {
  const struct gb_first_calls *calls_back;
  bool any; /* `first` was called */
  uint64_t calls;
  uint64_t bytes; /* asked for since it began to count */
  uint64_t old_at_ns; /* on the coarse clock; 0: OLD_NS after it is first read */
  uint32_t starting; /* somebody is at it */
} count;

/* ---- exported ------------------------------------------------------------------------- */

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *malloc(size_t bytes) {
  return __atomic_load_n(&jump_malloc, __ATOMIC_RELAXED)(bytes);
}

EXPORTED void *calloc(size_t members, size_t bytes) {
  return __atomic_load_n(&jump_calloc, __ATOMIC_RELAXED)(members, bytes);
}

EXPORTED void *realloc(void *memory, size_t bytes) {
  return __atomic_load_n(&jump_realloc, __ATOMIC_RELAXED)(memory, bytes);
}

/* ---- finding --------------------------------------------------------------------------- */

/* glibc's, by the names that are never in front of anything. */
extern void *glibc_malloc(size_t bytes) __asm__("__libc_malloc");
extern void *glibc_calloc(size_t members, size_t bytes) __asm__("__libc_calloc");
extern void *glibc_realloc(void *memory, size_t bytes) __asm__("__libc_realloc");

static uint32_t finding; /* dlsym of glibc before 2.34 allocates: that comes back here */

static void find(const char *name, void *function) {
  void *found = dlsym(RTLD_NEXT, name);
  memcpy(function, &found, sizeof found);
}

static bool is_found(void) {
  return __atomic_load_n(&next_realloc, __ATOMIC_ACQUIRE) != NULL;
}

bool gb_first_calls_find(void) {
  if (is_found())
    return next_malloc == glibc_malloc;
  if (__atomic_exchange_n(&finding, 1, __ATOMIC_ACQUIRE) != 0)
    return true;
  malloc_function next = glibc_malloc;
  realloc_function last = glibc_realloc;
  /* The dynamic linker knows more of functions than where they begin (versions, indirect ones). */
  if (gb_symbol_behind((uintptr_t)&count, "malloc") != (uintptr_t)glibc_malloc)
    find("malloc", &next);
  if (next == NULL || next == glibc_malloc) {
    next_malloc = glibc_malloc;
    next_calloc = glibc_calloc;
  } else {
    next_malloc = next;
    find("calloc", &next_calloc);
    find("realloc", &last);
  }
  __atomic_store_n(&next_realloc, last, __ATOMIC_RELEASE);
  return next_malloc == glibc_malloc;
}

/* Before the constructor: constructors of other libraries allocate. */
static void *first_malloc(size_t bytes) {
  (void)gb_first_calls_find();
  return is_found() ? next_malloc(bytes) : glibc_malloc(bytes);
}

static void *first_calloc(size_t members, size_t bytes) {
  (void)gb_first_calls_find();
  return is_found() ? next_calloc(members, bytes) : glibc_calloc(members, bytes);
}

static void *first_realloc(void *memory, size_t bytes) {
  (void)gb_first_calls_find();
  return is_found() ? next_realloc(memory, bytes) : glibc_realloc(memory, bytes);
}

/* ---- counting --------------------------------------------------------------------------- */

static void jump_to(malloc_function to_malloc, calloc_function to_calloc, realloc_function to_realloc) {
  __atomic_store_n(&jump_malloc, to_malloc, __ATOMIC_RELAXED);
  __atomic_store_n(&jump_calloc, to_calloc, __ATOMIC_RELAXED);
  __atomic_store_n(&jump_realloc, to_realloc, __ATOMIC_RELAXED);
}

static uint64_t coarse_now(void) {
  return gb_clock_read(CLOCK_MONOTONIC_COARSE);
}

static void *counting_malloc(size_t bytes);
static void *counting_calloc(size_t members, size_t bytes);
static void *counting_realloc(void *memory, size_t bytes);

static bool is_old(void) {
  const uint64_t now = coarse_now();
  const uint64_t old_at = __atomic_load_n(&count.old_at_ns, __ATOMIC_RELAXED);
  if (old_at == 0)
    __atomic_store_n(&count.old_at_ns, now + OLD_NS, __ATOMIC_RELAXED);
  return old_at != 0 && now >= old_at;
}

static void count_from(uint64_t old_at_ns) {
  __atomic_store_n(&count.old_at_ns, old_at_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&count.calls, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&count.bytes, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&count.starting, 0, __ATOMIC_RELEASE);
  jump_to(counting_malloc, counting_calloc, counting_realloc);
}

static void pass_on(void) {
  jump_to(next_malloc, next_calloc, next_realloc);
}

/* Figures of several threads may get lost; they only decide when. */
static void add(uint64_t bytes) {
  const uint64_t calls = __atomic_load_n(&count.calls, __ATOMIC_RELAXED) + 1;
  const int saved = errno;
  /* Marked before: what it does may allocate. */
  if (!__atomic_load_n(&count.any, __ATOMIC_RELAXED) &&
      !__atomic_exchange_n(&count.any, true, __ATOMIC_RELAXED) && !count.calls_back->first()) {
    pass_on();
    errno = saved;
    return;
  }
  const uint64_t sum = __atomic_load_n(&count.bytes, __ATOMIC_RELAXED) + bytes;
  __atomic_store_n(&count.calls, calls, __ATOMIC_RELAXED);
  __atomic_store_n(&count.bytes, sum, __ATOMIC_RELAXED);
  if (sum < LARGE_BYTES && (calls % CALLS_A_CLOCK != 0 || !is_old()))
    return;
  /* The start allocates: what it calls must not come here again. */
  if (__atomic_exchange_n(&count.starting, 1, __ATOMIC_ACQUIRE) != 0)
    return;
  pass_on();
  const uint64_t again_ns = count.calls_back->start();
  if (again_ns != 0)
    count_from(coarse_now() + again_ns);
  errno = saved;
}

static void *counting_malloc(size_t bytes) {
  add(bytes);
  return next_malloc(bytes);
}

static void *counting_calloc(size_t members, size_t bytes) {
  size_t product;
  add(__builtin_mul_overflow(members, bytes, &product) ? 0 : product);
  return next_calloc(members, bytes);
}

static void *counting_realloc(void *memory, size_t bytes) {
  add(bytes);
  return next_realloc(memory, bytes);
}

void gb_first_calls_count(const struct gb_first_calls *calls) {
  count.calls_back = calls;
  count_from(0);
}
