#include "heap/verify.h"

#include <malloc.h>
#include <stddef.h>

#include "heap/arena.h"

/* As glibc 2.33's struct mallinfo2, which older headers do not have. */
struct gb_mallinfo_wide {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
/* As struct mallinfo, whose function newer headers call deprecated. */
struct gb_mallinfo_narrow {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

/* By these names; mallinfo2 may be missing, up to 2.32. Not looked up at run time: dlsym allocates. */
extern struct gb_mallinfo_wide ask_wide(void) __asm__("mallinfo2") __attribute__((weak));
extern struct gb_mallinfo_narrow ask_narrow(void) __asm__("mallinfo");

static void ask_glibc(struct gb_comparison *comparison) {
  comparison->wide = ask_wide != NULL;
  if (comparison->wide) {
    const struct gb_mallinfo_wide info = ask_wide();
    comparison->glibcs.arena = info.arena;
    comparison->glibcs.ordblks = info.ordblks;
    comparison->glibcs.smblks = info.smblks;
    comparison->glibcs.fsmblks = info.fsmblks;
    comparison->glibcs.fordblks = info.fordblks;
    comparison->glibcs.keepcost = info.keepcost;
    return;
  }
  const struct gb_mallinfo_narrow info = ask_narrow();
  comparison->glibcs.arena = (uint32_t)info.arena;
  comparison->glibcs.ordblks = (uint32_t)info.ordblks;
  comparison->glibcs.smblks = (uint32_t)info.smblks;
  comparison->glibcs.fsmblks = (uint32_t)info.fsmblks;
  comparison->glibcs.fordblks = (uint32_t)info.fordblks;
  comparison->glibcs.keepcost = (uint32_t)info.keepcost;
}

static void our_figures(const struct gb_account *account, const struct gb_totals *totals,
                        struct gb_comparison *comparison) {
  comparison->ours.arena = totals->system_bytes;
  comparison->ours.ordblks = totals->chunks + account->count; /* mallinfo counts each top */
  comparison->ours.smblks = totals->fastbins_chunks;
  comparison->ours.fsmblks = totals->fastbins_bytes;
  comparison->ours.fordblks = totals->free_bytes;
  comparison->ours.keepcost = totals->main_top_bytes;
}

static bool same_totals(const struct gb_totals *left, const struct gb_totals *right) {
  return left->system_bytes == right->system_bytes && left->free_bytes == right->free_bytes &&
         left->chunks == right->chunks && left->fastbins_bytes == right->fastbins_bytes &&
         left->fastbins_chunks == right->fastbins_chunks && left->main_top_bytes == right->main_top_bytes;
}

static bool equal(const struct gb_comparison *comparison) {
  const uint64_t mask = comparison->wide ? UINT64_MAX : UINT32_MAX;
  return ((comparison->ours.arena ^ comparison->glibcs.arena) & mask) == 0 &&
         ((comparison->ours.ordblks ^ comparison->glibcs.ordblks) & mask) == 0 &&
         ((comparison->ours.smblks ^ comparison->glibcs.smblks) & mask) == 0 &&
         ((comparison->ours.fsmblks ^ comparison->glibcs.fsmblks) & mask) == 0 &&
         ((comparison->ours.fordblks ^ comparison->glibcs.fordblks) & mask) == 0 &&
         ((comparison->ours.keepcost ^ comparison->glibcs.keepcost) & mask) == 0;
}

static bool same_difference(const struct gb_comparison *left, const struct gb_comparison *right) {
  return left->ours.arena - left->glibcs.arena == right->ours.arena - right->glibcs.arena &&
         left->ours.ordblks - left->glibcs.ordblks == right->ours.ordblks - right->glibcs.ordblks &&
         left->ours.smblks - left->glibcs.smblks == right->ours.smblks - right->glibcs.smblks &&
         left->ours.fsmblks - left->glibcs.fsmblks == right->ours.fsmblks - right->glibcs.fsmblks &&
         left->ours.fordblks - left->glibcs.fordblks == right->ours.fordblks - right->glibcs.fordblks &&
         left->ours.keepcost - left->glibcs.keepcost == right->ours.keepcost - right->glibcs.keepcost;
}

static enum gb_status verify(const struct gb_account_options *options, struct gb_verify_limits limits,
                             struct gb_comparison *comparison) {
  *comparison = (struct gb_comparison){.verdict = GB_VERDICT_BUSY};
  struct gb_comparison first = {0};
  unsigned differences = 0;
  while (comparison->tries < limits.tries) {
    ++comparison->tries;
    struct gb_account account;
    struct gb_totals before;
    enum gb_status status = gb_account_take(&account, options);
    gb_account_totals(&account, &before);
    our_figures(&account, &before, comparison);
    gb_account_free(&account);
    if (status != GB_OK)
      return status;
    if (before.chunks + before.fastbins_chunks > limits.chunks) {
      comparison->verdict = GB_VERDICT_TOO_LARGE;
      return GB_OK;
    }
    if (!before.all_known)
      continue;
    gb_arena_gate_enter(); /* it locks each arena */
    ask_glibc(comparison);
    gb_arena_gate_leave();
    if (equal(comparison)) {
      comparison->verdict = GB_VERDICT_EQUAL;
      return GB_OK;
    }

    struct gb_totals after;
    status = gb_account_take(&account, options);
    gb_account_totals(&account, &after);
    gb_account_free(&account);
    if (status != GB_OK)
      return status;
    if (!after.all_known || !same_totals(&before, &after))
      continue;
    /* A busy heap can be the same before and after, and yet another when mallinfo looked: by something else each
     * time. What we misread is misread each time. */
    if (differences == 0)
      first = *comparison;
    if (same_difference(&first, comparison) && ++differences >= limits.tries) {
      comparison->verdict = GB_VERDICT_DIFFERENT;
      return GB_OK;
    }
  }
  return GB_OK;
}

enum gb_status gb_verify(const struct gb_account_options *options, struct gb_verify_limits limits,
                         struct gb_comparison *comparison) {
  const int cancellation = gb_os_cancellation_off();
  enum gb_status status = verify(options, limits, comparison);
  gb_os_cancellation_restore(cancellation);
  return status;
}

const char *gb_verdict_name(enum gb_verdict verdict) {
  switch (verdict) {
  case GB_VERDICT_EQUAL:
    return "equal";
  case GB_VERDICT_DIFFERENT:
    return "different";
  case GB_VERDICT_BUSY:
    return "busy";
  case GB_VERDICT_TOO_LARGE:
    return "too large";
  }
  return "unknown";
}
