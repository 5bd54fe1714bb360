/* SPDX-License-Identifier: BSD-3-Clause */
/* Networks over the hosts of a job under Slurm: which networks that a supervisor reports root accepts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slurm/supervisor_network.h"

#define USER 1U
#define OTHER 2U
#define OWN_NETWORK "/proc/self/ns/net"

static int ends[2];

static int open_channel(void **state)
{
	(void)state;
	return supervisor_network_channel(ends);
}

static int close_channel(void **state)
{
	(void)state;
	(void)close(ends[0]);
	return close(ends[1]);
}

/* Sends as src/vicinal/integrations/slurm/joining.py does, except for the number of files. */
static int send_files(const char *words, size_t length, const int *files, size_t count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} room = {.bytes = {0}};
	char copy[8];
	struct iovec text = {.iov_base = copy, .iov_len = length};
	struct msghdr message = {.msg_iov = &text,
				 .msg_iovlen = 1,
				 .msg_control = room.bytes,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	memcpy(copy, words, length);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(part), files, count * sizeof(int));
	return sendmsg(ends[1], &message, 0) == (ssize_t)length ? 0 : -1;
}

static int send_words(int file, const char *words, size_t length)
{
	return send_files(words, length, &file, 1);
}

static int send_file(int file)
{
	return send_words(file, "n", 1);
}

/* A network of a user, which is gone when the descriptor is closed; -1 where the user may not create one. */
static int network_of(uid_t user)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (syscall(SYS_setresuid, user, user, user) != 0 ||
		    unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
			_exit(1);
		_exit(send_file(open(OWN_NETWORK, O_RDONLY)) == 0 ? 0 : 1);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		return -1;
	return supervisor_network_receive(ends[0]).network;
}

static void test_only_a_network_of_the_user_s_is_believed(void **state)
{
	int network = geteuid() == 0 ? network_of(USER) : -1;
	int between = geteuid() == 0 ? network_of(OTHER) : -1;

	(void)state;
	if (network < 0 || between < 0) {
		print_message("skipped: needs root, users who may make networks, and one thread\n");
		skip();
	}
	assert_true(supervisor_network_is_of(network, between, USER));
	assert_false(supervisor_network_is_of(network, between, OTHER));
	assert_false(supervisor_network_is_of(between, network, USER));
	assert_false(supervisor_network_is_of(network, network, USER));
	/* Root owns all networks. */
	assert_true(supervisor_network_is_of(network, between, 0));
	(void)close(network);
	(void)close(between);
}

static void test_the_host_s_network_and_what_is_none_is_not_believed(void **state)
{
	static const char *const files[] = {OWN_NETWORK, "/proc/self/ns/user", "/proc/self/ns/mnt",
					    "/etc/passwd", "/"};
	int between = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int file = open(files[i], O_RDONLY | O_CLOEXEC);

		assert_true(file >= 0);
		assert_false(supervisor_network_is_of(file, between, geteuid()));
		assert_false(supervisor_network_is_of(file, between, USER));
		(void)close(file);
	}
	(void)close(between);
}

static void test_a_second_file_does_not_get_in(void **state)
{
	int files[] = {open(OWN_NETWORK, O_RDONLY | O_CLOEXEC), open("/", O_RDONLY | O_CLOEXEC)};
	int next = dup(files[0]);

	(void)state;
	(void)close(next);
	assert_int_equal(send_files("n", 1, files, 2), 0);
	assert_int_equal(supervisor_network_receive(ends[0]).network, next);
	assert_int_equal(fcntl(next + 1, F_GETFD), -1);
	(void)close(next);
	(void)close(files[0]);
	(void)close(files[1]);
}

static void test_messages_without_a_network(void **state)
{
	(void)state;
	assert_int_equal(send(ends[1], "n", 1, 0), 1);
	assert_int_equal(supervisor_network_receive(ends[0]).request, SUPERVISOR_SILENT);
	assert_int_equal(send(ends[1], "m", 1, 0), 1);
	assert_int_equal(supervisor_network_receive(ends[0]).request, SUPERVISOR_GRANT_TO_VMS);
	assert_int_equal(send(ends[1], "", 0, 0), 0);
	assert_int_equal(supervisor_network_receive(ends[0]).request, SUPERVISOR_SILENT);
	supervisor_network_answer(ends[0]);

	char word = 0;

	assert_int_equal(read(ends[1], &word, 1), 1);
	assert_int_equal(word, 'j');
	(void)close(ends[1]);
	assert_int_equal(supervisor_network_receive(ends[0]).request, SUPERVISOR_SILENT);
	/* The process that asked has ended. */
	supervisor_network_answer(ends[0]);
	ends[1] = dup(ends[0]);
}

