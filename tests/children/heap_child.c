/* A real program whose heap is brought into a known shape and then looked at from inside.
 *
 *   heap_child SHAPE compare|predict|cost|account [hold_us] [residency source]
 *
 * Prints one JSON object. It is linked against the oldest glibc at hand, so that
 * the same file runs on all of them. Nothing is allocated between the moment the heap is in
 * shape and the last figure taken. */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/account.h"
#include "heap/verify.h"

/* ---- output ---------------------------------------------------------------- */

static char output[1 << 20];
static size_t output_length;

static void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(output + output_length, sizeof output - output_length, format, arguments);
  va_end(arguments);
  if (written < 0 || (size_t)written >= sizeof output - output_length)
    abort();
  output_length += (size_t)written;
}

/* mallinfo2 walks the same lists; this one is there in every glibc. Newer headers call it
 * deprecated. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void flush_output(void) {
  for (size_t done = 0; done < output_length;) {
    ssize_t wrote = write(STDOUT_FILENO, output + done, output_length - done);
    if (wrote <= 0)
      abort();
    done += (size_t)wrote;
  }
}

static void fail(const char *what) {
  say("{\"error\": \"%s\"}\n", what);
  flush_output();
  _exit(3);
}

/* ---- shapes ---------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void *allocate(size_t bytes) {
  void *block = malloc(bytes);
  if (block == NULL)
    fail("out of memory");
  memset(block, 0x5a, bytes);
  return block;
}

static void shuffle(void **blocks, size_t count, uint64_t seed) {
  for (size_t i = count - 1; i > 0; --i) {
    size_t other = next_random(&seed) % (i + 1);
    void *block = blocks[i];
    blocks[i] = blocks[other];
    blocks[other] = block;
  }
}

static void **pointers(size_t count) {
  void **table =
      mmap(NULL, count * sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED)
    fail("out of memory");
  return table;
}

/* Blocks with a live separator behind each, freed in order or shuffled. */
static void holes(size_t count, size_t bytes, size_t separator, bool shuffled) {
  void **blocks = pointers(count);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = allocate(bytes);
    (void)allocate(separator);
  }
  if (shuffled)
    shuffle(blocks, count, 88172645463325252u);
  for (size_t i = 0; i < count; ++i)
    free(blocks[i]);
}

static void churn(uint64_t seed, size_t rounds, size_t largest) {
  enum { KEPT = 2000 };
  void **blocks = pointers(KEPT);
  for (size_t i = 0; i < rounds; ++i) {
    size_t slot = next_random(&seed) % KEPT;
    free(blocks[slot]);
    /* Half of them small enough for fastbins and tcache. */
    size_t limit = next_random(&seed) % 2 == 0 ? 120 : largest;
    blocks[slot] = allocate(1 + next_random(&seed) % limit);
  }
  for (size_t i = 0; i < KEPT; ++i) {
    if (next_random(&seed) % 4 != 0) {
      free(blocks[i]);
      blocks[i] = NULL;
    }
  }
}

struct worker {
  pthread_t thread;
  void (*shape)(uint64_t seed);
  uint64_t seed;
};

static pthread_barrier_t shaped;
static pthread_barrier_t questioned;
static size_t workers_count;
static bool consolidates; /* each thread empties its arena's fastbins once in shape */

/* A large request makes malloc merge what lies in the arena's fastbins. */
static void consolidate(void) {
  void *volatile block = malloc(70000);
  free(block);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  worker->shape(worker->seed);
  if (consolidates)
    consolidate();
  pthread_barrier_wait(&shaped);
  pthread_barrier_wait(&questioned);
  return NULL;
}

/* Threads that stay, quiet, until the questions are answered. */
static void with_threads(size_t count, void (*shape)(uint64_t seed)) {
  struct worker *workers = (struct worker *)(void *)pointers(count * 4);
  workers_count = count;
  pthread_barrier_init(&shaped, NULL, (unsigned)count + 1);
  pthread_barrier_init(&questioned, NULL, (unsigned)count + 1);
  for (size_t i = 0; i < count; ++i) {
    workers[i].shape = shape;
    workers[i].seed = 1000003 * (i + 1);
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      fail("no thread");
  }
  pthread_barrier_wait(&shaped);
}

