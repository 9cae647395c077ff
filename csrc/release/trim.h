/* What is left to do with glibc's own functions: malloc_trim(0), and emptying its fastbins.
 *
 * Both lock each arena for as long as its lists are, so they are for the policy `trim`, for what we cannot
 * verify, and for one moment of a late start; never for a loop of ours.
 */
#ifndef GIVEBACK_RELEASE_TRIM_H
#define GIVEBACK_RELEASE_TRIM_H

#include <stdbool.h>

#include "release/pass.h"
#include "release/stats.h"

/* malloc_trim(0), counted. */
void gb_trim(struct gb_stats *stats);

/* True if malloc_trim is a way out where `status` keeps us from releasing: glibc's malloc, whose layout
 * we do not know or whose figures we doubt. */
bool gb_trim_may_help(enum gb_status status);

/* From now on, what is freed does not go to fastbins (M_MXFAST 0): chunks in them never merge, so a million
 * small ones hold 109 MB for ever. Waits for the main arena, whose fastbins are merged: before main(), or
 * on a thread that may wait. Nothing to do from glibc 2.43 on, which has none. */
void gb_fastbins_off(void);

/* The same for a process that is at work: merges what lies in the fastbins of all arenas, if that is
 * more than it would cost. pre: gb_pass_open succeeded. */
void gb_fastbins_empty(struct gb_pass *pass);

#endif
