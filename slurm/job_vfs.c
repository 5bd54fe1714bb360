/* SPDX-License-Identifier: BSD-3-Clause */
/* job_vfs.c - files that list the VFs of jobs: see job_vfs.h. */
#include "job_vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job_files.h"

#define PREFIX "vfs-"
#define DIRECTORY_MODE 0755
#define FILE_MODE 0644

int job_vfs_path(const char *directory, uint32_t job, char path[PATH_MAX])
{
	return job_files_path(directory, PREFIX, job, path);
}

enum job_vfs_state job_vfs_find(const char *path)
{
	struct stat status;

	if (lstat(path, &status) != 0)
		return errno == ENOENT ? JOB_VFS_UNKNOWN : JOB_VFS_FOREIGN;
	if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
	    (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return JOB_VFS_FOREIGN;
	return status.st_size > 0 ? JOB_VFS_GIVEN : JOB_VFS_NONE;
}

void job_vfs_note_none(const char *directory, const char *path)
{
	(void)mkdir(directory, DIRECTORY_MODE);
	int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);

	if (file >= 0)
		(void)close(file);
}

bool job_vfs_are_named(const char *words, const char *name)
{
	const size_t length = strlen(name);

	for (const char *word = words; word != NULL; word = strchr(word, ',')) {
		word += *word == ',';
		if (strncmp(word, name, length) == 0 && (word[length] == ':' || word[length] == '('))
			return true;
	}
	return false;
}

/*
 * Whether an entry of the directory records that a job has no VFs: a name without a suffix,
 * and an empty file.
 */
static bool is_note_of_none(int directory, const char *name)
{
	struct stat status;

	return strchr(name, '.') == NULL && fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(status.st_mode) && status.st_size == 0;
}

bool job_vfs_remain(const char *directory, uint32_t job)
{
	DIR *listed = opendir(directory);
	const struct dirent *entry = NULL;
	bool remain = false;

	if (listed == NULL)
		return false;
	while ((entry = readdir(listed)) != NULL) {
		uint32_t of = 0;

		if (!job_files_is_of(entry->d_name, PREFIX, &of) || of != job)
			continue;
		if (!is_note_of_none(dirfd(listed), entry->d_name) ||
		    unlinkat(dirfd(listed), entry->d_name, 0) != 0)
			remain = true;
	}
	(void)closedir(listed);
	return remain;
}

bool job_vfs_any(const char *directory, bool (*is_meant)(uint32_t job))
{
	DIR *listed = opendir(directory);
	const struct dirent *entry = NULL;
	bool found = false;

	if (listed == NULL)
		return false;
	while (!found && (entry = readdir(listed)) != NULL) {
		uint32_t job = 0;

		found = job_files_is_of(entry->d_name, PREFIX, &job) &&
			!is_note_of_none(dirfd(listed), entry->d_name) && is_meant(job);
	}
	(void)closedir(listed);
	return found;
}