static void churn_little(uint64_t seed) {
  churn(seed, 20000, 40000);
}
static void churn_tiny(uint64_t seed) {
  churn(seed, 500, 4000);
}
static void churn_much(uint64_t seed) {
  churn(seed, 60000, 100000);
}
static void holes_in_thread(uint64_t seed) {
  (void)seed;
  holes(65536, 16 * 1024, 16, false);
}
static void many_heaps(uint64_t seed) {
  (void)seed;
  holes(4000, 100 * 1000, 2000, true);
}

static void small_frees(uint64_t seed) {
  (void)seed;
  holes(50000, 100, 100, false);
}

static void block_brk(void) {
  void *end = sbrk(0);
  uintptr_t page = ((uintptr_t)end + 4095) & ~(uintptr_t)4095;
  if (mmap((void *)page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
      MAP_FAILED)
    fail("cannot block brk");
}

static void take_shape(const char *name) {
  if (strcmp(name, "fresh") == 0)
    return;
  if (strcmp(name, "single") == 0) {
    churn_little(7);
  } else if (strcmp(name, "threads") == 0) {
    churn_little(7);
    with_threads(16, churn_little);
  } else if (strcmp(name, "spike") == 0) {
    churn_much(7);
    with_threads(4, churn_much);
  } else if (strcmp(name, "fastbins") == 0) {
    small_frees(0);
    with_threads(3, small_frees);
  } else if (strcmp(name, "arenas300") == 0) {
    mallopt(M_ARENA_MAX, 400);
    with_threads(300, churn_tiny);
  } else if (strcmp(name, "heaps") == 0) {
    with_threads(2, many_heaps);
  } else if (strcmp(name, "noncontiguous") == 0) {
    churn_little(7);
    block_brk();
    churn(9, 20000, 40000);
    holes(200, 100000, 2000, false);
  } else if (strcmp(name, "foreign-sbrk") == 0) {
    holes(2000, 9000, 64, false);
    if (sbrk(12345) == (void *)-1)
      fail("sbrk");
    holes(2000, 9000, 64, false);
  } else if (strcmp(name, "holes") == 0) {
    holes(65536, 16 * 1024, 16, false);
  } else if (strcmp(name, "holes-shuffled") == 0) {
    holes(65536, 16 * 1024, 16, true);
  } else if (strcmp(name, "holes-thread") == 0) {
    with_threads(1, holes_in_thread);
  } else if (strcmp(name, "million") == 0) {
    holes(1000000, 200, 24, false);
  } else if (strcmp(name, "million-shuffled") == 0) {
    holes(1000000, 200, 24, true);
  } else if (strcmp(name, "million-sorted") == 0) {
    /* A request that no chunk fits makes malloc file the unsorted chunks, 10,000 at a time. */
    holes(1000000, 200, 24, false);
    for (int i = 0; i < 110; ++i)
      (void)allocate(4096);
  } else if (strcmp(name, "million-fast") == 0) {
    holes(1000000, 100, 100, true);
  } else {
    fail("no such shape");
  }
}

/* ---- figures --------------------------------------------------------------- */

static uint64_t rss_bytes(void) {
  static char text[8192];
  int fd = open("/proc/self/smaps_rollup", O_RDONLY);
  if (fd < 0)
    return 0;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0)
    return 0;
  text[got] = '\0';
  const char *field = strstr(text, "\nRss:");
  return field == NULL ? 0 : strtoull(field + 5, NULL, 10) * 1024;
}

static void say_pages(const char *name, const struct gb_page_figures *figures) {
  say("\"%s\": {\"whole\": %lu, \"resident\": %lu, \"swapped\": %lu}", name, (unsigned long)figures->whole,
      (unsigned long)figures->resident, (unsigned long)figures->swapped);
}

