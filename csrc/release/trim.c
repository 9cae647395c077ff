#include "release/trim.h"

#include <malloc.h>

#include "base/clock.h"

/* In fastbins of thread arenas: less is not worth a malloc_trim. */
#define WORTH_A_TRIM_BYTES (UINT64_C(1) << 20)
#define PATIENCE_NS UINT64_C(2000000)

void gb_trim(struct gb_stats *stats) {
  const uint64_t begin = gb_now_ns();
  gb_arena_gate_enter();
  (void)malloc_trim(0); /* its result says nothing: 1 even where nothing was freed */
  gb_arena_gate_leave();
  const uint64_t took = gb_now_ns() - begin;
  gb_stats_add(&stats->trims, 1);
  gb_stats_add(&stats->trim_ns, took);
  if (took > stats->trim_max_ns)
    gb_stats_set(&stats->trim_max_ns, took);
}

bool gb_trim_may_help(enum gb_status status) {
  return status == GB_UNKNOWN_LAYOUT || status == GB_DOUBT_FIGURES || status == GB_NO_RESIDENCY;
}

void gb_fastbins_off(void) {
  gb_arena_gate_enter();
  (void)mallopt(M_MXFAST, 0);
  gb_arena_gate_leave();
}

void gb_fastbins_empty(struct gb_pass *pass) {
  if (pass->glibc.layout.fastbins == 0)
    return;
  const struct gb_look_options options = {.hold_ns = pass->config->pause_ns, .patience_ns = PATIENCE_NS};
  uint64_t elsewhere = 0;
  for (size_t i = 1; i < pass->list.count; ++i) {
    struct gb_look look;
    if (gb_look_at(&pass->looker, pass->list.addresses[i], false, &options, &look) == GB_OK)
      elsewhere += look.fastbins_bytes;
  }
  gb_fastbins_off();
  if (elsewhere >= WORTH_A_TRIM_BYTES)
    gb_trim(pass->stats);
}
