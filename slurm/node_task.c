/* SPDX-License-Identifier: BSD-3-Clause */
/* node_task.c - moves a task into a container: see node_task.h. */
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pmix_relay.h"

/*
 * The namespaces of a node, and last the user namespace in which the task has its user's own
 * number. The first gives the rights over all others, and the last takes them away. The working
 * directory and the root change with "mnt".
 */
static const char *const spaces[] = {"user", "pid", "net", "uts", "ipc", "mnt", "user"};

enum { USER, PID, NET, IDENTITY = 6, SPACES };

/* Descriptors after standard error that the process outside the node keeps open. */
enum { NODE = STDERR_FILENO + 1, CHANNEL, KEPT_NO_MORE };

/* Open the directory in /proc of a process that the supervisor names by its own numbers. */
static int open_process(int supervisor, const struct process *process)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "root/proc/%d", (int)process->number);
	int directory = openat(supervisor, path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (directory >= 0 && process_began(directory) != process->began) {
		(void)close(directory);
		return -1;
	}
	return directory;
}

/*
 * Whether this process is already in the namespace. A process cannot enter its own user namespace.
 */
static bool is_own(const char *space, int opened)
{
	char path[64];
	struct stat own;
	struct stat other;

	(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", space);
	return stat(path, &own) == 0 && fstat(opened, &other) == 0 && own.st_ino == other.st_ino &&
	       own.st_dev == other.st_dev;
}

/*
 * Open a namespace of a process. Returns the descriptor, -1 with errno, or -2 if this process is
 * already in it.
 */
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

/* Open all namespaces before the first is entered, because they cannot be seen from inside. */
static int open_spaces(int node, int identity, int opened[SPACES])
{
	int result = 0;

	for (size_t i = 0; i < SPACES; i++)
		opened[i] = i == IDENTITY && identity < 0
				    ? -2
				    : open_space(i == IDENTITY ? identity : node, spaces[i]);
	for (size_t i = 0; i < SPACES; i++) {
		if (opened[i] == -1)
			result = -1;
	}
	return result;
}

/* Enter the namespaces from `first` up to, but without, `end`. */
static int enter_spaces(const int opened[SPACES], size_t first, size_t end)
{
	for (size_t i = first; i < end; i++) {
		if (opened[i] >= 0 && setns(opened[i], 0) != 0)
			return -1;
	}
	return 0;
}

static void close_spaces(const int opened[SPACES])
{
	for (size_t i = 0; i < SPACES; i++) {
		if (opened[i] >= 0)
			(void)close(opened[i]);
	}
}

/*
 * Whether the node of a killed task is ending too. All processes of a node are killed at once, but
 * the kernel may finish the task first, so this waits a moment.
 */
static bool ends_too(int node)
{
	static const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};

	for (int polls = 0; polls < 50; polls++) {
		if (process_is_ending(node))
			return true;
		(void)nanosleep(&pause, NULL);
	}
	return false;
}

/*
 * Tell the process outside that the task now ends with it, and pass it the listening socket, if
 * there is one. Returns 0 after the answer.
 */
static int greet(int channel, int listener)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} more = {0};
	char word = 'a';
	struct iovec content = {.iov_base = &word, .iov_len = 1};
	struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1};

	if (listener >= 0) {
		message.msg_control = more.bytes;
		message.msg_controllen = sizeof(more.bytes);
		more.head.cmsg_level = SOL_SOCKET;
		more.head.cmsg_type = SCM_RIGHTS;
		more.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&more.head), &listener, sizeof(int));
	}
	return sendmsg(channel, &message, MSG_NOSIGNAL) == 1 && recv(channel, &word, 1, 0) == 1 ? 0 : -1;
}

/* The other end of greet(). Returns the listening socket, or -1. */
static int hear(int channel)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} more = {0};
	char word = 0;
	struct iovec content = {.iov_base = &word, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &content,
		.msg_iovlen = 1,
		.msg_control = more.bytes,
		.msg_controllen = CMSG_LEN(
			sizeof(int)), /* room for one: a second descriptor would fit into the padding */
	};
	int listener = -1;

	if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	if (message.msg_controllen >= sizeof(more.head) && more.head.cmsg_type == SCM_RIGHTS)
		memcpy(&listener, CMSG_DATA(&more.head), sizeof(int));
	(void)send(channel, &word, 1, MSG_NOSIGNAL);
	return listener;
}

/*
 * Close what belongs to the task, because Slurm waits until these files are closed. Standard error
 * stays open for the message about the end.
 */