static void test_what_is_asked_for_with_a_network(void **state)
{
	static const struct {
		const char *words;
		size_t length;
		enum supervisor_request request;
		uint32_t vf;
	} cases[] = {{"n", 1, SUPERVISOR_JOIN, 0},        {"f\0", 2, SUPERVISOR_GRANT, 0},
		     {"f\377", 2, SUPERVISOR_GRANT, 255}, {"f", 1, SUPERVISOR_SILENT, 0},
		     {"n\0", 2, SUPERVISOR_SILENT, 0},    {"m", 1, SUPERVISOR_SILENT, 0},
		     {"x", 1, SUPERVISOR_SILENT, 0},      {"f\0\0", 3, SUPERVISOR_SILENT, 0},
		     {"f\0\0\0", 4, SUPERVISOR_SILENT, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(send_words(STDIN_FILENO, cases[i].words, cases[i].length), 0);
		const struct supervisor_asked asked = supervisor_network_receive(ends[0]);

		assert_int_equal(asked.request, cases[i].request);
		assert_int_equal(asked.network >= 0, asked.request != SUPERVISOR_SILENT);
		if (asked.network >= 0) {
			assert_int_equal(asked.vf, cases[i].vf);
			(void)close(asked.network);
		}
	}
}

/*
 * A supervisor, the first process of a PID namespace, which holds a network and reports whether it is back in
 * the network before.
 */
_Noreturn static void be_supervisor(int told)
{
	struct stat before;
	struct stat after;
	char word = 'n';

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (stat(OWN_NETWORK, &before) == 0 && supervisor_network_hold(ends[1]) == 0 &&
	    stat(OWN_NETWORK, &after) == 0 && before.st_ino == after.st_ino)
		word = 'y';
	(void)!write(told, &word, 1);
	for (;;)
		(void)pause();
}

static void test_a_network_is_held_until_the_supervisor_ends(void **state)
{
	int told[2];
	char word = 0;
	struct stat own;
	struct stat held;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: needs root\n");
		skip();
	}
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	pid_t parent = fork();

	if (parent == 0) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
			_exit(1);
		pid_t supervisor = fork();

		if (supervisor == 0) {
			/* The processes of the namespace must be visible in /proc, as for a supervisor. */
			(void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
			(void)mount("proc", "/proc", "proc", 0, NULL);
			be_supervisor(told[1]);
		}
		(void)pause();
		_exit(0);
	}
	(void)close(told[1]);
	assert_int_equal(read(told[0], &word, 1), 1);
	assert_int_equal(word, 'y');

	int network = supervisor_network_receive(ends[0]).network;

	assert_true(network >= 0);
	assert_int_equal(stat(OWN_NETWORK, &own), 0);
	assert_int_equal(fstat(network, &held), 0);
	assert_true(own.st_ino != held.st_ino);
	/* The network is root's, and no user's. */
	assert_false(supervisor_network_is_of(network, ends[0], USER));
	assert_int_equal(kill(parent, SIGKILL), 0);
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	/*
	 * The supervisor ends with its parent, and the process that holds the network ends with the
	 * supervisor. Then no process has the other end of the pipe, and only this process has the channel's.
	 */
	assert_int_equal(read(told[0], &word, 1), 0);
	(void)close(network);
	(void)close(told[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_a_network_of_the_user_s_is_believed, open_channel,
						close_channel),
		cmocka_unit_test_setup_teardown(test_the_host_s_network_and_what_is_none_is_not_believed,
						open_channel, close_channel),
		cmocka_unit_test_setup_teardown(test_a_second_file_does_not_get_in, open_channel,
						close_channel),
		cmocka_unit_test_setup_teardown(test_messages_without_a_network, open_channel, close_channel),
		cmocka_unit_test_setup_teardown(test_what_is_asked_for_with_a_network, open_channel,
						close_channel),
		cmocka_unit_test_setup_teardown(test_a_network_is_held_until_the_supervisor_ends,
						open_channel, close_channel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
