/* SPDX-License-Identifier: BSD-3-Clause */
/* tuning.c - this process's thresholds: from variables, else from a profile, else the defaults. */
#include "api/profile.h"
#include "api/provider.h"

#include <stdlib.h>
#include <sys/auxv.h>

static struct thresholds thresholds;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void tuning_define(void)
{
	(void)fi_param_define(
		&provider, "profile", FI_PARAM_STRING,
		"File with this host's thresholds, lines of key = value; empty for none. VICINAL_PROFILE "
		"takes precedence. (default: $XDG_CONFIG_HOME/vicinal/profile, else " PROFILE_SYSTEM
		", if it exists)");
	for (uint32_t i = 0; i < THRESHOLDS; i++) {
		const struct threshold *threshold = &threshold_table[i];
		(void)fi_param_define(&provider, threshold->key, FI_PARAM_STRING,
				      "%s %u to %u; K or M may follow. %s takes precedence. (default: the "
				      "profile's value, else %u)",
				      threshold->meaning, threshold->least, threshold->most,
				      threshold->variable, threshold->usual);
	}
}

static void find(void)
{
	const struct profile_locations locations = {
		.named = parameter_text("VICINAL_PROFILE", "profile"),
		.config = getenv("XDG_CONFIG_HOME"),
		.home = getenv("HOME"),
		.system = PROFILE_SYSTEM,
		.secure = getauxval(AT_SECURE) != 0,
	};

	thresholds_open(&thresholds);
	profile_load(&locations, &thresholds, provider_caution);
	for (uint32_t i = 0; i < THRESHOLDS; i++) {
		const struct threshold *threshold = &threshold_table[i];
		const char *text = parameter_text(threshold->variable, threshold->key);
		atomic_bool said = false;

		if (text != NULL && *text != '\0' && !threshold_set(&thresholds, threshold, text))
			provider_notice_once(&said,
					     "%s=%.64s is not a number from %u to %u: using %u, correct it",
					     threshold->variable, text, threshold->least, threshold->most,
					     threshold_get(&thresholds, threshold));
		FI_INFO(&provider, FI_LOG_CORE, "%s is %u\n", threshold->key,
			threshold_get(&thresholds, threshold));
	}
}

const struct thresholds *tuning(void)
{
	(void)pthread_once(&once, find);
	return &thresholds;
}
