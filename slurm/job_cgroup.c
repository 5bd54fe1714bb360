/* SPDX-License-Identifier: BSD-3-Clause */
/* job_cgroup.c - moves a process into a job's control groups: see job_cgroup.h. */
#include "job_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX 8192U
/* Slurm starts the step `extern` before all other steps, but its process may not exist yet. */
#define POLLS 250U
#define POLL_NANOSECONDS 20000000L

/* Read the control groups of a process: lines NUMBER:CONTROLLERS:PATH. */
static int read_groups(const char *process, char text[TEXT_MAX])
{
	char path[NAME_MAX + 32];

	(void)snprintf(path, sizeof(path), "/proc/%s/cgroup", process);
	int file = open(path, O_RDONLY | O_CLOEXEC);

	text[0] = '\0';
	if (file < 0)
		return -1;
	size_t kept = 0;
	ssize_t got = 0;

	while (kept + 1 < TEXT_MAX && (got = read(file, text + kept, TEXT_MAX - 1 - kept)) > 0)
		kept += (size_t)got;
	(void)close(file);
	text[kept] = '\0';
	return 0;
}

/* The path in a line NUMBER:CONTROLLERS:PATH, or NULL. */
static const char *path_in(const char *line)
{
	const char *controllers = strchr(line, ':');
	const char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

	return path != NULL ? path + 1 : NULL;
}

/*
 * Whether a path is in the job's groups. `job` is the path of these groups, the same in each
 * hierarchy.
 */
static bool is_below(const char *path, const char *job)
{
	size_t length = strlen(job);

	return path != NULL && strncmp(path, job, length) == 0 &&
	       (path[length] == '/' || path[length] == '\n' || path[length] == '\0');
}

bool job_cgroup_find(const char *groups, uint32_t job, char path[PATH_MAX])
{
	char name[32];
	int length = snprintf(name, sizeof(name), "/job_%" PRIu32, job);

	for (const char *line = groups; line != NULL && *line != '\0';) {
		const char *end = strchr(line, '\n');
		const char *begin = path_in(line);
		const char *found = begin != NULL ? strstr(begin, name) : NULL;

		if (found != NULL && (end == NULL || found < end) && is_below(found, name)) {
			(void)snprintf(path, PATH_MAX, "%.*s", (int)(found + length - begin), begin);
			return true;
		}
		line = end != NULL ? end + 1 : NULL;
	}
	return false;
}

bool job_cgroup_is_of_extern(const char *groups, const char *job)
{
	static const char step[] = "/step_extern";
	static const char daemons[] = "/slurm\n";
	bool found = false;

	for (const char *line = groups; line != NULL && *line != '\0';) {
		const char *path = path_in(line);
		const char *end = strchr(line, '\n');

		if (is_below(path, job)) {
			const char *below = path + strlen(job);

			if (strncmp(below, step, strlen(step)) != 0 ||
			    strncmp(below + strlen(step), daemons, strlen(daemons)) == 0)
				return false;
			found = true;
		}
		line = end != NULL ? end + 1 : NULL;
	}
	return found;
}

/* Find a process of the step `extern`, and read its groups. Returns whether there is one. */
static bool find_extern(const char *job, char text[TEXT_MAX])
{
	DIR *processes = opendir("/proc");
	const struct dirent *entry = NULL;
	bool found = false;

	while (!found && processes != NULL && (entry = readdir(processes)) != NULL) {
		found = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
			read_groups(entry->d_name, text) == 0 && job_cgroup_is_of_extern(text, job);
	}
	if (processes != NULL)
		(void)closedir(processes);
	return found;
}

/*
 * Whether a mount is the hierarchy with these controllers. The hierarchy of version 2 names none.
 */
static bool is_hierarchy(const struct mntent *mount, const char *controllers)
{
	char first[64];

	if (controllers[0] == '\0')
		return strcmp(mount->mnt_type, "cgroup2") == 0;
	(void)snprintf(first, sizeof(first), "%s", controllers);
	first[strcspn(first, ",")] = '\0';
	return strcmp(mount->mnt_type, "cgroup") == 0 && hasmntopt(mount, first) != NULL;
}

static int enter(const char *controllers, const char *group, pid_t process)
{
	char path[PATH_MAX];
	char number[24];
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	const struct mntent *mount = NULL;
	int result = -1;

	while (mounts != NULL && (mount = getmntent(mounts)) != NULL && !is_hierarchy(mount, controllers))
		;
	if (mount != NULL) {
		(void)snprintf(path, sizeof(path), "%s%s/cgroup.procs", mount->mnt_dir, group);
		(void)snprintf(number, sizeof(number), "%d", (int)process);
		int file = open(path, O_WRONLY | O_CLOEXEC);

		if (file >= 0) {
			result = write(file, number, strlen(number)) > 0 ? 0 : -1;
			(void)close(file);
		}
	}
	if (mounts != NULL)
		(void)endmntent(mounts);
	return result;
}

int job_cgroup_enter(uint32_t job, pid_t process, bool must, char *fault, size_t length)
{
	static const struct timespec pause = {.tv_nsec = POLL_NANOSECONDS};
	char text[TEXT_MAX];
	char path[PATH_MAX];
	char *rest = NULL;

	if (read_groups("self", text) != 0 || !job_cgroup_find(text, job, path))
		return 0;
	bool found = find_extern(path, text);

	if (!found && !must)
		return 0;
	for (unsigned polls = 0; !found && polls < POLLS; polls++) {
		(void)nanosleep(&pause, NULL);
		found = find_extern(path, text);
	}
	if (!found) {
		(void)snprintf(fault, length,
			       "vicinal: this cluster's control groups end with each step, but a job's nodes "
			       "last longer: an administrator must set PrologFlags=Contain in slurm.conf");
		return -1;
	}
	for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		char *controllers = strchr(line, ':');
		char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

		if (group == NULL || !is_below(group + 1, path))
			continue;
		*group++ = '\0';
		if (enter(controllers + 1, group, process) != 0) {
			(void)snprintf(fault, length,
				       "vicinal: the job's control group %s cannot be entered: %s", group,
				       strerror(errno));
			return -1;
		}
	}
	return 0;
}
