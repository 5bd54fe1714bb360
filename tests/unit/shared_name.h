/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared_name.h - names in /dev/shm that tell their owner. scripts/checks/leftovers.py makes the same names,
 * and removes the files of tests that were killed.
 */
#ifndef VICINAL_TESTS_SHARED_NAME_H
#define VICINAL_TESTS_SHARED_NAME_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_NAME_BYTES 80

/* When this process began, in clock ticks: the 22nd value of its line; the 2nd is in brackets. */
static inline unsigned long long shared_name_began(void)
{
	char line[1024] = "";
	FILE *file = fopen("/proc/self/stat", "re");

	if (file == NULL)
		return 0;
	size_t length = fread(line, 1, sizeof(line) - 1, file);
	(void)fclose(file);
	line[length] = '\0';
	const char *value = strrchr(line, ')');
	for (int skipped = 0; value != NULL && skipped < 20; skipped++)
		value = strchr(value + 1, ' ');
	return value == NULL ? 0 : strtoull(value + 1, NULL, 10);
}

/* Write a template for mkostemp() or mkdtemp(). */
static inline void shared_name(char text[SHARED_NAME_BYTES])
{
	struct stat space = {0};

	(void)stat("/proc/self/ns/pid", &space);
	(void)snprintf(text, SHARED_NAME_BYTES, "/dev/shm/vicinal-test-%lu-%d-%llu-XXXXXX",
		       (unsigned long)space.st_ino, (int)getpid(), shared_name_began());
}

#endif
