/* The arena lock, against threads that follow glibc's protocol as lowlevellock.h has it. */
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/arena.h"
#include "tap.h"

enum { ROUNDS = 20000 };

static _Alignas(64) uint64_t arena[8];
static uint64_t guarded; /* plain: a broken lock is a data race and a lost count */
static unsigned our_holds;

static void glibc_lock(uint32_t *word) {
  uint32_t expected = 0;
  if (__atomic_compare_exchange_n(word, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return;
  while (__atomic_exchange_n(word, 2, __ATOMIC_ACQUIRE) != 0)
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, NULL, NULL, 0);
}

static void glibc_unlock(uint32_t *word) {
  if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) > 1)
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static void *work(void *unused) {
  (void)unused;
  for (int i = 0; i < ROUNDS; ++i) {
    glibc_lock((uint32_t *)arena);
    ++guarded;
    glibc_unlock((uint32_t *)arena);
  }
  return NULL;
}

static void it_excludes_and_wakes_glibcs_waiters(void) {
  enum { THREADS = 3 };
  pthread_t threads[THREADS];
  guarded = 0;
  for (int i = 0; i < THREADS; ++i)
    CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
  our_holds = 0;
  while (our_holds < ROUNDS) {
    if (!gb_arena_try_lock((uintptr_t)arena))
      continue;
    ++guarded;
    ++our_holds;
    gb_arena_unlock((uintptr_t)arena);
  }
  /* Returns only if nobody was left asleep. */
  for (int i = 0; i < THREADS; ++i)
    pthread_join(threads[i], NULL);
  CHECK_EQUAL(guarded, (THREADS + 1) * ROUNDS);
  CHECK_EQUAL(arena[0], 0);
}

static void a_held_lock_is_not_waited_for(void) {
  CHECK(gb_arena_try_lock((uintptr_t)arena));
  CHECK(!gb_arena_try_lock((uintptr_t)arena));
  gb_arena_unlock((uintptr_t)arena);
  CHECK(gb_arena_try_lock((uintptr_t)arena));
  gb_arena_unlock((uintptr_t)arena);
}

int main(void) {
  RUN(a_held_lock_is_not_waited_for);
  RUN(it_excludes_and_wakes_glibcs_waiters);
  FINISH();
}