static void say_account(const struct gb_account *account) {
  say("\"source\": \"%s\", \"bins_offset\": %u, \"heap_header\": %lu, \"wall_ns\": %lu, \"cpu_ns\": %lu,",
      gb_os_residency_name(account->source), account->glibc.layout.bins,
      (unsigned long)account->glibc.heap_header, (unsigned long)account->wall_ns,
      (unsigned long)account->cpu_ns);
  say("\"parameters\": {\"known\": %d, \"trim_threshold\": %lu, \"mmapped_chunks\": %lu, \"mmapped_bytes\": "
      "%lu, "
      "\"hp_pagesize\": %lu},",
      account->parameters.known, (unsigned long)account->parameters.trim_threshold,
      (unsigned long)account->parameters.mmapped_chunks, (unsigned long)account->parameters.mmapped_bytes,
      (unsigned long)account->parameters.hp_pagesize);
  say("\"tcache\": {\"visible\": %d, \"chunks\": %lu, \"bytes\": %lu},", account->tcache.visible,
      (unsigned long)account->tcache.chunks, (unsigned long)account->tcache.bytes);
  say("\"arenas\": [");
  for (size_t i = 0; i < account->count; ++i) {
    const struct gb_arena_account *arena = &account->arenas[i];
    const struct gb_look *look = &arena->look;
    say("%s{\"main\": %d, \"status\": %d, \"text\": \"%s\", \"system\": %lu, \"max_system\": %lu, "
        "\"chunks\": %lu, \"bins\": %lu, "
        "\"fast_chunks\": %lu, \"fast\": %lu, \"top\": %lu, \"contiguous\": %d, \"settled\": %d, "
        "\"complete\": %d, \"holds\": %u, \"longest_hold_ns\": %lu, \"held_ns\": %lu,",
        i == 0 ? "" : ",", arena->is_main, (int)arena->status, gb_status_text(arena->status),
        (unsigned long)look->system_bytes, (unsigned long)look->max_system_bytes,
        (unsigned long)look->bins_chunks, (unsigned long)look->bins_bytes,
        (unsigned long)look->fastbins_chunks, (unsigned long)look->fastbins_bytes,
        (unsigned long)look->top_bytes, look->contiguous, look->settled, look->complete, look->holds,
        (unsigned long)look->longest_hold_ns, (unsigned long)look->held_ns);
    say_pages("bins_pages", &arena->bins);
    say(",");
    say_pages("top_pages", &arena->top);
    say("}");
  }
  say("]");
}

struct prediction {
  struct gb_account account;
  enum gb_status status;
  uint64_t predicted;
  uint64_t left;
  uint64_t rss_before;
  uint64_t rss_after;
};

/* What malloc_trim(0) will release: every whole resident page in bins, and the main
 * arena's top where sbrk can take it back. */
static uint64_t releasable(const struct gb_account *account) {
  if (account->count == 0)
    return 0;
  uint64_t bytes = account->arenas[0].look.contiguous ? account->arenas[0].top.resident : 0;
  for (size_t i = 0; i < account->count; ++i)
    bytes += account->arenas[i].bins.resident;
  return bytes;
}

static void predict(const struct gb_account_options *options, struct prediction *prediction) {
  consolidate();
  prediction->status = gb_account_take(&prediction->account, options);
  prediction->rss_before = rss_bytes();
  malloc_trim(0);
  prediction->rss_after = rss_bytes();
  prediction->predicted = releasable(&prediction->account);
  struct gb_account trimmed;
  (void)gb_account_take(&trimmed, options);
  prediction->left = releasable(&trimmed);
  gb_account_free(&trimmed);
}

