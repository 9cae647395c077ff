/* What a user can set, and the one text form of it: GIVEBACK=cpu=1%,age=250ms,...
 *
 * Pure: reads no environment. Thread-safe. Every unit is written out: times with
 * us, ms or s, shares with %.
 */
#ifndef GIVEBACK_RELEASE_CONFIG_H
#define GIVEBACK_RELEASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum gb_policy {
  GB_POLICY_BACKGROUND, /* release what stayed free, in bounded holds */
  GB_POLICY_TRIM, /* malloc_trim(0) on a timer: today's workaround, for comparison */
  GB_POLICY_OFF, /* nothing at all */
};

struct gb_config {
  enum gb_policy policy;
  uint32_t cpu_ppm; /* of one core, for searching and for refaults; averaged over a minute */
  uint32_t duty_ppm; /* share of time in which a lock that others want may be ours */
  uint64_t pause_ns; /* longest time a hold lets somebody wait, wall */
  uint64_t age_ns; /* how long memory must have stayed free */
  uint64_t every_ns; /* policy trim: time between two malloc_trim(0) */
  bool children; /* programs started by this one get the engine, too */
  bool old_kernel; /* kernel=old: only what kernels before 6 have (madvise, pagemap) */
  bool keep_fastbins; /* fastbins=keep: do not set M_MXFAST to 0 */
};

#define GB_CONFIG_MESSAGE 160u /* bytes; enough for every message, terminating zero included */

void gb_config_default(struct gb_config *config);

/* Reads `text` over what `config` holds. GB_OK; GB_BAD_CONFIG, with one line in `message` that
 * names the key and says what it may be, and config as it was. NULL and "" are fine. */
enum gb_status gb_config_parse(struct gb_config *config, const char *text, char message[GB_CONFIG_MESSAGE]);

/* "background", "trim", "off". */
const char *gb_policy_name(enum gb_policy policy);

#endif
