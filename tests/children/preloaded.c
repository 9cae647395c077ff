/* Holds 64 MB in small blocks with a survivor at the end, frees all but that, and waits until the engine that
 * was preloaded has given most of it back. Prints one JSON object. Ends with 3 if too little came back in time. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gnu/libc-version.h>

#define BLOCKS (64u << 10)
#define BLOCK_BYTES 1000u
#define LIMIT_S 30

static void *blocks[BLOCKS];

static long resident_kb(void) {
  long pages = -1;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
    exit(2);
  (void)fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(void) {
  for (unsigned i = 0; i < BLOCKS; ++i) {
    blocks[i] = malloc(BLOCK_BYTES);
    if (blocks[i] == NULL)
      return 2;
    memset(blocks[i], (int)(i & 0xff), BLOCK_BYTES);
  }
  const long full = resident_kb(); /* before the first free: the engine may be as fast as the loop below */
  for (unsigned i = 0; i + 1 < BLOCKS; ++i)
    free(blocks[i]);
  const time_t until = time(NULL) + LIMIT_S;
  long after = resident_kb();
  while (after > full / 4 && time(NULL) < until) {
    (void)usleep(1000);
    after = resident_kb();
  }
  const unsigned char *survivor = blocks[BLOCKS - 1];
  unsigned wrong = 0;
  for (unsigned i = 0; i < BLOCK_BYTES; ++i)
    wrong += survivor[i] != ((BLOCKS - 1) & 0xff);
  printf("{\"glibc\": \"%s\", \"engine\": %d, \"full\": %ld, \"after\": %ld, \"wrong\": %u}\n",
         gnu_get_libc_version(), dlsym(RTLD_DEFAULT, "giveback_engine") != NULL, full, after, wrong);
  return after > full / 4 ? 3 : 0;
}
