/* The claims of reach.h, each by an arena made by hand whose live bytes are looked at afterwards. */
#include "heap/reach.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "image.h"
#include "tap.h"

static const struct variant {
  unsigned layout;
  uint64_t header;
} variants[] = {{0, GB_HEAP_HEADER_OLD}, {0, GB_HEAP_HEADER_NEW}, {1, GB_HEAP_HEADER_NEW}};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

#define LONG_NS UINT64_C(1000000000)

struct scene {
  struct image image;
  struct gb_maps maps;
  struct gb_looker looker;
  struct gb_release release;
  struct gb_batch batch;
  struct gb_path paths[2];
  struct gb_free_pages wanted;
  struct gb_reach reach;
  struct gb_reach_hold hold; /* the last one */
  uint64_t bytes; /* of all holds */
  unsigned holds;
};

static void scene_begin(struct scene *scene, const struct variant *variant) {
  memset(scene, 0, sizeof *scene);
  image_init(&scene->image, variant->layout, variant->header, 32u << 20);
}

/* Everything is wanted: what is spared is spared by the walk, not by the filter. */
static void scene_ready(struct scene *scene, bool old_kernel) {
  CHECK_EQUAL(gb_os_maps_read(&scene->maps), GB_OK);
  CHECK_EQUAL(gb_looker_init(&scene->looker, &scene->image.layout, scene->image.heap_header, &scene->maps),
              GB_OK);
  CHECK_EQUAL(gb_path_init(&scene->paths[0]), GB_OK);
  CHECK_EQUAL(gb_path_init(&scene->paths[1]), GB_OK);
  CHECK_EQUAL(gb_free_pages_init(&scene->wanted), GB_OK);
  CHECK_EQUAL(gb_free_pages_add(&scene->wanted, scene->image.heap, scene->image.heap + (64u << 20)), GB_OK);
  gb_os_release_open(&scene->release, old_kernel);
  gb_batch_begin(&scene->batch, LONG_NS);
  scene->reach = (struct gb_reach){
      .looker = &scene->looker, .release = &scene->release, .batch = &scene->batch, .paths = scene->paths};
  gb_reach_begin(&scene->reach, scene->image.arena, false, &scene->wanted);
}

/* As where stepping through memory found too little. */
static void only_by_lists(struct scene *scene) {
  scene->reach.near.steps = UINT64_MAX / 2;
  scene->reach.ways = GB_WAYS_LISTS_AGAIN;
}

static void scene_end(struct scene *scene) {
  CHECK_EQUAL(gb_load_half(scene->image.arena), 0); /* the lock is free, whatever happened */
  gb_looker_free(&scene->looker);
  gb_os_maps_free(&scene->maps);
  gb_path_free(&scene->paths[0]);
  gb_path_free(&scene->paths[1]);
  gb_free_pages_free(&scene->wanted);
  image_free(&scene->image);
}

static enum gb_status hold_once(struct scene *scene, uint64_t pause_ns) {
  const struct gb_reach_options options = {.pause_ns = pause_ns, .longest_ns = pause_ns, .walk_ns = LONG_NS};
  const enum gb_status status = gb_reach_release(&scene->reach, &options, &scene->hold);
  scene->bytes += scene->hold.bytes + scene->hold.top_bytes;
  scene->holds += scene->hold.held ? 1 : 0;
  return status;
}

static enum gb_status release_all(struct scene *scene, uint64_t pause_ns) {
  enum gb_status status;
  unsigned tries = 0;
  do {
    status = hold_once(scene, pause_ns);
    if (scene->hold.full != NULL)
      gb_path_grow(scene->hold.full);
  } while (status == GB_MORE && ++tries < 1000000);
  return status;
}

/* Live chunks full of a byte that must stay, free ones of a byte that must go. */
enum { LIVE = 0x4c, FREE = 0x46 };

static uintptr_t live(struct image *image, uint64_t size) {
  const uintptr_t chunk = image_live(image, size);
  memset((void *)(chunk + GB_CHUNK_HEADER), LIVE, size - GB_CHUNK_HEADER);
  return chunk;
}

