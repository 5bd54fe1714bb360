/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_profile.c - for any profile, thresholds stay in their ranges, and warnings can be shown. */
#include "api/profile.h"
#include "fuzz/fuzz_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "fuzz_profile: %s\n", what);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct thresholds thresholds;
	struct region_error error = {.text = ""};
	char *text = malloc(size > 0 ? size : 1);

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	thresholds_open(&thresholds);
	uint32_t faults = profile_parse("profile", text, size, &thresholds, &error);
	for (uint32_t i = 0; i < THRESHOLDS; i++) {
		uint32_t value = threshold_get(&thresholds, &threshold_table[i]);
		require(value >= threshold_table[i].least && value <= threshold_table[i].most,
			"a threshold left its range");
	}
	require((faults > 0) == (error.text[0] != '\0'), "errors have a text, and only errors");
	for (const char *byte = error.text; *byte != '\0'; byte++)
		require(*byte >= ' ' && *byte <= '~', "a warning has bytes that cannot be shown");
	free(text);
	return 0;
}
