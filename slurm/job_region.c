/* SPDX-License-Identifier: BSD-3-Clause */
/* job_region.c - regions of jobs as files: see job_region.h. */
#include "job_region.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job_files.h"
#include "region/layout.h"

#define PREFIX "job-"
/* Users own these files, so opening one must not block on a file type that a user chose. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

int job_region_path(const char *directory, uint32_t job, char path[PATH_MAX])
{
	return job_files_path(directory, PREFIX, job, path);
}

enum job_region_state job_region_find(const char *path, uid_t user, uint32_t *members)
{
	struct stat status;
	int file = open(path, OPEN_FLAGS);
	enum job_region_state state = JOB_REGION_FOREIGN;

	*members = 0;
	if (file < 0)
		return errno == ENOENT ? JOB_REGION_NONE : JOB_REGION_FOREIGN;
	if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == user) {
		state = JOB_REGION_GOOD;
		if (pread(file, members, sizeof(*members), offsetof(struct region_header, members)) !=
		    (ssize_t)sizeof(*members))
			*members = 0;
	}
	(void)close(file);
	return state;
}

unsigned job_region_remove(const char *directory, uint32_t job)
{
	DIR *listed = opendir(directory);
	const struct dirent *entry = NULL;
	unsigned left = 0;

	if (listed == NULL)
		return errno == ENOENT ? 0 : 1;
	while ((entry = readdir(listed)) != NULL) {
		uint32_t of = 0;

		if (job_files_is_of(entry->d_name, PREFIX, &of) && of == job &&
		    unlinkat(dirfd(listed), entry->d_name, 0) != 0 && errno != ENOENT)
			left++;
	}
	(void)closedir(listed);
	return left;
}

void job_region_remove_part(const char *directory, uint32_t job, pid_t process)
{
	char path[PATH_MAX];
	char part[PATH_MAX + 16];

	if (job_region_path(directory, job, path) != 0)
		return;
	(void)snprintf(part, sizeof(part), "%s.%d", path, (int)process);
	(void)unlink(part);
}

/* Each member holds a lock on the byte of its slot (docs/reference/region-format.md). */
static bool is_idle(int directory, const char *name)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = REGION_MEMBERS_MAX};
	int file = openat(directory, name, OPEN_FLAGS);
	bool idle = file >= 0 && fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;

	if (file >= 0)
		(void)close(file);
	return idle;
}

bool job_region_any_idle(const char *directory)
{
	DIR *listed = opendir(directory);
	const struct dirent *entry = NULL;
	bool idle = false;

	if (listed == NULL)
		return false;
	while (!idle && (entry = readdir(listed)) != NULL) {
		uint32_t job = 0;

		idle = job_files_is_of(entry->d_name, PREFIX, &job) && is_idle(dirfd(listed), entry->d_name);
	}
	(void)closedir(listed);
	return idle;
}