static uintptr_t hole(struct image *image, uint64_t size, unsigned bin) {
  const uintptr_t chunk = image_free_chunk(image, size, bin);
  memset((void *)(chunk + GB_CHUNK_FREE_HEADER), FREE, size - GB_CHUNK_FREE_HEADER);
  return chunk;
}

static bool is_filled(uintptr_t chunk, uint64_t size, size_t skip, char with) {
  for (uint64_t i = skip; i < size; ++i) {
    if (((const char *)chunk)[i] != with)
      return false;
  }
  return true;
}

/* ---- R1, R2, R4: exactly the interiors ---------------------------------------------------- */

enum { HOLES = 300 };

static void only_the_interiors_are_released(enum gb_ways ways) {
  for (unsigned v = 0; v < VARIANTS; ++v) {
    for (unsigned old_kernel = 0; old_kernel < 2; ++old_kernel) {
      for (uint64_t pause = 1; pause <= LONG_NS; pause *= 1000000000) {
        struct scene scene;
        scene_begin(&scene, &variants[v]);
        uintptr_t lives[HOLES];
        uintptr_t holes[HOLES];
        uint64_t sizes[HOLES];
        uint64_t expected = 0;
        for (unsigned i = 0; i < HOLES; ++i) {
          lives[i] = live(&scene.image, 48 + 16 * (i % 50));
          sizes[i] = 64 + (uint64_t)i * 1136 % 40000 / 16 * 16;
          holes[i] = hole(&scene.image, sizes[i], i % 3 == 0 ? GB_BIN_UNSORTED : gb_bin_of_size(sizes[i]));
          uintptr_t start;
          uintptr_t end;
          gb_interior(holes[i], sizes[i], 4096, &start, &end);
          expected += start < end ? end - start : 0;
        }
        (void)live(&scene.image, 32);
        image_finish(&scene.image);
        const uintptr_t top = gb_load(scene.image.arena + scene.image.layout.top);
        uintptr_t start;
        uintptr_t end;
        gb_interior(top, gb_load(top + GB_CHUNK_SIZE) & ~GB_SIZE_FLAGS, 4096, &start, &end);
        memset((void *)(top + GB_CHUNK_HEADER), FREE, end - top - GB_CHUNK_HEADER);
        scene_ready(&scene, old_kernel != 0);
        scene.reach.ways = ways;
        if (ways == GB_WAYS_HEAPS)
          scene.reach.bin = GB_BINS; /* no list is walked */
        CHECK_EQUAL(release_all(&scene, pause), GB_OK);
        CHECK_EQUAL(scene.bytes, expected + (end - start));
        CHECK(pause > 1 ? scene.holds == 1 : scene.holds > 1);
        for (unsigned i = 0; i < HOLES; ++i) {
          CHECK(is_filled(lives[i], 48 + 16 * (i % 50), GB_CHUNK_HEADER, LIVE));
          gb_interior(holes[i], sizes[i], 4096, &start, &end);
          if (start >= end) {
            CHECK(is_filled(holes[i], sizes[i], GB_CHUNK_FREE_HEADER, FREE));
          } else {
            CHECK(is_filled(holes[i], start - holes[i], GB_CHUNK_FREE_HEADER, FREE));
            CHECK(is_filled(start, end - start, 0, 0));
            CHECK(is_filled(end, holes[i] + sizes[i] - end, 0, FREE));
          }
        }
        scene_end(&scene);
      }
    }
  }
}

static void exactly_the_interiors_are_released(void) {
  only_the_interiors_are_released(GB_WAYS_LISTS);
}

static void exactly_the_interiors_are_released_from_the_start_of_a_heap(void) {
  only_the_interiors_are_released(GB_WAYS_HEAPS);
}

/* ---- R2, R5: nothing kept from another hold is believed --------------------------------------- */

/* What a program could write into a live block so that it looks like the member that we remember:
 * header, links to real members, and the words behind it. */
