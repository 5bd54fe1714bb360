/* SPDX-License-Identifier: BSD-3-Clause */
/* node_task.c - a task gets into a container: see node_task.h. */
#include "node_task.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The rights to all others come with the first; working directory and root change with the last. */
static const char *const spaces[] = {"user", "uts", "ipc", "net", "pid", "mnt"};

#define SPACES (sizeof(spaces) / sizeof(spaces[0]))

/* A process as the keeper numbers it, as a directory of its /proc. */
static int open_process(int keeper, const struct process *process)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "root/proc/%d", (int)process->number);
	int directory = openat(keeper, path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (directory >= 0 && process_began(directory) != process->began) {
		(void)close(directory);
		return -1;
	}
	return directory;
}

/* Whether this process is in that namespace: there is no way in from inside. */
static bool is_own(const char *space, int opened)
{
	char path[64];
	struct stat own;
	struct stat other;

	(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", space);
	return stat(path, &own) == 0 && fstat(opened, &other) == 0 && own.st_ino == other.st_ino &&
	       own.st_dev == other.st_dev;
}

/* Open a namespace of a process. Returns the descriptor, -1 with errno, or -2 where it is this one's too. */
static int open_space(int process, const char *space)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "ns/%s", space);
	int opened = openat(process, path, O_RDONLY | O_CLOEXEC);

	if (opened >= 0 && is_own(space, opened)) {
		(void)close(opened);
		return -2;
	}
	return opened;
}

static int enter_spaces(int node, int identity)
{
	int opened[SPACES + 1];
	int result = 0;

	/* All before the first is entered: from inside nothing of this is seen. */
	for (size_t i = 0; i < SPACES; i++)
		opened[i] = open_space(node, spaces[i]);
	opened[SPACES] = identity >= 0 ? open_space(identity, "user") : -2;
	for (size_t i = 0; i <= SPACES; i++) {
		if (result == 0 && opened[i] != -2 && (opened[i] == -1 || setns(opened[i], 0) != 0))
			result = -1;
	}
	for (size_t i = 0; i <= SPACES; i++) {
		if (opened[i] >= 0)
			(void)close(opened[i]);
	}
	return result;
}

/* Whether the node of a task that was killed ends with it. All of a node is killed at once, and the kernel
 * may be done with the task first: so it is given a moment. */
static bool ends_too(int node)
{
	static const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};

	for (int looks = 0; looks < 50; looks++) {
		if (process_is_ending(node))
			return true;
		(void)nanosleep(&pause, NULL);
	}
	return false;
}

/* Ends as the task did, when that does. */
_Noreturn static void wait_for(pid_t task, int node, const char *name)
{
	static const struct rlimit none = {0};
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	int status = 0;
	pid_t ended = -1;

	/* What the task has open ends with the task: Slurm waits for that. Standard error is for what is said
	 * below. */
	(void)dup2(nothing, STDIN_FILENO);
	(void)dup2(nothing, STDOUT_FILENO);
	(void)dup2(node, STDERR_FILENO + 1);
	(void)close_range(STDERR_FILENO + 2, ~0U, 0);
	do
		ended = waitpid(task, &status, 0);
	while (ended < 0 && errno == EINTR);
	if (ended == task && WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	if (ended != task || !WIFSIGNALED(status))
		_exit(EXIT_FAILURE);
	if (WTERMSIG(status) == SIGKILL && ends_too(STDERR_FILENO + 1))
		(void)dprintf(STDERR_FILENO,
			      "vicinal: error: the node %s has ended, and with it what ran in it\n", name);
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)signal(WTERMSIG(status), SIG_DFL);
	(void)kill(getpid(), WTERMSIG(status));
	sigset_t all;

	(void)sigemptyset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	_exit(EXIT_FAILURE);
}

/* Go on as a child, which is in the PID namespace and ends with this process. */
static int become_child(int node, const char *name)
{
	sigset_t all;
	sigset_t before;
	int alive[2];
	char word = 0;

	if (pipe2(alive, O_CLOEXEC) != 0)
		return -1;
	/* Slurm signals a task with all that it started, and so its child too: to hand signals on would
	 * double them. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	pid_t child = fork();

	if (child > 0) {
		(void)!write(alive[1], "a", 1);
		wait_for(child, node, name);
	}
	int reason = errno;

	(void)close(alive[1]);
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(alive[0], &word, 1) != 1) /* it has ended before this was asked for */
			_exit(EXIT_FAILURE);
	}
	(void)close(alive[0]);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	errno = reason;
	return child == 0 ? 0 : -1;
}

int node_task_enter(int keeper, const struct node_list *list, char *fault, size_t length)
{
	char place[PATH_MAX];
	const char *name = list->node.name;
	int node = open_process(keeper, &list->node.process);
	int identity = list->identity.number > 0 ? open_process(keeper, &list->identity) : -1;

	if (node < 0 || (list->identity.number > 0 && identity < 0)) {
		(void)snprintf(fault, length, "the node %s has ended: start the job again", name);
		return -1;
	}
	if (getcwd(place, sizeof(place)) == NULL)
		(void)snprintf(place, sizeof(place), "/");
	if (enter_spaces(node, identity) != 0) {
		(void)snprintf(fault, length, "the node %s cannot be entered: %s", name, strerror(errno));
		return -1;
	}
	if (chdir(place) != 0) {
		(void)snprintf(
			fault, length,
			"the node %s does not have the directory %s (%s): begin the job in another, or show "
			"this one by `mounts` in the cluster's file",
			name, place, strerror(errno));
		return -1;
	}
	if (identity >= 0)
		(void)close(identity);
	if (become_child(node, name) != 0) {
		(void)snprintf(fault, length, "no process in the node %s: %s", name, strerror(errno));
		return -1;
	}
	(void)close(node);
	return 0;
}
