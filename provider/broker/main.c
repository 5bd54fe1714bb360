/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - vicinal-region-broker: hands out regions over Unix sockets.
 *
 *  vicinal-region-broker MEMBERS IDLE RULES SOCKET LISTENER MEMORY [SOCKET LISTENER MEMORY]...
 *
 * `vicinal region serve` runs it. MEMBERS is each region's number of slots, IDLE the seconds after
 * which a region without members ends (0: never), RULES as in rules.h. SOCKET is the path of a
 * socket, LISTENER and MEMORY the descriptors of the listening socket and of the region's memory.
 *
 * There are two processes, which both hold all descriptors. The supervisor waits for the end of the
 * server, which answers connections, and starts it again if the server was killed. If the supervisor
 * is killed, the server becomes the supervisor. So members that come later get the same memory,
 * unless both are killed at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker/serve.h"

/* A server that lived for less than this is started again after a pause. */
#define SHORT_LIFE UINT64_C(1000000000)

static struct broker broker;

static uint64_t number_of(const char *text, uint64_t most)
{
	char *end = NULL;

	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || *text == '-' || number > most) {
		(void)fprintf(stderr,
			      "vicinal: error: %s is no number for the broker: use 'vicinal region serve'\n",
			      text);
		exit(EXIT_FAILURE);
	}
	return number;
}

static bool read_served(struct served *served, char **words)
{
	struct stat status;

	*served = (struct served){
		.path = words[0],
		.listener = (int)number_of(words[1], INT32_MAX),
		.memory = (int)number_of(words[2], INT32_MAX),
	};
	if (fcntl(served->listener, F_SETFD, FD_CLOEXEC) != 0 ||
	    fcntl(served->memory, F_SETFD, FD_CLOEXEC) != 0 ||
	    fcntl(served->listener, F_SETFL, O_NONBLOCK) != 0 || stat(served->path, &status) != 0)
		return false;
	served->device = status.st_dev;
	served->inode = status.st_ino;
	return true;
}

static bool read_words(int count, char **words)
{
	if (count < 7 || (count - 4) % 3 != 0 || (uint32_t)(count - 4) / 3 > SERVED_MAX)
		return false;
	broker.members = (uint32_t)number_of(words[1], UINT16_MAX);
	broker.idle = number_of(words[2], UINT32_MAX) * UINT64_C(1000000000);
	if (!rules_read(&broker.rules, words[3]))
		return false;
	for (int i = 4; i < count; i += 3)
		if (!read_served(&broker.served[broker.count++], words + i))
			return false;
	struct use *uses = mmap(NULL, broker.count * sizeof(struct use), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (uses == MAP_FAILED)
		return false;
	for (uint32_t i = 0; i < broker.count; i++)
		broker.served[i].use = &uses[i];
	return true;
}

/* Another broker may have put its socket in the place of ours. */
static void remove_socket(const struct served *served)
{
	struct stat status;

	if (stat(served->path, &status) == 0 && status.st_dev == served->device &&
	    status.st_ino == served->inode)
		(void)unlink(served->path);
}

static void forget(struct served *served)
{
	if (served->listener < 0)
		return;
	remove_socket(served);
	(void)close(served->listener);
	(void)close(served->memory);
	served->listener = -1;
	served->memory = -1;
}

/* Forget the regions that ended. Returns how many are left. */
static uint32_t forget_ended(void)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < broker.count; i++) {
		struct served *served = &broker.served[i];
		if (served->listener >= 0 && atomic_load(&served->use->ended)) {
			(void)fprintf(stderr, "vicinal: socket:%s ended: it had no member for %llu s\n",
				      served->path, (unsigned long long)(broker.idle / 1000000000));
			forget(served);
		}
		left += served->listener >= 0;
	}
	return left;
}

_Noreturn static void end_all(void)
{
	for (uint32_t i = 0; i < broker.count; i++)
		forget(&broker.served[i]);
	exit(EXIT_SUCCESS);
}

static bool is_end(int number)
{
	return number == SIGTERM || number == SIGINT || number == SIGHUP;
}

/* The kernel keeps a blocked signal even if it is ignored, as by nohup: do not block such a signal. */
static void add_unless_ignored(sigset_t *set, int number)
{
	struct sigaction action;

	if (sigaction(number, NULL, &action) != 0 || action.sa_handler != SIG_IGN)
		(void)sigaddset(set, number);
}

static sigset_t waited_for(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	add_unless_ignored(&set, SIGTERM);
	add_unless_ignored(&set, SIGINT);
	add_unless_ignored(&set, SIGHUP);
	(void)sigaddset(&set, SIGCHLD);
	return set;
}

/* Wait until the server ends. A signal that ends the broker ends the server. Returns its status. */
static int await_end(pid_t server)
{
	const sigset_t set = waited_for();
	int status = 0;

	for (;;) {
		pid_t ended = waitpid(server, &status, WNOHANG);
		if (ended == server)
			return status;
		int number = sigwaitinfo(&set, NULL);
		if (!is_end(number))
			continue;
		(void)kill(server, SIGKILL);
		(void)waitpid(server, NULL, 0);
		end_all();
	}
}

/* Before the next try, if no server can be started, or none lives. */
static void take_breath(void)
{
	const struct timespec pause = {.tv_nsec = 200000000};
	sigset_t set = waited_for();

	(void)sigdelset(&set, SIGCHLD);
	if (is_end(sigtimedwait(&set, NULL, &pause)))
		end_all();
}

/* Start servers, one after the other, for as long as there are regions. Returns only in a server. */
static int supervise(void)
{
	const sigset_t set = waited_for();

	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	for (;;) {
		int alive[2]; /* the supervisor holds the end for writing as long as it lives */
		uint64_t begun = broker_now();
		if (pipe2(alive, O_CLOEXEC) != 0) {
			take_breath();
			continue;
		}
		pid_t server = fork();
		if (server == 0) {
			(void)close(alive[1]);
			(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
			return alive[0];
		}
		(void)close(alive[0]);
		int status = server > 0 ? await_end(server) : 0;
		(void)close(alive[1]);
		if (server > 0 && WIFSIGNALED(status) && is_end(WTERMSIG(status)))
			end_all();
		if (forget_ended() == 0)
			exit(EXIT_SUCCESS);
		if (server > 0 && WIFSIGNALED(status))
			(void)fprintf(
				stderr,
				"vicinal: warning: signal %d ended the broker's server, and it was started "
				"again: members keep their region\n",
				WTERMSIG(status));
		if ((server < 0 || WIFSIGNALED(status)) && broker_now() - begun < SHORT_LIFE)
			take_breath();
	}
}

int main(int count, char **words)
{
	struct rlimit files;

	if (!read_words(count, words)) {
		(void)fprintf(stderr,
			      "vicinal: error: these are no arguments of the broker: use 'vicinal region "
			      "serve'\n");
		return EXIT_FAILURE;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	(void)signal(SIGCHLD, SIG_DFL); /* an ignored one would leave no status to wait for */
	/* A closed terminal or pipe must not end the broker while it prints. */
	(void)signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int supervisor = supervise();
		if (serve(&broker, supervisor) == SERVE_REGION_ENDED)
			return EXIT_SUCCESS;
		(void)close(supervisor);
		(void)fprintf(stderr,
			      "vicinal: warning: the broker's supervisor was ended, and its server goes "
			      "on: members keep their region\n");
	}
}