static void forge(uintptr_t chunk, uint64_t size, uintptr_t next, uintptr_t previous) {
  image_set(chunk + GB_CHUNK_SIZE, size | GB_PREV_INUSE | GB_NON_MAIN_ARENA);
  image_set(chunk + GB_CHUNK_FD, next);
  image_set(chunk + GB_CHUNK_BK, previous);
  image_set(chunk + size, size);
  image_set(chunk + size + GB_CHUNK_SIZE, 64);
}

/* Between two holds members are taken, and their blocks get bytes that imitate them in every detail, with the
 * links that they had; the path remembers their places, and every page is wanted. */
static void a_forged_member_is_not_released(void) {
  enum { FIRST = 5, LAST = 50 };
  for (unsigned v = 0; v < VARIANTS; ++v) {
    struct scene scene;
    scene_begin(&scene, &variants[v]);
    const uint64_t size = 40000;
    for (unsigned i = 0; i < HOLES; ++i) {
      (void)live(&scene.image, 64);
      (void)hole(&scene.image, size, GB_BIN_UNSORTED);
    }
    (void)live(&scene.image, 32);
    image_finish(&scene.image);
    scene_ready(&scene, false);
    only_by_lists(&scene); /* so that there is a path */
    for (unsigned i = 0; i < 1000 && scene.paths[0].count <= LAST; ++i)
      CHECK_EQUAL(hold_once(&scene, 1), GB_MORE);
    scene.reach.near.steps = 0;
    CHECK(scene.paths[0].count > LAST && scene.paths[0].count < HOLES);

    uintptr_t next[LAST];
    uintptr_t previous[LAST];
    for (unsigned i = FIRST; i < LAST; ++i) {
      next[i] = gb_load(scene.paths[0].members[i] + GB_CHUNK_FD);
      previous[i] = gb_load(scene.paths[0].members[i] + GB_CHUNK_BK);
    }
    for (unsigned i = FIRST; i < LAST; ++i)
      image_unlink(&scene.image, scene.paths[0].members[i]);
    uintptr_t forged[LAST];
    for (unsigned i = FIRST; i < LAST; ++i) {
      forged[i] = scene.paths[0].members[i];
      memset((void *)(forged[i] + GB_CHUNK_HEADER), LIVE, size - GB_CHUNK_HEADER);
      forge(forged[i], size, next[i], previous[i]);
    }
    CHECK_EQUAL(gb_free_pages_add(&scene.wanted, scene.image.heap, scene.image.heap + (64u << 20)), GB_OK);
    scene.paths[0].done = 0;
    CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
    for (unsigned i = FIRST; i < LAST; ++i)
      CHECK(is_filled(forged[i], size, GB_CHUNK_FREE_HEADER, LIVE));
    scene_end(&scene);
  }
}

/* Between two holds a part of the heap became one live block, which the program has not written to yet: all of it
 * looks as it did when it was free chunks, and the path leads into its middle. */
