/* Says "ready" with two more threads that have allocated, and waits for its standard input
 * to end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t allocated;

static void *work(void *unused) {
  (void)unused;
  void *volatile block = malloc(5000);
  (void)block;
  pthread_barrier_wait(&allocated);
  pthread_barrier_wait(&allocated);
  return NULL;
}

int main(void) {
  void *volatile block = malloc(5000);
  (void)block;
  pthread_barrier_init(&allocated, NULL, 3);
  for (int i = 0; i < 2; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
      return 1;
  }
  pthread_barrier_wait(&allocated);
  puts("ready");
  fflush(stdout);
  (void)getchar();
  pthread_barrier_wait(&allocated);
  return 0;
}
