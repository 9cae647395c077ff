/* What people paste into programs today, as a library to preload: malloc_trim(0) on a timer, once a second.
 *
 * The row `trim` of the bench. It knows nothing of the program: a thread of its own, from the start on.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

static void *trim_for_ever(void *argument) {
  const struct timespec second = {.tv_sec = 1, .tv_nsec = 0};
  for (;;) {
    (void)nanosleep(&second, NULL);
    (void)malloc_trim(0);
  }
  return argument;
}

__attribute__((constructor)) static void start_timer(void) {
  sigset_t all;
  sigset_t before;
  pthread_t thread;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, trim_for_ever, NULL) == 0)
    (void)pthread_detach(thread);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