static void a_live_block_with_stale_bytes_is_not_released(void) {
  enum { FIRST = 100, LAST = 200 };
  static const enum gb_ways ways[] = {GB_WAYS_LISTS, GB_WAYS_LISTS_AGAIN, GB_WAYS_HEAPS};
  for (unsigned w = 0; w < sizeof ways / sizeof *ways; ++w) {
    struct scene scene;
    scene_begin(&scene, &variants[w]);
    const uint64_t size = 40000;
    uintptr_t holes[HOLES];
    for (unsigned i = 0; i < HOLES; ++i) {
      (void)live(&scene.image, 64);
      holes[i] = hole(&scene.image, size, GB_BIN_UNSORTED);
    }
    (void)live(&scene.image, 32);
    image_finish(&scene.image);
    scene_ready(&scene, false);
    scene.reach.ways = ways[w];
    scene.batch.bytes = size;
    for (unsigned i = 0; i < 3; ++i)
      CHECK_EQUAL(hold_once(&scene, 1), GB_MORE);
    CHECK(scene.bytes > 0);

    const uintptr_t block = holes[FIRST];
    const uintptr_t end = holes[LAST] + size;
    for (unsigned i = FIRST; i <= LAST; ++i)
      memset((void *)(holes[i] + GB_CHUNK_FREE_HEADER), FREE, size - GB_CHUNK_FREE_HEADER);
    char *const before = malloc(end - block);
    CHECK(before != NULL);
    for (unsigned i = FIRST; i <= LAST; ++i) { /* out of the list, with its own links as they were */
      const uintptr_t links[2] = {gb_load(holes[i] + GB_CHUNK_FD), gb_load(holes[i] + GB_CHUNK_BK)};
      image_unlink(&scene.image, holes[i]);
      image_set(holes[i] + GB_CHUNK_FD, links[0]);
      image_set(holes[i] + GB_CHUNK_BK, links[1]);
    }
    image_set(block + GB_CHUNK_SIZE, (end - block) | GB_PREV_INUSE | GB_NON_MAIN_ARENA);
    image_set(end + GB_CHUNK_SIZE, gb_load(end + GB_CHUNK_SIZE) | GB_PREV_INUSE);
    memcpy(before, (void *)block, end - block);
    CHECK_EQUAL(gb_free_pages_add(&scene.wanted, scene.image.heap, scene.image.heap + (64u << 20)), GB_OK);
    scene.reach.left = gb_free_pages_bytes(&scene.wanted);
    CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
    CHECK(memcmp(before, (void *)block, end - block) == 0);
    free(before);
    scene_end(&scene);
  }
}

/* ---- R2: through memory ---------------------------------------------------------------------------- */

/* As a list in random order: the members that lie behind the first one are far down the list. */
static void chunks_near_a_member_need_no_walk_to_them(void) {
  for (unsigned v = 0; v < VARIANTS; ++v) {
    struct scene scene;
    scene_begin(&scene, &variants[v]);
    const uint64_t size = 20000;
    uintptr_t holes[HOLES];
    uint64_t expected = 0;
    for (unsigned i = 0; i < HOLES; ++i) {
      for (unsigned j = 0; j < 5; ++j)
        (void)live(&scene.image, 48);
      holes[i] = hole(&scene.image, size, GB_BIN_UNSORTED);
      uintptr_t start;
      uintptr_t end;
      gb_interior(holes[i], size, 4096, &start, &end);
      expected += end - start;
    }
    const uintptr_t last = live(&scene.image, 50000);
    image_finish(&scene.image);
    image_unlink(&scene.image, holes[0]);
    image_link(&scene.image, holes[0],
               GB_BIN_UNSORTED); /* now it is the first member; the second is the farthest */
    scene_ready(&scene, false);
    gb_free_pages_clear(&scene.wanted);
    CHECK_EQUAL(gb_free_pages_add(&scene.wanted, scene.image.heap + 4096, last & ~(uintptr_t)4095), GB_OK);
    scene.reach.left = gb_free_pages_bytes(&scene.wanted);
    CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
    CHECK_EQUAL(scene.bytes, expected);
    uintptr_t start;
    uintptr_t end;
    gb_interior(holes[0], size, 4096, &start, &end);
    CHECK_EQUAL(scene.reach.near.pages * 4096, expected - (end - start)); /* all but the first member */
    CHECK(is_filled(last, 50000, GB_CHUNK_HEADER, LIVE));
    scene_end(&scene);
  }
}

