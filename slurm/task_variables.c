/* SPDX-License-Identifier: BSD-3-Clause */
/* task_variables.c - the variables of tasks: see task_variables.h. */
#include "task_variables.h"

#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>

#include "settings.h"

#define RECORD_LINE_MAX 8192
#define PRELOADED "LD_PRELOAD"

/*
 * Keep the user's preloaded libraries, after ours. No other variable is a list to which both
 * contribute.
 */
static spank_err_t set_preloaded(spank_t spank, const char *ours)
{
	char users[RECORD_LINE_MAX] = "";
	char both[2 * RECORD_LINE_MAX];
	spank_err_t found = spank_getenv(spank, PRELOADED, users, sizeof(users));

	if (found == ESPANK_ENV_NOEXIST || (found == ESPANK_SUCCESS && users[0] == '\0'))
		return spank_setenv(spank, PRELOADED, ours, 1);
	if (found != ESPANK_SUCCESS || strstr(users, ours) != NULL)
		return found;
	(void)snprintf(both, sizeof(both), "%s:%s", ours, users);
	return spank_setenv(spank, PRELOADED, both, 1);
}

int task_variables_read(spank_t spank, const char *file)
{
	char line[RECORD_LINE_MAX];
	const char *name = NULL;
	const char *value = NULL;
	FILE *opened = fopen(file, "re");
	int found = -1;

	if (opened == NULL)
		return -1;
	while ((found = settings_next_variable(opened, line, sizeof(line), &name, &value)) > 0) {
		spank_err_t set = strcmp(name, PRELOADED) == 0 ? set_preloaded(spank, value)
							       : spank_setenv(spank, name, value, 1);
		if (set != ESPANK_SUCCESS) {
			found = -1;
			break;
		}
	}
	(void)fclose(opened);
	return found;
}

int task_variables_set(spank_t spank, const char *file, const char *region, char *fault, size_t length)
{
	if (task_variables_read(spank, file) == 0 &&
	    spank_setenv(spank, "VICINAL_REGION", region, 1) == ESPANK_SUCCESS)
		return 0;
	(void)snprintf(fault, length, "vicinal: %s cannot be used: run `vicinal slurm check` on this host",
		       file);
	return -1;
}
