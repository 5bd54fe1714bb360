/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile.h - a machine's thresholds in a file of lines `key = value`.
 *
 * Whatever a file holds, values stay in their ranges, and what is wrong costs one warning.
 */
#ifndef VICINAL_API_PROFILE_H
#define VICINAL_API_PROFILE_H

#include "proto/thresholds.h"
#include "region/region.h"

#define PROFILE_SYSTEM "/etc/vicinal/profile"
/* All that a profile can say takes less than a tenth of this. */
#define PROFILE_BYTES_MAX 16384U

/* Where a process looks for it. */
struct profile_locations {
	const char *named;  /* VICINAL_PROFILE: NULL if it is not set, empty for no profile at all */
	const char *config; /* XDG_CONFIG_HOME, or NULL */
	const char *home;   /* HOME, or NULL */
	const char *system; /* the machine's: PROFILE_SYSTEM */
	bool secure;        /* with rights that its user may lack: only the machine's counts */
};

/*
 * Take over what `length` bytes of text say. `name` is for `error`. Returns how many lines are wrong, of
 * which `error` names the first; they change nothing.
 */
uint32_t profile_parse(const char *name, const char *text, size_t length, struct thresholds *thresholds,
		       struct region_error *error);

/* Take over the first profile that there is. `warn` is called once at most, where something is wrong. */
void profile_load(const struct profile_locations *locations, struct thresholds *thresholds,
		  void (*warn)(const char *text));

#endif