/* A heap that begins with many small chunks is too long a way; the lists lead to what lies behind them. */
static void a_heap_of_small_chunks_is_left_to_the_lists(void) {
  enum { SMALL = 20000 };
  struct scene scene;
  scene_begin(&scene, &variants[1]);
  for (unsigned i = 0; i < SMALL; ++i)
    (void)live(&scene.image, 48);
  uint64_t expected = 0;
  for (unsigned i = 0; i < HOLES; ++i) {
    const uintptr_t here = hole(&scene.image, 20000, GB_BIN_UNSORTED);
    uintptr_t start;
    uintptr_t end;
    gb_interior(here, 20000, 4096, &start, &end);
    expected += end - start;
    (void)live(&scene.image, 48);
  }
  const uintptr_t last = live(&scene.image, 32);
  image_finish(&scene.image);
  scene_ready(&scene, false);
  gb_free_pages_remove(&scene.wanted, last & ~(uintptr_t)4095, scene.image.heap + (64u << 20));
  scene.reach.ways = GB_WAYS_HEAPS;
  CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
  CHECK_EQUAL(scene.reach.ways, GB_WAYS_LISTS_AGAIN);
  CHECK(scene.reach.heap.steps < SMALL / 4);
  CHECK_EQUAL(scene.bytes, expected);
  scene_end(&scene);
}

/* A program wrote beyond the end of a block: a header in the way is wrong. */
static void damage_in_live_headers_only_ends_the_way(void) {
  enum { WAYS = 12 };
  for (unsigned way = 0; way < WAYS; ++way) {
    struct scene scene;
    scene_begin(&scene, &variants[1]);
    const uint64_t size = 40000;
    uint64_t expected = 0;
    uintptr_t victim = 0;
    _Alignas(16) static uint64_t elsewhere[4];
    for (unsigned i = 0; i < 20; ++i) {
      const uintptr_t chunk = live(&scene.image, i == 10 ? 50000 : 64);
      victim = i == 10 ? chunk : victim;
      const uintptr_t here = hole(&scene.image, size, GB_BIN_UNSORTED);
      uintptr_t start;
      uintptr_t end;
      gb_interior(here, size, 4096, &start, &end);
      expected += end - start;
    }
    (void)live(&scene.image, 32);
    image_finish(&scene.image);
    /* In the victim lies what looks like a free chunk with its neighbours in a list, but for one detail. */
    const uintptr_t forged = victim + 64;
    const uintptr_t ring = victim + 48000;
    forge(forged, size, ring, ring);
    image_set(ring + GB_CHUNK_FD, forged);
    image_set(ring + GB_CHUNK_BK, forged);
    uint64_t word = 64 | GB_NON_MAIN_ARENA; /* the way leads into it; before it is a hole */
    switch (way) {
    case 0:
      image_set(ring + GB_CHUNK_FD, ring);
      break;
    case 1:
      image_set(ring + GB_CHUNK_BK, ring);
      break;
    case 2: /* a free chunk before it */
      image_set(forged + GB_CHUNK_SIZE, size);
      break;
    case 3:
      image_set(forged + GB_CHUNK_SIZE, size | GB_PREV_INUSE | GB_IS_MMAPPED);
      break;
    case 4: /* the one behind says another size */
      image_set(forged + size, size - 16);
      break;
    case 5: /* and that it is in use */
      image_set(forged + size + GB_CHUNK_SIZE, 64 | GB_PREV_INUSE);
      break;
    case 6:
      image_set(forged + GB_CHUNK_FD, 0x10);
      break;
    case 7: /* readable, and points back, but is not the arena's */
      elsewhere[GB_CHUNK_FD / 8] = elsewhere[GB_CHUNK_BK / 8] = forged;
      image_set(forged + GB_CHUNK_BK, (uintptr_t)elsewhere);
      break;
    case 8: /* all of that, right behind a hole: two free chunks side by side */
      forge(victim, size, ring, ring);
      image_set(ring + GB_CHUNK_FD, victim);
      image_set(ring + GB_CHUNK_BK, victim);
      word = size | GB_NON_MAIN_ARENA;
      break;
    case 9:
      word = 0;
      break;
    case 10:
      word = ~(uint64_t)GB_PREV_INUSE;
      break;
    default:
      word = UINT64_C(1) << 40;
    }
    image_set(victim + GB_CHUNK_SIZE, word);
    scene_ready(&scene, false);
    gb_free_pages_remove(&scene.wanted,
                         gb_load(scene.image.arena + scene.image.layout.top) & ~(uintptr_t)4095,
                         scene.image.heap + (64u << 20));
    scene.reach.left = gb_free_pages_bytes(&scene.wanted);
    CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
    CHECK_EQUAL(scene.bytes, expected);
    CHECK(is_filled(forged + 4096, 30000, 0, LIVE));
    scene_end(&scene);
  }
}

