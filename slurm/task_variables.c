/* SPDX-License-Identifier: BSD-3-Clause */
/* task_variables.c - the variables of tasks: see task_variables.h. */
#include "task_variables.h"

#include <stdio.h>

#include <slurm/slurm.h>

#include "settings.h"

#define LINE_MOST 8192

int task_variables_read(spank_t spank, const char *file)
{
	char line[LINE_MOST];
	const char *name = NULL;
	const char *value = NULL;
	FILE *opened = fopen(file, "re");
	int found = -1;

	if (opened == NULL)
		return -1;
	while ((found = settings_next_variable(opened, line, sizeof(line), &name, &value)) > 0) {
		if (spank_setenv(spank, name, value, 1) != ESPANK_SUCCESS) {
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
