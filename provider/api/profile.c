/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c - reads a host's thresholds. Neither the file's text nor its writer is trusted. */
#include "api/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_BYTES 64U
#define VALUE_BYTES 32U

/* In a user namespace, users outside it, such as root, appear with this id. */
#define OVERFLOW_USER 65534U

static bool is_blank(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\r';
}

/*
 * Copies [begin, end) without surrounding blanks; unprintable bytes become '?'. Returns false if the text is
 * empty, too long or has unprintable bytes.
 */
static bool trim(const char *begin, const char *end, char *to, size_t room)
{
	while (begin < end && is_blank(*begin))
		begin++;
	while (end > begin && is_blank(end[-1]))
		end--;
	size_t length = (size_t)(end - begin);
	bool good = length > 0 && length < room;
	length = length < room ? length : room - 1;
	for (size_t i = 0; i < length; i++) {
		bool shown = begin[i] > ' ' && begin[i] <= '~';
		to[i] = begin[i];
		if (!shown)
			to[i] = '?';
		good = good && shown;
	}
	to[length] = '\0';
	return good;
}

static uint32_t find_key(const char *key)
{
	uint32_t index = 0;

	while (index < THRESHOLDS && strcmp(threshold_table[index].key, key) != 0)
		index++;
	return index;
}

/* Parses a line that is not empty. Returns 0, or -EINVAL with the reason in `fault`. */
static int parse_line(const char *line, const char *end, struct thresholds *thresholds, uint32_t *seen,
		      struct region_error *fault)
{
	const char *equals = memchr(line, '=', (size_t)(end - line));
	char key[KEY_BYTES];
	char value[VALUE_BYTES];

	if (equals == NULL)
		return region_fail(fault, -EINVAL, "it is not key = value");
	bool good = trim(line, equals, key, sizeof(key));
	uint32_t index = good ? find_key(key) : THRESHOLDS;
	if (index == THRESHOLDS)
		return region_fail(fault, -EINVAL, "there is no threshold %s", key);
	const struct threshold *threshold = &threshold_table[index];
	if (*seen & 1U << index)
		return region_fail(fault, -EINVAL, "%s is set twice", key);
	*seen |= 1U << index;
	if (!trim(equals + 1, end, value, sizeof(value)) || !threshold_set(thresholds, threshold, value))
		return region_fail(fault, -EINVAL, "%s cannot be %s, only %u to %u", key, value,
				   threshold->least, threshold->most);
	return 0;
}

uint32_t profile_parse(const char *name, const char *text, size_t length, struct thresholds *thresholds,
		       struct region_error *error)
{
	const char *end = text + length;
	struct region_error fault;
	struct region_error first;
	uint32_t number = 0;
	uint32_t first_number = 0;
	uint32_t faults = 0;
	uint32_t seen = 0;

	for (const char *line = text; line < end;) {
		const char *line_end = memchr(line, '\n', (size_t)(end - line));
		const char *next = line_end != NULL ? line_end + 1 : end;
		line_end = line_end != NULL ? line_end : end;
		const char *comment = memchr(line, '#', (size_t)(line_end - line));
		line_end = comment != NULL ? comment : line_end;
		number++;
		while (line < line_end && is_blank(*line))
			line++;
		if (line < line_end && parse_line(line, line_end, thresholds, &seen, &fault) != 0 &&
		    faults++ == 0) {
			first = fault;
			first_number = number;
		}
		line = next;
	}
	if (faults == 1)
		region_fail(error, -EINVAL,
			    "profile %.1024s, line %u: %.256s: correct or delete the line, which is ignored",
			    name, first_number, first.text);
	else if (faults > 1)
		region_fail(error, -EINVAL,
			    "profile %.1024s, line %u: %.256s (invalid lines after it: %u): correct or "
			    "delete these lines, which are ignored",
			    name, first_number, first.text, faults - 1);
	return faults;
}