/* ---- R3: damage stops it ------------------------------------------------------------------------ */

static void damage_releases_nothing_more(void) {
  enum { WAYS = 8 };
  for (unsigned way = 0; way < WAYS; ++way) {
    struct scene scene;
    scene_begin(&scene, &variants[1]);
    const uint64_t size = 40000;
    uintptr_t holes[20];
    for (unsigned i = 0; i < 20; ++i) {
      (void)live(&scene.image, 64);
      holes[i] = hole(&scene.image, size, gb_bin_of_size(size));
    }
    const uintptr_t victim = live(&scene.image, 50000);
    image_finish(&scene.image);
    const uintptr_t first = holes[19]; /* the list begins with what was freed last */
    switch (way) {
    case 0: /* the list leads into a live block that imitates a chunk, but not its back link */
      forge(victim + 64, 40000, first, holes[0]);
      image_set(first + GB_CHUNK_FD, victim + 64);
      break;
    case 1:
      image_set(first + GB_CHUNK_SIZE, (size + 8192) | GB_PREV_INUSE);
      break;
    case 2:
      image_set(first + GB_CHUNK_SIZE, UINT64_C(1) << 40 | GB_PREV_INUSE);
      break;
    case 3:
      image_set(first + size, size - 4096);
      break;
    case 4:
      image_set(first + size + GB_CHUNK_SIZE, 64 | GB_PREV_INUSE); /* in use, says the one behind */
      break;
    case 5:
      image_set(first + GB_CHUNK_FD, 0x10);
      break;
    case 6:
      image_set(first + GB_CHUNK_SIZE, size | GB_PREV_INUSE | GB_IS_MMAPPED);
      break;
    default:
      image_set(first + GB_CHUNK_FD, (uintptr_t)&scene); /* readable, not the arena's */
    }
    scene_ready(&scene, false);
    const enum gb_status status = release_all(&scene, LONG_NS);
    CHECK(status == GB_DOUBT_LINK || status == GB_DOUBT_CHUNK);
    CHECK(scene.bytes <= size);
    CHECK(way == 0 || is_filled(victim, 50000, GB_CHUNK_HEADER, LIVE));
    CHECK(is_filled(victim + 64 + 4096, 30000, 0, LIVE));
    scene_end(&scene);
  }
}

/* ---- R7: who waits gets the lock ------------------------------------------------------------------ */

static void a_busy_arena_is_left_alone(void) {
  struct scene scene;
  scene_begin(&scene, &variants[1]);
  (void)live(&scene.image, 64);
  (void)hole(&scene.image, 40000, GB_BIN_UNSORTED);
  (void)live(&scene.image, 32);
  image_finish(&scene.image);
  scene_ready(&scene, false);
  CHECK(gb_arena_try_lock(scene.image.arena));
  CHECK_EQUAL(hold_once(&scene, LONG_NS), GB_BUSY);
  CHECK_EQUAL(scene.bytes, 0);
  (void)gb_arena_unlock(scene.image.arena);
  CHECK_EQUAL(hold_once(&scene, LONG_NS), GB_OK);
  scene_end(&scene);
}

static void a_closed_gate_is_a_busy_arena(void) {
  struct scene scene;
  scene_begin(&scene, &variants[1]);
  image_finish(&scene.image);
  gb_arena_gate_close();
  CHECK(!gb_arena_try_lock(scene.image.arena));
  gb_arena_gate_open();
  CHECK(gb_arena_try_lock(scene.image.arena));
  (void)gb_arena_unlock(scene.image.arena);
  image_free(&scene.image);
}

