/* SPDX-License-Identifier: BSD-3-Clause */
/* supervisor.c - the supervisor of a job's nodes: see supervisor.h. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/sched.h>

#include "command.h"
#include "job_cgroup.h"
#include "supervisor_network.h"

/* Containers take a second. Commands in the file, or emulated virtual machines, take minutes. */
#define MAKE_SECONDS 900U
/* For a step that waits for another step, and for the time in which that step gives up. */
#define LOCK_SECONDS (MAKE_SECONDS + 60U)
#define END_SECONDS 30U
/* Between two questions whether the job still runs. */
#define ASK_SECONDS 5
/* The last line of its output, when the nodes are ready. */
#define READY "ready"
/* For state and sockets, in addition to the region. */
#define STATE_BYTES (UINT64_C(256) << 20)
#define TEXT_MAX (PATH_MAX + 256)
#define REASON_MAX 1024U
#define SECRET_MAX 128U

/* Only root may write to the directory and to what is in it. */
static int own_directory(const char *directory)
{
	struct stat status;

	if (mkdir(directory, S_IRWXU) == 0)
		(void)chmod(directory, S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
	if (lstat(directory, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != 0 ||
	    (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return -1;
	return 0;
}

static int own_mounts(const struct supervisor_order *order)
{
	char options[128];

	(void)snprintf(options, sizeof(options), "mode=700,uid=%u,gid=%u,size=%" PRIu64,
		       (unsigned)order->user, (unsigned)order->group, order->most + STATE_BYTES);
	return mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0 ||
			       mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0 ||
			       mount("tmpfs", order->directory, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0
		       ? -1
		       : 0;
}

/*
 * Runs as the first process of its PID namespace, still as root. Nothing from the user has been
 * read yet.
 */
_Noreturn static void become_supervisor(const struct supervisor_order *order, int go, int output, int channel)
{
	static const char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char home[TEXT_MAX];
	char state[TEXT_MAX];
	char secret[SECRET_MAX];
	char slurm_conf[TEXT_MAX];
	const char *variables[] = {path, "LC_ALL=C.UTF-8", home, state, secret, NULL, NULL};
	const char *configuration = getenv("SLURM_CONF"); /* from slurmstepd's environment, not the user's */
	sigset_t none;
	char word = 0;
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)sigemptyset(&none);
	for (int number = 1; number < NSIG; number++)
		(void)signal(number, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (read(go, &word, 1) !=
	    1) /* the process that started us was killed before our record was written */
		_exit(1);
	(void)setsid();
	(void)dup2(nothing, STDIN_FILENO);
	(void)dup2(output, STDOUT_FILENO);
	(void)dup2(output, STDERR_FILENO);
	if (channel >= 0) {
		(void)dup2(channel, SUPERVISOR_CHANNEL);
		(void)fcntl(SUPERVISOR_CHANNEL, F_SETFD, 0);
	}
	(void)close_range(channel >= 0 ? SUPERVISOR_CHANNEL + 1 : STDERR_FILENO + 1, ~0U, 0);
	command_oom_score("0"); /* the daemons' value is not for the user */
	(void)snprintf(home, sizeof(home), "HOME=%s", order->home);
	(void)snprintf(state, sizeof(state), "XDG_STATE_HOME=%s", order->directory);
	/* Other users can see a process's arguments, but not its variables. */
	(void)snprintf(secret, sizeof(secret), "VICINAL_JOB_SECRET=%s", order->secret);
	if (configuration != NULL &&
	    (size_t)snprintf(slurm_conf, sizeof(slurm_conf), "SLURM_CONF=%s", configuration) < TEXT_MAX)
		variables[5] = slurm_conf;
	if (own_mounts(order) != 0 || chdir("/") != 0 ||
	    (order->join != NULL && supervisor_network_hold(SUPERVISOR_CHANNEL) != 0) ||
	    syscall(SYS_setgroups, order->groups_count, order->groups) != 0 ||
	    syscall(SYS_setresgid, order->group, order->group, order->group) != 0 ||
	    syscall(SYS_setresuid, order->user, order->user, order->user) != 0) {
		(void)dprintf(STDERR_FILENO, "the supervisor of the job's nodes could not be started: %s\n",
			      strerror(errno));
		_exit(1);
	}
	(void)umask(S_IRWXG | S_IRWXO);
	command_become(order->arguments, variables);
}

/* The connections from a supervisor. */
struct ends {
	int output;  /* its output */
	int channel; /* its requests; -1 if there are none, or no more */
	int between; /* network between the hosts' and the nodes', once received, if nodes of several hosts
			are to be connected */
	bool joined;
	const struct process *supervisor;
};

/*
 * Permit the user to open the job's VFs. A VM with a VF has all of its memory locked,
 * so the limit is raised.
 */
static int grant_to_vms(const struct supervisor_order *order, const struct ends *ends, char *said,
			size_t length)
{
	static const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

	if (order->vfs == NULL ||
	    node_vfs_grant_to_vms(order->vfs, order->settings, order->job, order->user, said, length) != 0)
		return -1;
	int directory = process_open(ends->supervisor);

	if (directory >= 0) {
		/* If root may not raise the limit, QEMU reports whether the limit suffices. */
		(void)prlimit(ends->supervisor->number, RLIMIT_MEMLOCK, &all, NULL);
		(void)close(directory);
	}
	return 0;
}

/* Execute a request of the supervisor, which may name any network. Returns as below. */
static int serve(const struct supervisor_order *order, struct ends *ends,
		 const struct supervisor_asked *asked, char *said, size_t length)
{
	const int network = asked->network;

	(void)snprintf(said, length,
		       "vicinal: the supervisor of the nodes requests what the job does not have");
	if (asked->request == SUPERVISOR_GRANT_TO_VMS)
		return grant_to_vms(order, ends, said, length);
	if (!supervisor_network_is_of(network, ends->between, order->user)) {
		(void)snprintf(said, length,
			       "vicinal: the network of the nodes was not created by the job's user");
		return -1;
	}
	if (asked->request == SUPERVISOR_GRANT && order->vfs != NULL)
		return node_vfs_grant(order->vfs, asked->vf, network, said, length);
	if (asked->request != SUPERVISOR_JOIN || order->join == NULL || ends->joined)
		return -1;
	ends->joined = true;
	return order->join(order, ends->between, network, said, length);
}

/*
 * Receive a request from the supervisor. If nodes are to be connected, the first one is sent before
 * any of the user's code runs; the user controls all others. Returns 0, or -1 with the reason in
 * `said`.
 */
static int take_request(const struct supervisor_order *order, struct ends *ends, char *said, size_t length)
{
	char reason[REASON_MAX] = "";
	const struct supervisor_asked asked = supervisor_network_receive(ends->channel);
	int result = 0;

	if (asked.network >= 0 && order->join != NULL && ends->between < 0) {
		ends->between = asked.network;
		return 0;
	}
	/* If the supervisor has ended, its output gives the reason. */
	if (asked.request != SUPERVISOR_SILENT) {
		result = serve(order, ends, &asked, reason, sizeof(reason));
		if (asked.network >= 0)
			(void)close(asked.network);
		if (result == 0) {
			supervisor_network_answer(ends->channel);
			return 0;
		}
		(void)snprintf(said, length, "%s", reason);
	}
	(void)close(ends->channel);
	ends->channel = -1;
	return result;
}

static time_t seconds(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static bool is_ended(const struct supervisor_order *order, char *said, size_t length)
{
	if (!order->is_ending(order->job))
		return false;
	(void)snprintf(said, length, "vicinal: the job ended while its nodes were created");
	return true;
}

/*
 * Whether to wait for nodes until the next question, at `*ask`. A user can stop the supervisor, and
 * commands in the file may take long. Slurm signals only tasks, of which there are none yet, and
 * waits for the step before it calls the epilog. So this asks whether the job is ending.
 */
static bool is_worth_waiting(const struct supervisor_order *order, time_t end, time_t *ask, char *said,
			     size_t length)
{
	if (seconds() >= end) {
		(void)snprintf(said, length, "vicinal: the job's nodes were not ready after %u minutes",
			       MAKE_SECONDS / 60);
		return false;
	}
	if (seconds() < *ask)
		return true;
	if (is_ended(order, said, length))
		return false;
	*ask = seconds() + ASK_SECONDS;
	return true;
}

/*
 * Read the supervisor's output to its end. Returns 0 if it ends with the line READY, or -1 with its
 * last line.
 */
static int listen_to(const struct supervisor_order *order, struct ends *ends, char *said, size_t length)
{
	time_t end = seconds() + (time_t)MAKE_SECONDS;
	time_t ask = seconds() + ASK_SECONDS;
	size_t kept = 0;

	for (;;) {
		char text[1024];
		struct pollfd ready[] = {{.fd = ends->output, .events = POLLIN},
					 {.fd = ends->channel, .events = POLLIN}};

		if (!is_worth_waiting(order, end, &ask, said, length))
			return -1;
		if (poll(ready, 2, ASK_SECONDS * 1000) <= 0)
			continue;
		if (ready[1].revents != 0 && take_request(order, ends, said, length) != 0)
			return -1;
		if (ready[0].revents == 0)
			continue;
		ssize_t got = read(ends->output, text, sizeof(text));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got; i++) {
			/* Only the last line is kept. */
			if (kept > 0 && said[kept - 1] == '\n')
				kept = 0;
			if (kept + 1 < length)
				said[kept++] = text[i];
		}
	}
	if (kept > 0 && said[kept - 1] == '\n')
		kept--;
	said[kept] = '\0';
	if (strcmp(said, READY) == 0) {
		said[0] = '\0';
		return 0;
	}
	if (kept == 0)
		(void)snprintf(said, length,
			       "vicinal: the program that creates the job's nodes was killed: check that the "
			       "job has memory for their region (--mem)");
	return -1;
}

/* Record a waiting supervisor, and let it continue. Returns as listen_to(). */
static int let_go(const struct supervisor_order *order, int record, struct supervisor_record *started, int go,
		  struct ends *ends, char *said, size_t length)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)started->process.number);
	int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (directory >= 0) {
		started->process.began = process_began(directory);
		(void)close(directory);
	}
	if (job_cgroup_enter(order->job, started->process.number, true, said, length) != 0)
		return -1;
	(void)snprintf(started->file, sizeof(started->file), "%s", order->file);
	if (started->process.began == 0 || supervisor_record_write(record, started) != 0 ||
	    write(go, "g", 1) != 1) {
		(void)snprintf(said, length,
			       "vicinal: the supervisor of the job's nodes cannot be recorded in %s: %s",
			       order->directory, strerror(errno));
		return -1;
	}
	return listen_to(order, ends, said, length);
}

static int make(const struct supervisor_order *order, int record, struct supervisor_record *started,
		char *said, size_t length)
{
	/*
	 * Its parent is slurmstepd's parent, because slurmstepd ends its own children at the end of
	 * the step.
	 */
	struct clone_args arguments = {.flags = CLONE_PARENT | CLONE_NEWPID | CLONE_NEWNS};
	int go[2];
	int output[2];
	int channel[2] = {-1, -1};
	const bool asks = order->join != NULL || order->vfs != NULL;
	int result = -1;

	if (pipe2(go, O_CLOEXEC) != 0)
		go[0] = go[1] = -1;
	if (pipe2(output, O_CLOEXEC) != 0)
		output[0] = output[1] = -1;
	if (asks && supervisor_network_channel(channel) != 0)
		channel[0] = channel[1] = -1;
	pid_t supervisor = -1;

	if (go[0] >= 0 && output[0] >= 0 && (!asks || channel[0] >= 0))
		supervisor = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (supervisor == 0) {
		(void)close(go[1]);
		become_supervisor(order, go[0], output[1], channel[1]);
	}
	if (supervisor < 0)
		(void)snprintf(said, length, "vicinal: no process for the job's nodes: %s", strerror(errno));
	(void)close(go[0]);
	(void)close(output[1]);
	if (channel[1] >= 0)
		(void)close(channel[1]);
	started->process = (struct process){.number = supervisor};
	struct ends ends = {
		.output = output[0], .channel = channel[0], .between = -1, .supervisor = &started->process};

	if (supervisor > 0)
		result = let_go(order, record, started, go[1], &ends, said, length);
	(void)close(go[1]);
	(void)close(output[0]);
	if (ends.channel >= 0)
		(void)close(ends.channel);
	if (ends.between >= 0)
		(void)close(ends.between);
	if (supervisor > 0 && result != 0 && started->process.began > 0)
		(void)process_end(&started->process);
	return result;
}

int supervisor_start(const struct supervisor_order *order, struct supervisor_record *started, char *said,
		     size_t length)
{
	const time_t began = seconds();
	int result = 0;

	if (own_directory(order->directory) != 0) {
		(void)snprintf(
			said, length,
			"vicinal: %s is not a directory that only root can write: run `vicinal slurm check`",
			order->directory);
		return -1;
	}
	int record = supervisor_record_open(order->directory, order->job, true, LOCK_SECONDS);

	if (record < 0) {
		(void)snprintf(said, length, "vicinal: the job's nodes cannot be recorded in %s: %s",
			       order->directory, strerror(errno));
		return -1;
	}
	supervisor_record_read(record, started);
	if (started->process.number == 0) {
		/*
		 * Another step failed while this one waited. If the job is ending, do not let each
		 * step try in turn.
		 */
		const bool ended = seconds() > began && is_ended(order, said, length);

		result = ended ? -1 : make(order, record, started, said, length);
		if (result != 0)
			supervisor_record_remove(order->directory, order->job);
	}
	(void)close(record);
	return result;
}

int supervisor_end(const char *directory, uint32_t job)
{
	struct supervisor_record found;
	int record = -1;

	/*
	 * A step that is creating nodes holds the lock, and releases it when the supervisor ends.
	 */
	for (unsigned second = 0; record < 0 && second < END_SECONDS; second++) {
		record = supervisor_record_open(directory, job, false, 1);
		if (record < 0 && errno != EWOULDBLOCK)
			return errno == ENOENT ? 0 : -1;
		if (supervisor_record_find(directory, job, &found) && process_end(&found.process) != 0)
			break;
	}
	if (record < 0)
		return -1;
	supervisor_record_read(record, &found);
	int result = found.process.number == 0 ? 0 : process_end(&found.process);

	if (result == 0)
		supervisor_record_remove(directory, job);
	(void)close(record);
	return result;
}
