/* SPDX-License-Identifier: BSD-3-Clause */
/* command.c - running a program: see command.h. */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job_cgroup.h"

#define SECONDS_MAX 60U
/* Maximum length of the kept output. The rest is read and dropped. */
#define SAID_MAX 4096U
#define VARIABLE_MAX 4200

/*
 * Only variables that the administrator set: slurmd passes SLURM_CONF on to slurmstepd and to the
 * epilog.
 */
static const char *const *own_environment(void)
{
	static char configuration[VARIABLE_MAX];
	static const char *variables[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
					  "LC_ALL=C.UTF-8", "COLUMNS=1000", NULL, NULL};
	const char *path = getenv("SLURM_CONF");

	if (path != NULL &&
	    snprintf(configuration, sizeof(configuration), "SLURM_CONF=%s", path) < VARIABLE_MAX)
		variables[3] = configuration;
	return variables;
}

/* execve() changes none of the strings. Its declaration predates const. */
static char *const *as_declared(const char *const words[])
{
	return (char *const *)(uintptr_t)words;
}

_Noreturn void command_become(const char *const arguments[], const char *const variables[])
{
	(void)execve(arguments[0], as_declared(arguments), as_declared(variables));
	(void)dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], strerror(errno));
	_exit(127);
}

void command_oom_score(const char *score)
{
	int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (file >= 0) {
		(void)!write(file, score, strlen(score));
		(void)close(file);
	}
}

static void join(uint32_t job)
{
	char fault[512];

	command_oom_score("1000");
	if (job_cgroup_enter(job, getpid(), false, fault, sizeof(fault)) != 0) {
		(void)dprintf(STDERR_FILENO, "%s\n", fault);
		_exit(1);
	}
}

_Noreturn static void become(const char *const arguments[], const char *const variables[], int output,
			     const struct command_of_job *of)
{
	sigset_t none;
	int nothing = open("/dev/null", O_RDWR);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGALRM, SIG_DFL);
	(void)dup2(nothing, STDIN_FILENO);
	(void)dup2(nothing, STDOUT_FILENO);
	(void)dup2(output, STDERR_FILENO);
	/* The program must not inherit the daemon's descriptors. */
	(void)close_range(STDERR_FILENO + 1, ~0U, 0);
	(void)chdir("/");
	(void)alarm(SECONDS_MAX);
	if (of != NULL)
		join(of->job);
	command_become(arguments, variables);
}

/* Read to the end, and keep the last line of the first SAID_MAX bytes. */
static void listen_to(int input, char *said, size_t length)
{
	char text[SAID_MAX + 1];
	char rest[SAID_MAX];
	size_t kept = 0;
	ssize_t got = 0;

	while ((got = read(input, kept < SAID_MAX ? text + kept : rest,
			   kept < SAID_MAX ? SAID_MAX - kept : sizeof(rest))) > 0 ||
	       (got < 0 && errno == EINTR)) {
		if (got > 0 && kept < SAID_MAX)
			kept += (size_t)got;
	}
	while (kept > 0 && text[kept - 1] == '\n')
		kept--;
	text[kept] = '\0';
	const char *line = strrchr(text, '\n');

	(void)snprintf(said, length, "%s", line != NULL ? line + 1 : text);
}

static int run(const char *const arguments[], struct command_of_job *of, char *said, size_t length)
{
	const char *const *variables = own_environment();
	int ends[2];
	int status = 0;
	pid_t ended = -1;

	said[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) != 0) {
		(void)snprintf(said, length, "no pipe: %s", strerror(errno));
		return -1;
	}
	pid_t child = fork();

	if (child == 0)
		become(arguments, variables, ends[1], of);
	(void)close(ends[1]);
	if (child > 0) {
		listen_to(ends[0], said, length);
		do
			ended = waitpid(child, &status, 0);
		while (ended < 0 && errno == EINTR);
	}
	(void)close(ends[0]);
	if (of != NULL) {
		of->process = child;
		of->was_killed = ended == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	}
	if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (said[0] == '\0')
		(void)snprintf(said, length, "%s ended without a message, status %#x", arguments[0],
			       (unsigned)status);
	return -1;
}

int command_run(const char *const arguments[], char *said, size_t length)
{
	return run(arguments, NULL, said, length);
}

int command_run_of_job(const char *const arguments[], struct command_of_job *of, char *said, size_t length)
{
	return run(arguments, of, said, length);
}
