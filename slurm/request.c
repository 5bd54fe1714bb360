/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c - the value of --vicinal: see request.h. */
#include "request.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "region/layout.h"

/* No longer value is valid. */
#define VALUE_MAX 128U
/* Values with this many digits are below 2^63, even in G. */
#define DIGITS_MAX 9U
#define SECTION_DEFAULT (960U * 1024U)

#define FORM "write it as --vicinal=region[,members=N][,section=SIZE][,heap=SIZE], or --vicinal=FILE.yaml"

int size_read(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	size_t digits = strspn(text, "0123456789");
	unsigned shift = 0;

	if (digits == 0 || digits > DIGITS_MAX)
		return -1;
	if (text[digits] != '\0') {
		const char *unit = strchr(units, text[digits]);

		if (unit == NULL || text[digits + 1] != '\0')
			return -1;
		shift = 10U * (unsigned)(unit - units + 1);
	}
	*bytes = strtoull(text, NULL, 10) << shift;
	return 0;
}

static int read_item(const char *item, struct request *request)
{
	static const char *const names[] = {"members=", "section=", "heap="};
	uint64_t *const values[] = {&request->members, &request->section, &request->heap};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t length = strlen(names[i]);

		if (strncmp(item, names[i], length) != 0)
			continue;
		/* 0 would mean the same as leaving the item out. */
		return size_read(item + length, values[i]) == 0 && *values[i] > 0 ? 0 : -1;
	}
	return -1;
}

/* Reject what no region can be. Whether the host has room is checked there. */
static int check(const struct request *request, uint64_t most, char *fault, size_t length)
{
	uint64_t members = request->members > 0 ? request->members : REGION_MEMBERS_MIN;
	uint64_t section = request->section > 0 ? request->section : SECTION_DEFAULT;

	if (members < REGION_MEMBERS_MIN || members > REGION_MEMBERS_MAX) {
		(void)snprintf(fault, length,
			       "a region cannot have %" PRIu64 " members: %u to %u are possible", members,
			       REGION_MEMBERS_MIN, REGION_MEMBERS_MAX);
		return -1;
	}
	if (section < REGION_SECTION_MIN || section > REGION_SECTION_MAX || section % REGION_PAGE != 0 ||
	    request->heap % REGION_PAGE != 0) {
		(void)snprintf(fault, length,
			       "a section must have 256K to 1G, and a section and a heap whole pages of 4K: "
			       "change section= or heap=");
		return -1;
	}
	if (request->heap > REGION_HEAP_MAX || members * (section + request->heap) > most) {
		(void)snprintf(fault, length,
			       "a region of %" PRIu64 " members, %" PRIu64
			       " bytes each, is larger than the %" PRIu64
			       " bytes that this cluster permits: request less, or ask an administrator to "
			       "raise max_size",
			       members, section + request->heap, most);
		return -1;
	}
	return 0;
}

static bool ends_in(const char *text, const char *end)
{
	size_t length = strlen(text);

	return length > strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static bool is_file(const char *value)
{
	return strncmp(value, "region,", strlen("region,")) != 0 &&
	       (strchr(value, '/') != NULL || ends_in(value, ".yaml") || ends_in(value, ".yml"));
}

static int read_file(const char *value, struct request *request, char *fault, size_t length)
{
	for (const char *at = value; *at != '\0'; at++) {
		/*
		 * A record or an error message has one line, so these characters are not permitted.
		 */
		if ((unsigned char)*at < ' ' || *at == 127) {
			(void)snprintf(
				fault, length,
				"the name of the cluster file has a control character: rename the file");
			return -1;
		}
	}
	if (snprintf(request->file, sizeof(request->file), "%s", value) < PATH_MAX)
		return 0;
	(void)snprintf(fault, length, "the value of --vicinal is too long: " FORM);
	return -1;
}

int request_read(const char *value, uint64_t most, struct request *request, char *fault, size_t length)
{
	char copy[VALUE_MAX];
	char *rest = NULL;
	bool good = true;

	*request = (struct request){0};
	/*
	 * Slurm passes a missing value as any of these three: srun, slurmstepd, and srun in a job
	 * of salloc.
	 */
	if (value == NULL || value[0] == '\0' || strcmp(value, "(null)") == 0)
		return 0;
	if (is_file(value))
		return read_file(value, request, fault, length);
	size_t size = strlen(value);

	if (size >= sizeof(copy)) {
		(void)snprintf(fault, length, "the value of --vicinal is too long: " FORM);
		return -1;
	}
	memcpy(copy, value, size + 1);
	const char *word = strtok_r(copy, ",", &rest);

	good = word != NULL && strcmp(word, "region") == 0;
	while (good && (word = strtok_r(NULL, ",", &rest)) != NULL)
		good = read_item(word, request) == 0;
	if (!good) {
		(void)snprintf(fault, length, "'%s' is not a value of --vicinal: " FORM, value);
		return -1;
	}
	return check(request, most, fault, length);
}
