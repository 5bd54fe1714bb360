/* SPDX-License-Identifier: BSD-3-Clause */
/* program.c - starts a program in a guest: see program.h. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "numbers.h"

#define PMI_VARIABLE "PMI_FD="
#define USER_VARIABLE "VICINAL_GUEST_USER="
/* The program's descriptor for PMI, whatever its number is here. */
#define PMI_PLACE 3

struct ends {
	int input[2];
	int output[2];
	int errors[2];
	int pmi[2];
	int fault[2]; /* closed by exec; carries errno if exec fails */
};

/*
 * The strings of a frame, which stay in the frame. NULL if no memory is left, or the last string
 * has no null byte.
 */
static char **words_of(const struct frame *frame)
{
	size_t count = 0;

	if (frame->length > 0 && frame->bytes[frame->length - 1] != '\0')
		return NULL;
	for (uint32_t i = 0; i < frame->length; i++)
		count += frame->bytes[i] == '\0';
	char **words = calloc(count + 1, sizeof(*words));
	char *next = frame->bytes;

	for (size_t i = 0; words != NULL && i < count; i++) {
		words[i] = next;
		next += strlen(next) + 1;
	}
	return words;
}

/* The value of a variable, or NULL. `name` includes the '='. */
static const char *find(char **variables, const char *name)
{
	for (; *variables != NULL; variables++) {
		if (strncmp(*variables, name, strlen(name)) == 0)
			return *variables + strlen(name);
	}
	return NULL;
}

static int open_ends(struct ends *ends, bool pmi)
{
	*ends = (struct ends){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	return pipe2(ends->input, O_CLOEXEC) != 0 || pipe2(ends->output, O_CLOEXEC) != 0 ||
			       pipe2(ends->errors, O_CLOEXEC) != 0 || pipe2(ends->fault, O_CLOEXEC) != 0 ||
			       (pmi && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->pmi) != 0)
		       ? -1
		       : 0;
}

_Noreturn static void become(const struct ends *ends, char **arguments, char **variables,
			     const char *directory)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)setsid();
	(void)dup2(ends->input[0], STDIN_FILENO);
	(void)dup2(ends->output[1], STDOUT_FILENO);
	(void)dup2(ends->errors[1], STDERR_FILENO);
	/*
	 * The following dup2() overwrites descriptors up to PMI_PLACE, which are not needed any
	 * more, so move this one above them.
	 */
	int fault = fcntl(ends->fault[1], F_DUPFD_CLOEXEC, PMI_PLACE + 1);

	if (ends->pmi[1] >= 0 && ends->pmi[1] != PMI_PLACE)
		(void)dup2(ends->pmi[1], PMI_PLACE);
	else if (ends->pmi[1] == PMI_PLACE)
		(void)fcntl(PMI_PLACE, F_SETFD, 0);
	if (chdir(directory) != 0) {
		const char *home = getenv("HOME");

		(void)!chdir(home != NULL ? home : "/");
	}
	const char *numbers = find(variables, USER_VARIABLE);

	environ = variables;
	if (numbers == NULL || numbers_take(numbers) == 0)
		(void)execvp(arguments[0], arguments);
	int reason = errno;

	(void)!write(fault, &reason, sizeof(reason));
	_exit(EXIT_FAILURE);
}

static void close_end(int end)
{
	if (end >= 0)
		(void)close(end);
}

/* Close the program's ends, and wait until the program was executed. Returns 0 or errno. */
static int wait_started(const struct ends *ends, pid_t child)
{
	int reason = child < 0 ? errno : 0;

	close_end(ends->input[0]);
	close_end(ends->output[1]);
	close_end(ends->errors[1]);
	close_end(ends->pmi[1]);
	close_end(ends->fault[1]);
	if (child > 0 && read(ends->fault[0], &reason, sizeof(reason)) != (ssize_t)sizeof(reason))
		reason = 0;
	close_end(ends->fault[0]);
	return reason;
}

int program_start(struct program *program, const struct frame *arguments, const struct frame *variables,
		  const struct frame *directory, char *fault, size_t length)
{
	char **words = words_of(arguments);
	char **settings = words_of(variables);
	struct ends ends;

	if (words == NULL || settings == NULL || words[0] == NULL ||
	    open_ends(&ends, find(settings, PMI_VARIABLE) != NULL) != 0) {
		(void)snprintf(fault, length, "it cannot be prepared: %s", strerror(errno));
		free(words);
		free(settings);
		return -1;
	}
	pid_t child = fork();

	if (child == 0)
		become(&ends, words, settings, directory->bytes);
	int reason = wait_started(&ends, child);

	*program = (struct program){child, ends.input[1], ends.output[0], ends.errors[0], ends.pmi[0]};
	if (reason != 0)
		(void)snprintf(fault, length, "%s: %s", words[0], strerror(reason));
	free(words);
	free(settings);
	return reason == 0 ? 0 : -1;
}