/* As a thread that wants the lock: the word becomes 2 as soon as it is taken, by whomever. */
static void *want(void *argument) {
  uint32_t *word = argument;
  for (;;) {
    uint32_t taken = 1;
    if (__atomic_compare_exchange_n(word, &taken, 2, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return NULL;
  }
}

static bool a_waiter_was_seen(void) {
  struct scene scene;
  scene_begin(&scene, &variants[1]);
  for (unsigned i = 0; i < 1400; ++i) {
    (void)live(&scene.image, 64);
    (void)hole(&scene.image, 20000, GB_BIN_UNSORTED);
  }
  (void)live(&scene.image, 32);
  image_finish(&scene.image);
  scene_ready(&scene, true);
  scene.batch.ranges = 4;
  pthread_t thread;
  CHECK_EQUAL(pthread_create(&thread, NULL, want, (void *)(scene.image.arena + GB_ARENA_MUTEX)), 0);
  /* The pause is far longer than all of it takes: only the waiter can end the hold early. */
  const enum gb_status status = hold_once(&scene, LONG_NS);
  const bool awaited = scene.hold.awaited;
  if (status == GB_MORE)
    CHECK(awaited);
  CHECK(status == GB_MORE || status == GB_OK);
  if (!awaited)
    CHECK(gb_arena_try_lock(scene.image.arena)); /* it has not run yet: now it gets its chance */
  (void)pthread_join(thread, NULL);
  if (!awaited)
    (void)gb_arena_unlock(scene.image.arena);
  CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
  scene_end(&scene);
  return status == GB_MORE;
}

static void somebody_who_waits_ends_the_hold(void) {
  bool seen = false;
  for (unsigned tries = 0; tries < 200 && !seen; ++tries)
    seen = a_waiter_was_seen();
  CHECK(seen);
}

/* ---- the filter --------------------------------------------------------------------------------- */

static void only_wanted_pages_are_released(void) {
  struct scene scene;
  scene_begin(&scene, &variants[2]);
  (void)live(&scene.image, 64);
  const uintptr_t first = hole(&scene.image, 100000, GB_BIN_UNSORTED);
  (void)live(&scene.image, 64);
  const uintptr_t second = hole(&scene.image, 100000, GB_BIN_UNSORTED);
  (void)live(&scene.image, 32);
  image_finish(&scene.image);
  scene_ready(&scene, false);
  gb_free_pages_clear(&scene.wanted);
  const uintptr_t start = (second + 8191) & ~(uintptr_t)4095;
  CHECK_EQUAL(gb_free_pages_add(&scene.wanted, start, start + 3 * 4096), GB_OK);
  CHECK_EQUAL(gb_free_pages_add(&scene.wanted, start + 5 * 4096, start + 6 * 4096), GB_OK);
  CHECK_EQUAL(release_all(&scene, LONG_NS), GB_OK);
  CHECK_EQUAL(scene.bytes, 4 * 4096);
  CHECK_EQUAL(gb_free_pages_bytes(&scene.wanted), 0);
  CHECK(is_filled(first, 100000, GB_CHUNK_FREE_HEADER, FREE));
  CHECK(is_filled(start, 3 * (size_t)4096, 0, 0));
  CHECK(is_filled(start + 3 * (size_t)4096, 2 * (size_t)4096, 0, FREE));
  CHECK(is_filled(start + 5 * (size_t)4096, 4096, 0, 0));
  scene_end(&scene);
}

int main(void) {
  RUN(exactly_the_interiors_are_released);
  RUN(exactly_the_interiors_are_released_from_the_start_of_a_heap);
  RUN(a_forged_member_is_not_released);
  RUN(chunks_near_a_member_need_no_walk_to_them);
  RUN(a_live_block_with_stale_bytes_is_not_released);
  RUN(a_heap_of_small_chunks_is_left_to_the_lists);
  RUN(damage_in_live_headers_only_ends_the_way);
  RUN(damage_releases_nothing_more);
  RUN(a_busy_arena_is_left_alone);
  RUN(a_closed_gate_is_a_busy_arena);
  RUN(somebody_who_waits_ends_the_hold);
  RUN(only_wanted_pages_are_released);
  FINISH();
}
