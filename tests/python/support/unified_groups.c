/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unified_groups.c - a library preloaded into slurmd, and through it into slurmstepd: they read only version
 * 2 of a process's control groups. Slurm's plugin for version 2 ends if there are other groups, as on a
 * machine with both versions.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int open64(const char *path, int flags, ...);

static bool is_of_groups(const char *path)
{
	static const char end[] = "/cgroup";
	const char *last = strrchr(path, '/');

	return strncmp(path, "/proc/", strlen("/proc/")) == 0 && last != NULL && strcmp(last, end) == 0;
}

static int open_unified(const char *path)
{
	char text[8192];
	int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

	if (file < 0)
		return -1;
	ssize_t got = read(file, text, sizeof(text) - 1);

	(void)close(file);
	text[got > 0 ? got : 0] = '\0';
	/* It is the last line. */
	const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	int copy = memfd_create("cgroup", MFD_CLOEXEC);

	if (copy >= 0 && line != NULL) {
		line += *line == '\n';
		(void)!write(copy, line, strlen(line));
		(void)lseek(copy, 0, SEEK_SET);
	}
	return copy;
}

int open(const char *path, int flags, ...)
{
	va_list more;

	va_start(more, flags);
	unsigned mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, unsigned) : 0;

	va_end(more);
	return is_of_groups(path) ? open_unified(path)
				  : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list more;

	va_start(more, flags);
	unsigned mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, unsigned) : 0;

	va_end(more);
	return open(path, flags, mode);
}
