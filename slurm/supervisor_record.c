/* SPDX-License-Identifier: BSD-3-Clause */
/* supervisor_record.c - records of supervisors: see supervisor_record.h. */
#include "supervisor_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "job_files.h"

#define PREFIX "nodes-"
#define BOOT_MAX 64U
#define RECORD_LINE_MAX (PATH_MAX + 128)
#define POLL_NANOSECONDS 20000000L
#define POLLS_A_SECOND 50U

/* The boot id, which distinguishes process numbers of this boot from those of earlier boots. */
static void read_boot(char boot[BOOT_MAX])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	boot[0] = '\0';
	if (file != NULL) {
		if (fgets(boot, BOOT_MAX, file) == NULL)
			boot[0] = '\0';
		(void)fclose(file);
	}
	boot[strcspn(boot, "\n")] = '\0';
}

static bool is_there(const char *path, int record)
{
	struct stat there;
	struct stat open;

	return lstat(path, &there) == 0 && fstat(record, &open) == 0 && there.st_ino == open.st_ino &&
	       there.st_dev == open.st_dev;
}

int supervisor_record_open(const char *directory, uint32_t job, bool make, unsigned seconds)
{
	static const struct timespec pause = {.tv_nsec = POLL_NANOSECONDS};
	char path[PATH_MAX];

	if (job_files_path(directory, PREFIX, job, path) != 0) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (unsigned polls = 0; polls <= seconds * POLLS_A_SECOND; polls++) {
		int record =
			open(path, O_RDWR | (make ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);

		if (record < 0)
			return -1;
		if (flock(record, LOCK_EX | LOCK_NB) == 0 && is_there(path, record))
			return record;
		/* Another process holds the lock, or the file was removed meanwhile. */
		(void)close(record);
		(void)nanosleep(&pause, NULL);
	}
	errno = EWOULDBLOCK;
	return -1;
}

void supervisor_record_read(int record, struct supervisor_record *found)
{
	char line[RECORD_LINE_MAX];
	char boot[BOOT_MAX];
	ssize_t got = pread(record, line, sizeof(line) - 1, 0);

	*found = (struct supervisor_record){0};
	if (got <= 0)
		return;
	line[got] = '\0';
	line[strcspn(line, "\n")] = '\0';
	read_boot(boot);
	const char *rest = process_read(line, &found->process);

	if (rest != NULL && boot[0] != '\0' && *rest == ' ' && strncmp(rest + 1, boot, strlen(boot)) == 0 &&
	    rest[1 + strlen(boot)] == ' ') {
		(void)snprintf(found->file, sizeof(found->file), "%s", rest + 2 + strlen(boot));
		int directory = process_open(&found->process);

		if (directory >= 0) {
			(void)close(directory);
			return;
		}
	}
	*found = (struct supervisor_record){0};
}

bool supervisor_record_find(const char *directory, uint32_t job, struct supervisor_record *found)
{
	char path[PATH_MAX];
	int record = -1;

	*found = (struct supervisor_record){0};
	if (job_files_path(directory, PREFIX, job, path) == 0)
		record = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (record >= 0) {
		supervisor_record_read(record, found);
		(void)close(record);
	}
	return found->process.number > 0;
}

int supervisor_record_write(int record, const struct supervisor_record *written)
{
	char line[RECORD_LINE_MAX];
	char boot[BOOT_MAX];

	read_boot(boot);
	int length = snprintf(line, sizeof(line), "%d %" PRIu64 " %s %s\n", (int)written->process.number,
			      written->process.began, boot, written->file);

	if (ftruncate(record, 0) != 0)
		return -1;
	return pwrite(record, line, (size_t)length, 0) == length ? 0 : -1;
}

void supervisor_record_remove(const char *directory, uint32_t job)
{
	char path[PATH_MAX];

	if (job_files_path(directory, PREFIX, job, path) == 0)
		(void)unlink(path);
}

void supervisor_record_list(const char *directory, void (*each)(uint32_t job, void *data), void *data)
{
	DIR *listed = opendir(directory);
	const struct dirent *entry = NULL;

	while (listed != NULL && (entry = readdir(listed)) != NULL) {
		uint32_t job = 0;

		if (job_files_is_of(entry->d_name, PREFIX, &job) && strchr(entry->d_name, '.') == NULL)
			each(job, data);
	}
	if (listed != NULL)
		(void)closedir(listed);
}
