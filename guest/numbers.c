/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.c - user and group numbers of a program in a guest: see numbers.h. */
#include "numbers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define TEXT_MAX 128U

/* A map of a single number. */
struct map {
	unsigned long inside;
	unsigned long outside;
};

static int write_text(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t written = file >= 0 ? write(file, text, strlen(text)) : -1;

	if (file >= 0)
		(void)close(file);
	return written == (ssize_t)strlen(text) ? 0 : -1;
}

static int write_map(const char *path, const struct map *map)
{
	char text[TEXT_MAX];

	(void)snprintf(text, sizeof(text), "%lu %lu 1", map->inside, map->outside);
	return write_text(path, text);
}

/* Whether a process in /proc has exactly this map. */
static bool has_map(int process, const char *name, const struct map *map)
{
	char text[TEXT_MAX];
	int file = openat(process, name, O_RDONLY | O_CLOEXEC);
	ssize_t got = file >= 0 ? read(file, text, sizeof(text) - 1) : -1;

	if (file >= 0)
		(void)close(file);
	text[got > 0 ? got : 0] = '\0';
	char *rest = text;
	unsigned long inside = strtoul(rest, &rest, 10);
	unsigned long outside = strtoul(rest, &rest, 10);
	unsigned long count = strtoul(rest, &rest, 10);

	return strcmp(rest, "\n") == 0 && inside == map->inside && outside == map->outside && count == 1;
}

static int join(const char *number, const struct map *user, const struct map *group)
{
	char path[sizeof("/proc/") + NAME_MAX];

	(void)snprintf(path, sizeof(path), "/proc/%s", number);
	int process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int space = -1;

	if (process >= 0 && has_map(process, "uid_map", user) && has_map(process, "gid_map", group))
		space = openat(process, "ns/user", O_RDONLY | O_CLOEXEC);
	if (process >= 0)
		(void)close(process);
	int result = space >= 0 ? setns(space, CLONE_NEWUSER) : -1;

	if (space >= 0)
		(void)close(space);
	return result;
}

/* Enter the user namespace of another program with these numbers. Returns -1 if there is none. */
static int join_any(const struct map *user, const struct map *group)
{
	DIR *all = opendir("/proc");
	const struct dirent *entry = NULL;
	int result = -1;

	while (all != NULL && result != 0 && (entry = readdir(all)) != NULL) {
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			result = join(entry->d_name, user, group);
	}
	if (all != NULL)
		(void)closedir(all);
	return result;
}

int numbers_take(const char *numbers)
{
	char *end = NULL;
	struct map user = {strtoul(numbers, &end, 10), geteuid()};
	struct map group = {*end == ':' ? strtoul(end + 1, &end, 10) : 0, getegid()};
	const char *home = getenv("HOME");

	if (*end != '\0') {
		errno = EINVAL;
		return -1;
	}
	/*
	 * If several programs start at once, only one of them creates the namespace. The lock is
	 * released when this file is closed.
	 */
	int lock = open(home != NULL ? home : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (lock >= 0)
		(void)flock(lock, LOCK_EX);
	int result = join_any(&user, &group);

	if (result != 0)
		result = unshare(CLONE_NEWUSER) != 0 || write_text("/proc/self/setgroups", "deny") != 0 ||
					 write_map("/proc/self/uid_map", &user) != 0 ||
					 write_map("/proc/self/gid_map", &group) != 0
				 ? -1
				 : 0;
	if (lock >= 0)
		(void)close(lock);
	return result;
}