/* Whether the file may be trusted. Returns 0, or a negative errno with `error` filled in. */
static int check_file(const char *path, const struct stat *file, bool is_system, struct region_error *error)
{
	bool owned = file->st_uid == 0 || file->st_uid == geteuid() ||
		     (is_system && file->st_uid == OVERFLOW_USER);

	if (!S_ISREG(file->st_mode))
		return region_fail(error, -EINVAL,
				   "profile %.1024s is not a file, and is not used: take it away, or let "
				   "VICINAL_PROFILE name another",
				   path);
	if (!owned)
		return region_fail(
			error, -EPERM,
			"profile %.1024s belongs to user %u, and is not used: make a copy of your own", path,
			(unsigned)file->st_uid);
	if (file->st_mode & (S_IWGRP | S_IWOTH))
		return region_fail(
			error, -EPERM,
			"profile %.1024s can be written by others (mode %o), and is not used: chmod "
			"go-w it",
			path, (unsigned)file->st_mode & 07777U);
	return 0;
}

/* Reads the whole file. Returns its length, or a negative errno with `error` filled in. */
static int read_all(int descriptor, const char *path, char *text, struct region_error *error)
{
	size_t length = 0;

	while (length < PROFILE_BYTES_MAX) {
		ssize_t got = read(descriptor, text + length, PROFILE_BYTES_MAX - length);
		if (got == 0)
			return (int)length;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return region_fail(error, -EIO,
					   "profile %.1024s cannot be read (%s), and is not used: delete it",
					   path, strerror(errno));
		length += (size_t)got;
	}
	return region_fail(error, -EFBIG,
			   "profile %.1024s has %u bytes or more, and is not used: no profile is so long",
			   path, PROFILE_BYTES_MAX);
}

/* Returns 0, -ENOENT if there is no file, or another negative errno with `error` filled in. */
static int load_file(const char *path, bool is_system, struct thresholds *thresholds,
		     struct region_error *error)
{
	/* O_NONBLOCK: opening a FIFO or a device must not block. */
	int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char text[PROFILE_BYTES_MAX] = ""; /* for analyzers, which do not see that read() fills it */
	struct stat file;

	if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
		return -ENOENT;
	if (descriptor < 0)
		return region_fail(
			error, -EACCES,
			"profile %.1024s cannot be opened (%s), and is not used: make it readable, or "
			"let VICINAL_PROFILE name another",
			path, strerror(errno));
	int result = fstat(descriptor, &file) == 0
			     ? check_file(path, &file, is_system, error)
			     : region_fail(error, -EIO, "profile %.1024s is not used (%s): delete it", path,
					   strerror(errno));
	if (result == 0)
		result = read_all(descriptor, path, text, error);
	(void)close(descriptor);
	if (result < 0)
		return result;
	return profile_parse(path, text, (size_t)result, thresholds, error) == 0 ? 0 : -EINVAL;
}

/* The path of the user's own profile. Returns false if the user has no directory for it. */
static bool user_path(const struct profile_locations *locations, char path[PATH_MAX])
{
	int length = -1;

	/*
	 * Relative paths are ignored, as the XDG specification asks: they would depend on the working
	 * directory.
	 */
	if (locations->config != NULL && locations->config[0] == '/')
		length = snprintf(path, PATH_MAX, "%s/vicinal/profile", locations->config);
	else if (locations->home != NULL && locations->home[0] == '/')
		length = snprintf(path, PATH_MAX, "%s/.config/vicinal/profile", locations->home);
	return length > 0 && length < PATH_MAX;
}

void profile_load(const struct profile_locations *locations, struct thresholds *thresholds,
		  void (*warn)(const char *text))
{
	struct region_error error;
	char path[PATH_MAX];
	int result = -ENOENT;

	if (locations->named != NULL && !locations->secure) {
		if (*locations->named == '\0')
			return;
		result = load_file(locations->named, false, thresholds, &error);
		if (result == -ENOENT)
			region_fail(
				&error, result,
				"profile %.1024s, which VICINAL_PROFILE names, does not exist: correct or "
				"unset the variable",
				locations->named);
		if (result != 0)
			warn(error.text);
		return;
	}
	if (locations->named != NULL && *locations->named != '\0')
		warn("VICINAL_PROFILE is ignored by a program that has rights which its user may lack: put "
		     "the profile into " PROFILE_SYSTEM);
	else if (!locations->secure && user_path(locations, path))
		result = load_file(path, false, thresholds, &error);
	if (result == -ENOENT)
		result = load_file(locations->system, true, thresholds, &error);
	if (result != 0 && result != -ENOENT)
		warn(error.text);
}
