/* The account: what this process's glibc holds, arena by arena, in bytes.
 *
 * Puts together where malloc is (locate.h), how it is laid out (derive.h), what is
 * free (look.h) and what of that is resident (free_pages.h, os.h). Keeps nothing between two
 * calls: no global state, nothing to repair after fork.
 *
 * Costs at most one hold of `hold_ns` of one arena at a time. Thread-safe. Not
 * async-signal-safe. Allocates with mmap only, so it does not change what it measures.
 */
#ifndef GIVEBACK_HEAP_ACCOUNT_H
#define GIVEBACK_HEAP_ACCOUNT_H

#include "heap/derive.h"
#include "heap/free_pages.h"
#include "heap/locate.h"
#include "heap/look.h"
#include "heap/tcache.h"

struct gb_arena_account {
  uintptr_t address;
  bool is_main;
  enum gb_status status; /* GB_OK, or why the figures below are not known */
  struct gb_look look;
  struct gb_page_figures bins; /* whole pages inside free chunks */
  struct gb_page_figures top; /* whole pages of the top chunk */
};

struct gb_account_options {
  uint64_t hold_ns;
  uint64_t patience_ns;
  enum gb_residency_source first_source;
  const struct gb_location *location; /* as found before; NULL: gb_locate is called */
  bool without_pages; /* only what mallinfo knows, too: `bins` and `top` stay zero */
  bool without_malloc; /* leave out the calling thread's cache, for which malloc is called once */
};

#define GB_DEFAULT_HOLD_NS UINT64_C(200000) /* see docs/design/account.md */
#define GB_DEFAULT_PATIENCE_NS UINT64_C(100000000)

struct gb_account {
  struct gb_location location;
  struct gb_glibc glibc;
  struct gb_parameters parameters;
  struct gb_tcache tcache; /* of the calling thread */
  enum gb_residency_source source;
  struct gb_arena_account *arenas; /* the main arena first */
  size_t count;
  size_t capacity;
  uint64_t wall_ns; /* for all of it */
  uint64_t cpu_ns; /* of the calling thread */
};

/* Whatever it returns, gb_account_free must follow. On failure what is known by
 * then (location, glibc) is filled in. */
enum gb_status gb_account_take(struct gb_account *account, const struct gb_account_options *options);
void gb_account_free(struct gb_account *account);

/* The same for arenas that are already known, as a test makes them. `maps` is the
 * caller's. account->glibc must be filled in; location and parameters are not touched. */
enum gb_status gb_account_of(struct gb_account *account, const struct gb_account_options *options,
                             struct gb_maps *maps);

/* Sums over all arenas whose status is GB_OK. */
struct gb_totals {
  uint64_t system_bytes;
  uint64_t free_bytes; /* bins, fastbins and tops */
  uint64_t chunks; /* in bins */
  uint64_t fastbins_chunks;
  uint64_t fastbins_bytes;
  uint64_t main_top_bytes;
  bool all_known; /* every arena GB_OK, settled and complete */
};
void gb_account_totals(const struct gb_account *account, struct gb_totals *totals);

#endif
