/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c - processes by number and start time: see process.h. */
#include "process.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAT_MAX 1024U
/* Fields of /proc/PID/stat after the name, counted from 1. */
#define STATE_FIELD 1U
#define FLAGS_FIELD 7U
#define BEGAN_FIELD 20U
/* The kernel's PF_EXITING. */
#define EXITING 4UL
/* The kernel may delay the end of a process, mostly by freeing its memory. */
#define END_MILLISECONDS 20000

const char *process_read(const char *text, struct process *process)
{
	char *end = NULL;
	long number = strtol(text, &end, 10);

	if (number <= 0 || number > INT_MAX || *end != ' ')
		return NULL;
	process->number = (pid_t)number;
	process->began = strtoull(end + 1, &end, 10);
	return process->began > 0 ? end : NULL;
}

struct fields {
	char state;
	unsigned long flags;
	uint64_t began;
};

static int read_fields(int directory, struct fields *fields)
{
	char text[STAT_MAX];
	char *rest = NULL;
	int file = openat(directory, "stat", O_RDONLY | O_CLOEXEC);

	*fields = (struct fields){0};
	if (file < 0)
		return -1;
	ssize_t got = read(file, text, sizeof(text) - 1);

	(void)close(file);
	if (got <= 0)
		return -1;
	text[got] = '\0';
	/* The name, in parentheses, may contain any character. */
	char *behind = strrchr(text, ')');
	const char *field = behind != NULL ? strtok_r(behind + 1, " ", &rest) : NULL;

	for (unsigned i = 1; field != NULL; i++, field = strtok_r(NULL, " ", &rest)) {
		if (i == STATE_FIELD)
			fields->state = field[0];
		else if (i == FLAGS_FIELD)
			fields->flags = strtoul(field, NULL, 10);
		else if (i == BEGAN_FIELD)
			fields->began = strtoull(field, NULL, 10);
	}
	return fields->began > 0 ? 0 : -1;
}

uint64_t process_began(int directory)
{
	struct fields fields;

	if (read_fields(directory, &fields) != 0 || fields.state == 'Z' || fields.state == 'X')
		return 0;
	return fields.began;
}

bool process_is_ending(int directory)
{
	struct fields fields;

	return read_fields(directory, &fields) != 0 || (fields.flags & EXITING) != 0;
}

int process_open(const struct process *process)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)process->number);
	int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (directory >= 0 && process_began(directory) != process->began) {
		(void)close(directory);
		return -1;
	}
	return directory;
}

int process_end(const struct process *process)
{
	int handle = (int)syscall(SYS_pidfd_open, process->number, 0U);
	int directory = process_open(process);
	struct pollfd ended = {.fd = handle, .events = POLLIN};
	int result = 0;

	/* The process existed after the handle was opened, so the handle belongs to it. */
	if (directory >= 0 && handle < 0)
		result = -1;
	else if (directory >= 0) {
		(void)syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0U);
		result = poll(&ended, 1, END_MILLISECONDS) == 1 ? 0 : -1;
	}
	if (directory >= 0)
		(void)close(directory);
	if (handle >= 0)
		(void)close(handle);
	return result;
}
