/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile.h - a host's thresholds, in a file of lines `key = value`.
 *
 * Whatever a file contains, values stay in their ranges, and all errors together cost one warning.
 */
#ifndef VICINAL_API_PROFILE_H
#define VICINAL_API_PROFILE_H

#include "proto/thresholds.h"
#include "region/region.h"

#define PROFILE_SYSTEM "/etc/vicinal/profile"
/* A profile that sets everything takes less than a tenth of this. */
#define PROFILE_BYTES_MAX 16384U

/* Where a process looks for its profile. */
struct profile_locations {
	const char *named;  /* VICINAL_PROFILE: NULL if it is not set, empty to use no profile */
	const char *config; /* XDG_CONFIG_HOME, or NULL */
	const char *home;   /* HOME, or NULL */
	const char *system; /* the host's: PROFILE_SYSTEM */
	bool secure; /* the process has rights that its user may lack: only the host's profile counts */
};

/*
 * Applies `length` bytes of text. `name` is the file's name in messages. Returns the number of invalid lines,
 * which change nothing; `error` describes the first.
 */
uint32_t profile_parse(const char *name, const char *text, size_t length, struct thresholds *thresholds,
		       struct region_error *error);

/* Applies the first profile that exists. `warn` is called at most once, if something is wrong. */
void profile_load(const struct profile_locations *locations, struct thresholds *thresholds,
		  void (*warn)(const char *text));

#endif