static void let_files_go(int node, int channel)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	int apart = fcntl(channel, F_DUPFD_CLOEXEC, KEPT_NO_MORE);

	(void)dup2(nothing, STDIN_FILENO);
	(void)dup2(nothing, STDOUT_FILENO);
	(void)dup2(node, NODE);
	(void)dup2(apart, CHANNEL);
	(void)close_range(KEPT_NO_MORE, ~0U, 0);
}

/*
 * Wait for the task, and end in the same way. Until then, the task can reach `port` in this
 * process's network.
 */
_Noreturn static void stand_for(pid_t task, int node, int channel, const char *name, uint16_t port)
{
	static const struct rlimit none = {0};
	int status = 0;
	pid_t ended = -1;

	let_files_go(node, channel);
	int end = (int)syscall(SYS_pidfd_open, task, 0U);
	int listener = hear(CHANNEL);

	(void)close(CHANNEL);
	if (listener >= 0 && end >= 0)
		pmix_relay_run(listener, port, end);
	do
		ended = waitpid(task, &status, 0);
	while (ended < 0 && errno == EINTR);
	if (ended == task && WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	if (ended != task || !WIFSIGNALED(status))
		_exit(EXIT_FAILURE);
	if (WTERMSIG(status) == SIGKILL && ends_too(NODE))
		(void)dprintf(STDERR_FILENO,
			      "vicinal: error: the node %s has ended, and its programs have ended with it\n",
			      name);
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)signal(WTERMSIG(status), SIG_DFL);
	(void)kill(getpid(), WTERMSIG(status));
	sigset_t all;

	(void)sigemptyset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	_exit(EXIT_FAILURE);
}

/* Enter the namespaces that only the task enters, and prepare it there. */
static int settle(const int opened[SPACES], const char *name, int channel, uint16_t *port, char *fault,
		  size_t length)
{
	char directory[PATH_MAX];
	int listener = -1;

	if (getcwd(directory, sizeof(directory)) == NULL)
		(void)snprintf(directory, sizeof(directory), "/");
	if (enter_spaces(opened, NET, SPACES) != 0) {
		(void)snprintf(fault, length, "the node %s cannot be entered: %s", name, strerror(errno));
		return -1;
	}
	if (chdir(directory) != 0) {
		(void)snprintf(fault, length,
			       "the node %s does not have the directory %s (%s): start the job in another "
			       "directory, or add this one to `mounts` in the cluster file",
			       name, directory, strerror(errno));
		return -1;
	}
	if (*port != 0 && (listener = pmix_relay_listen(port)) < 0) {
		(void)snprintf(fault, length, "no socket in the node %s for PMIx: %s", name, strerror(errno));
		return -1;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (greet(channel, listener) != 0) /* the other process ended before prctl() */
		_exit(EXIT_FAILURE);
	if (listener >= 0)
		(void)close(listener);
	return 0;
}

/* Continue as a child process, which is in the PID namespace and ends with this process. */
static int become_child(const int opened[SPACES], int node, const char *name, uint16_t *port, char *fault,
			size_t length)
{
	sigset_t all;
	sigset_t before;
	int channel[2];

	if (enter_spaces(opened, USER, NET) != 0) {
		(void)snprintf(fault, length, "the node %s cannot be entered: %s", name, strerror(errno));
		return -1;
	}
	/*
	 * Slurm signals a task and all its descendants, so also the child. Forwarding signals would
	 * deliver them twice.
	 */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	pid_t child = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) == 0 ? fork() : -1;

	if (child < 0) {
		(void)snprintf(fault, length, "no process in the node %s: %s", name, strerror(errno));
		return -1;
	}
	if (child > 0) {
		/* This process needs no rights over the node. */
		(void)enter_spaces(opened, IDENTITY, SPACES);
		stand_for(child, node, channel[0], name, *port);
	}
	(void)close(channel[0]);
	if (opened[NET] < 0) /* the task shares the server's network */
		*port = 0;
	int result = settle(opened, name, channel[1], port, fault, length);

	(void)close(channel[1]);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return result;
}

int node_task_enter(int supervisor, const struct node_list *list, uint16_t *port, char *fault, size_t length)
{
	const char *name = list->node.name;
	int opened[SPACES];
	int node = open_process(supervisor, &list->node.process);
	int identity = list->identity.number > 0 ? open_process(supervisor, &list->identity) : -1;
	int result = -1;

	if (node < 0 || (list->identity.number > 0 && identity < 0)) {
		(void)snprintf(fault, length, "the node %s has ended: start the job again", name);
		return -1;
	}
	if (open_spaces(node, identity, opened) == 0)
		result = become_child(opened, node, name, port, fault, length);
	else
		(void)snprintf(fault, length, "the node %s cannot be entered: %s", name, strerror(errno));
	close_spaces(opened);
	if (identity >= 0)
		(void)close(identity);
	(void)close(node);
	return result;
}
