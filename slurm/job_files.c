/* SPDX-License-Identifier: BSD-3-Clause */
/* job_files.c - names of files of jobs: see job_files.h. */
#include "job_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int job_files_path(const char *directory, const char *prefix, uint32_t job, char path[PATH_MAX])
{
	int length = snprintf(path, PATH_MAX, "%s/%s%" PRIu32, directory, prefix, job);

	return length > 0 && length < PATH_MAX ? 0 : -1;
}

bool job_files_is_of(const char *name, const char *prefix, uint32_t *job)
{
	const char *digits = name + strlen(prefix);
	char *end = NULL;

	if (strncmp(name, prefix, strlen(prefix)) != 0 || *digits < '0' || *digits > '9')
		return false;
	unsigned long number = strtoul(digits, &end, 10);

	*job = (uint32_t)number;
	return number <= UINT32_MAX && (*end == '\0' || *end == '.');
}
