#include "release/stats.h"

#include "base/align.h"
#include "os/os.h"

#define BUCKETS_AN_OCTAVE 8u
#define FIRST_BUCKET_NS UINT64_C(1000)

_Static_assert(sizeof(struct gb_stats) <= 4096, "one page, also to whoever reads the file");

static char shared_name[GB_SHARED_NAME]; /* in /dev/shm; "" if there is none */

static size_t page_bytes(void) {
  return gb_align_up(sizeof(struct gb_stats), gb_os_page_size());
}

struct gb_stats *gb_stats_open(bool *shared) {
  struct gb_stats *stats = gb_os_shared_alloc(page_bytes(), shared_name);
  *shared = stats != NULL;
  if (stats == NULL)
    stats = gb_os_alloc(page_bytes());
  if (stats == NULL)
    return NULL;
  stats->version = GB_STATS_VERSION;
  stats->bytes = sizeof *stats;
  stats->pid = gb_os_process_id();
  /* Last: pairs with nothing, but who finds it finds the words above, too (x86-64, and release elsewhere). */
  __atomic_store_n(&stats->magic, GB_STATS_MAGIC, __ATOMIC_RELEASE);
  return stats;
}

void gb_stats_unlink(void) {
  gb_os_shared_unlink(shared_name);
  shared_name[0] = '\0';
}

void gb_stats_after_fork(void) {
  shared_name[0] = '\0';
}

void gb_stats_close(struct gb_stats *stats) {
  gb_stats_unlink();
  gb_os_free(stats, page_bytes());
}

/* ---- holds ------------------------------------------------------------------------ */

static unsigned bucket_of(uint64_t ns) {
  if (ns < FIRST_BUCKET_NS)
    return 0;
  /* In fixed point: 8 linear steps within each octave of ns / 1 us. */
  const uint64_t times_8 = ns * BUCKETS_AN_OCTAVE / FIRST_BUCKET_NS;
  const unsigned octave = 63u - (unsigned)__builtin_clzll(times_8 / BUCKETS_AN_OCTAVE);
  const unsigned step = (unsigned)(times_8 >> octave) - BUCKETS_AN_OCTAVE;
  const unsigned bucket = 1 + octave * BUCKETS_AN_OCTAVE + step;
  return bucket < GB_HOLD_BUCKETS ? bucket : GB_HOLD_BUCKETS - 1;
}

/* The longest hold that a bucket counts. */
static uint64_t end_of_bucket(unsigned bucket) {
  if (bucket == 0)
    return FIRST_BUCKET_NS;
  const unsigned octave = (bucket - 1) / BUCKETS_AN_OCTAVE;
  const unsigned step = (bucket - 1) % BUCKETS_AN_OCTAVE;
  return FIRST_BUCKET_NS * ((uint64_t)(BUCKETS_AN_OCTAVE + step + 1) << octave) / BUCKETS_AN_OCTAVE;
}

void gb_stats_hold(struct gb_stats *stats, uint64_t ns) {
  gb_stats_add(&stats->holds, 1);
  gb_stats_add(&stats->held_ns, ns);
  if (ns > stats->hold_max_ns)
    gb_stats_set(&stats->hold_max_ns, ns);
  gb_stats_add(&stats->hold_buckets[bucket_of(ns)], 1);
}

void gb_stats_looks(struct gb_stats *stats, uint64_t holds, uint64_t held_ns, uint64_t longest_ns) {
  gb_stats_hold(stats, longest_ns);
  if (holds < 2)
    return;
  const uint64_t others = holds - 1;
  const uint64_t left = held_ns > longest_ns ? held_ns - longest_ns : 0;
  gb_stats_add(&stats->holds, others);
  gb_stats_add(&stats->held_ns, left);
  gb_stats_add(&stats->hold_buckets[bucket_of(left / others)], others);
}

uint64_t gb_stats_percentile(const struct gb_stats *stats, double share) {
  uint64_t total = 0;
  for (unsigned i = 0; i < GB_HOLD_BUCKETS; ++i)
    total += stats->hold_buckets[i];
  if (total == 0)
    return 0;
  const double wanted = share * (double)total;
  uint64_t seen = 0;
  for (unsigned i = 0; i < GB_HOLD_BUCKETS; ++i) {
    seen += stats->hold_buckets[i];
    if ((double)seen >= wanted && seen > 0) {
      const uint64_t end = end_of_bucket(i);
      return end < stats->hold_max_ns ? end : stats->hold_max_ns;
    }
  }
  return stats->hold_max_ns;
}