int main(int count, char **arguments) {
  if (count < 3)
    fail("usage: heap_child SHAPE QUESTION [hold_us] [source]");
  const char *question = arguments[2];
  struct gb_account_options options = {
      .hold_ns = count > 3 ? strtoull(arguments[3], NULL, 10) * 1000 : GB_DEFAULT_HOLD_NS,
      .patience_ns = UINT64_C(1000000000),
      .first_source = count > 4 ? (enum gb_residency_source)atoi(arguments[4]) : GB_RESIDENCY_SCAN,
  };
  static char stream_buffer[1 << 20];
  FILE *stream = NULL;
  int info_fd = -1;
  if (strcmp(question, "compare") == 0) {
    info_fd = memfd_create("malloc_info", MFD_CLOEXEC);
    stream = fdopen(info_fd, "w+");
    if (stream == NULL)
      fail("no memory file");
    setvbuf(stream, stream_buffer, _IOFBF, sizeof stream_buffer);
  }
  if (strcmp(question, "predict") == 0) {
    /* Once for nothing: the code's own pages come in now and not between two figures. */
    static struct prediction warm_up;
    predict(&options, &warm_up);
    gb_account_free(&warm_up.account);
    consolidates = true;
  }
  take_shape(arguments[1]);

  struct gb_account account;
  say("{\"shape\": \"%s\", ", arguments[1]);
  if (strcmp(question, "compare") == 0) {
    struct gb_comparison comparison;
    enum gb_status verified = gb_verify(&options, GB_VERIFY_LIMITS, &comparison);
    enum gb_status status = gb_account_take(&account, &options);
    const struct mallinfo info = mallinfo();
    (void)malloc_info(0, stream);
    (void)fflush(stream);
    say("\"status\": %d, \"text\": \"%s\", \"verified\": %d, \"verdict\": \"%s\", \"wide\": %d,", (int)status,
        gb_status_text(status), (int)verified, gb_verdict_name(comparison.verdict), comparison.wide);
    say("\"glibc\": {\"arena\": %u, \"ordblks\": %u, \"smblks\": %u, \"fsmblks\": %u, \"fordblks\": %u, "
        "\"keepcost\": %u},",
        (unsigned)info.arena, (unsigned)info.ordblks, (unsigned)info.smblks, (unsigned)info.fsmblks,
        (unsigned)info.fordblks, (unsigned)info.keepcost);
    say_account(&account);
    static char text[1 << 19];
    ssize_t got = pread(info_fd, text, sizeof text - 1, 0);
    say(", \"malloc_info\": \"");
    for (ssize_t i = 0; i < got; ++i) {
      if (text[i] == '"')
        say("'");
      else if (text[i] != '\n')
        say("%c", text[i]);
    }
    say("\"");
  } else if (strcmp(question, "predict") == 0) {
    static struct prediction prediction;
    predict(&options, &prediction);
    account = prediction.account;
    say("\"status\": %d, \"rss_before\": %lu, \"rss_after\": %lu, \"predicted\": %lu, \"left\": %lu,",
        (int)prediction.status, (unsigned long)prediction.rss_before, (unsigned long)prediction.rss_after,
        (unsigned long)prediction.predicted, (unsigned long)prediction.left);
    say_account(&account);
  } else if (strcmp(question, "cost") == 0) {
    /* Once each for nothing, so that both find the caches as the other left them. */
    struct gb_account warm_up;
    (void)gb_account_take(&warm_up, &options);
    gb_account_free(&warm_up);
    (void)mallinfo();
    enum gb_status status = gb_account_take(&account, &options);
    const uint64_t begin = gb_thread_cpu_ns();
    (void)mallinfo();
    const uint64_t mallinfo_ns = gb_thread_cpu_ns() - begin;
    say("\"status\": %d, \"mallinfo_ns\": %lu,", (int)status, (unsigned long)mallinfo_ns);
    say_account(&account);
  } else if (strcmp(question, "account") == 0) {
    enum gb_status status = gb_account_take(&account, &options);
    say("\"status\": %d, \"text\": \"%s\", \"libc\": \"%s\", \"provider\": \"%s\",", (int)status,
        gb_status_text(status), account.location.libc, account.location.provider);
    say_account(&account);
  } else {
    fail("no such question");
  }
  say("}\n");
  flush_output();
  if (workers_count > 0)
    pthread_barrier_wait(&questioned);
  return 0;
}
