/* SPDX-License-Identifier: BSD-3-Clause */
/* job_functions.c - files that list the functions of jobs: see job_functions.h. */
#include "job_functions.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job_files.h"

#define PREFIX "functions-"
#define DIRECTORY_MODE 0755
#define FILE_MODE 0644

int job_functions_path(const char *directory, uint32_t job, char path[PATH_MAX])
{
	return job_files_path(directory, PREFIX, job, path);
}

enum job_functions_state job_functions_find(const char *path)
{
	struct stat status;

	if (lstat(path, &status) != 0)
		return errno == ENOENT ? JOB_FUNCTIONS_UNKNOWN : JOB_FUNCTIONS_FOREIGN;
	if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
	    (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return JOB_FUNCTIONS_FOREIGN;
	return status.st_size > 0 ? JOB_FUNCTIONS_GIVEN : JOB_FUNCTIONS_NONE;
}

void job_functions_note_none(const char *directory, const char *path)
{
	(void)mkdir(directory, DIRECTORY_MODE);
	int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);

	if (file >= 0)
		(void)close(file);
}

bool job_functions_are_named(const char *words, const char *name)
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
 * Whether an entry of the directory records that a job has no functions: a name without a suffix,
 * and an empty file.
 */
static bool is_note_of_none(int directory, const char *name)
{
	struct stat status;

	return strchr(name, '.') == NULL && fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(status.st_mode) && status.st_size == 0;
}

bool job_functions_remain(const char *directory, uint32_t job)
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

bool job_functions_any(const char *directory, bool (*is_meant)(uint32_t job))
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
