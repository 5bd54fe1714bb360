/* SPDX-License-Identifier: BSD-3-Clause */
/* Where tasks find a step's PMIx server, and the relay of its bytes, without Slurm and PMIx. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "slurm/pmix.h"
#include "slurm/pmix_relay.h"

#define SERVER "pmix-server.16;tcp4://127.0.0.1:"
/* More than all buffers on the way. */
#define LONG_BYTES (16U << 20)
#define CONNECTIONS_MAX 32U

static int listening(in_addr_t ip, uint16_t *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip)};
	socklen_t size = sizeof(address);
	int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(opened >= 0);
	assert_int_equal(bind(opened, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(opened, 64), 0);
	assert_int_equal(getsockname(opened, (struct sockaddr *)&address, &size), 0);
	*port = ntohs(address.sin_port);
	return opened;
}

static int connected(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(opened, (struct sockaddr *)&address, sizeof(address)), 0);
	return opened;
}

/* --- variables ------------------------------------------------------------------------------ */

static void test_a_server_is_one_that_listens_here(void **state)
{
	char own[128];
	char other[128];
	char wide[128];
	uint16_t port = 0;
	uint16_t wide_port = 0;
	int opened = listening(INADDR_LOOPBACK, &port);
	int everywhere = listening(INADDR_ANY, &wide_port);

	(void)state;
	(void)snprintf(own, sizeof(own), "PMIX_SERVER_URI41=" SERVER "%u", port);
	(void)snprintf(other, sizeof(other), "PMIX_SERVER_URI2=" SERVER "22");
	(void)snprintf(wide, sizeof(wide), "PMIX_SERVER_URI3=" SERVER "%u", wide_port);
	assert_int_equal(pmix_server_port((const char *[]){"A=b", other, wide, own, NULL}), port);
	assert_int_equal(pmix_server_port((const char *[]){"A=b", other, wide, NULL}), 0);
	assert_int_equal(pmix_server_port((const char *[]){own + strlen("PMIX_"), NULL}), 0);
	assert_int_equal(pmix_server_port((const char *[]){NULL}), 0);
	assert_int_equal(close(opened), 0);
	assert_int_equal(pmix_server_port((const char *[]){own, NULL}), 0);
	assert_int_equal(close(everywhere), 0);
}

static void test_variables_are_moved_that_tell_of_it(void **state)
{
	struct pmix_setting setting;
	char longest[2 * PMIX_SETTING_MAX];

	(void)state;
	assert_true(pmix_move("PMIX_SERVER_URI2=" SERVER "5872", 5872, 40000, &setting));
	assert_string_equal(setting.name, "PMIX_SERVER_URI2");
	assert_string_equal(setting.value, SERVER "40000");
	assert_true(pmix_move("PMIX_SERVER_URI2=" SERVER "5872;more", 5872, 1, &setting));
	assert_string_equal(setting.value, SERVER "1;more");
	assert_false(pmix_move("PMIX_SERVER_URI2=" SERVER "58725", 5872, 1, &setting));
	assert_false(pmix_move("PMIX_SERVER_URI2=" SERVER "71408", 5872, 1, &setting)); /* 65536 more */
	assert_false(pmix_move("PMIX_SERVER_URI2=tcp4://10.0.0.1:5872", 5872, 1, &setting));
	assert_false(pmix_move("PMIX_SERVER_URI2", 5872, 1, &setting));
	assert_false(pmix_move("OTHER=" SERVER "5872", 5872, 1, &setting));
	memset(longest, 'x', sizeof(longest));
	(void)snprintf(longest, 64, "PMIX_SERVER_URI2=" SERVER "5872");
	longest[strlen(longest)] = ';';
	longest[sizeof(longest) - 1] = '\0';
	assert_false(pmix_move(longest, 5872, 1, &setting));
}

/* --- the relay ------------------------------------------------------------------------------ */

struct relay {
	pthread_t thread;
	int server;    /* listens where the relay connects */
	uint16_t to;   /* its port */
	uint16_t port; /* the relay's port */
	int listener;
	int end[2];
};

static void *run(void *data)
{
	struct relay *relay = data;

	pmix_relay_run(relay->listener, relay->to, relay->end[0]);
	return NULL;
}

static struct relay started(void)
{
	struct relay relay = {0};

	relay.server = listening(INADDR_LOOPBACK, &relay.to);
	relay.listener = pmix_relay_listen(&relay.port);
	assert_true(relay.listener >= 0);
	assert_true(relay.port > 0);
	assert_int_equal(pipe(relay.end), 0);
	return relay;
}

static void end(struct relay *relay)
{
	assert_int_equal(close(relay->end[1]), 0);
	assert_int_equal(pthread_join(relay->thread, NULL), 0);
	assert_int_equal(close(relay->end[0]), 0);
	assert_int_equal(close(relay->server), 0);
}

static void *write_long(void *data)
{
	int opened = *(const int *)data;
	unsigned char *bytes = malloc(LONG_BYTES);
	size_t sent = 0;

	for (size_t i = 0; i < LONG_BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	while (sent < LONG_BYTES) {
		ssize_t some = send(opened, bytes + sent, LONG_BYTES - sent, MSG_NOSIGNAL);

		if (some <= 0)
			break;
		sent += (size_t)some;
	}
	free(bytes);
	(void)shutdown(opened, SHUT_WR);
	return NULL;
}

static void read_long(int opened)
{
	static unsigned char bytes[65536];
	size_t got = 0;
	size_t wrong = 0;
	ssize_t some = 0;

	while ((some = recv(opened, bytes, sizeof(bytes), 0)) > 0) {
		for (ssize_t i = 0; i < some; i++, got++)
			wrong += bytes[i] != (unsigned char)(got * 7 + got / 251);
	}
	assert_int_equal(some, 0);
	assert_int_equal(got, LONG_BYTES);
	assert_int_equal(wrong, 0);
}

static void test_all_is_handed_on_both_ways(void **state)
{
	struct relay relay = started();
	pthread_t threads[2];

	(void)state;
	assert_int_equal(pthread_create(&relay.thread, NULL, run, &relay), 0);
	int task = connected(relay.port);
	int server = accept(relay.server, NULL, NULL);

	/* Both write everything before either reads to its end: neither direction waits for the other. */
	assert_int_equal(pthread_create(&threads[0], NULL, write_long, &task), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, write_long, &server), 0);
	read_long(server);
	read_long(task);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(close(task), 0);
	assert_int_equal(close(server), 0);
	end(&relay);
}

static void test_more_connections_wait_until_one_ends(void **state)
{
	struct relay relay = started();
	int tasks[CONNECTIONS_MAX + 1];
	int servers[CONNECTIONS_MAX + 1];
	char word = 'x';

	(void)state;
	assert_int_equal(pthread_create(&relay.thread, NULL, run, &relay), 0);
	for (size_t i = 0; i <= CONNECTIONS_MAX; i++) {
		tasks[i] = connected(relay.port);
		assert_int_equal(send(tasks[i], &word, 1, 0), 1);
	}
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		servers[i] = accept(relay.server, NULL, NULL);
	struct pollfd more = {.fd = relay.server, .events = POLLIN};

	assert_int_equal(poll(&more, 1, 100), 0);
	assert_int_equal(close(tasks[0]), 0);
	assert_int_equal(close(servers[0]), 0);
	servers[CONNECTIONS_MAX] = accept(relay.server, NULL, NULL);
	assert_int_equal(recv(servers[CONNECTIONS_MAX], &word, 1, 0), 1);
	end(&relay);
	/* With the relay all connections end. */
	for (size_t i = 1; i <= CONNECTIONS_MAX; i++) {
		assert_true(recv(tasks[i], &word, 1, 0) <= 0);
		assert_int_equal(close(tasks[i]), 0);
		assert_int_equal(close(servers[i]), 0);
	}
}

static void test_the_last_words_of_a_task_arrive(void **state)
{
	struct relay relay = started();
	char said[8] = "";

	(void)state;
	int task = connected(relay.port);

	/* The whole message, before the relay polls for the first time. */
	assert_int_equal(send(task, "abort", 5, 0), 5);
	assert_int_equal(close(task), 0);
	assert_int_equal(close(relay.end[1]), 0);
	assert_int_equal(pthread_create(&relay.thread, NULL, run, &relay), 0);
	int server = accept(relay.server, NULL, NULL);

	assert_int_equal(recv(server, said, sizeof(said), MSG_WAITALL), 5);
	assert_string_equal(said, "abort");
	assert_int_equal(pthread_join(relay.thread, NULL), 0);
	assert_int_equal(close(server), 0);
	assert_int_equal(close(relay.end[0]), 0);
	assert_int_equal(close(relay.server), 0);
}

static void test_without_a_server_connections_end(void **state)
{
	struct relay relay = started();
	char word = 0;

	(void)state;
	assert_int_equal(close(relay.server), 0);
	assert_int_equal(pthread_create(&relay.thread, NULL, run, &relay), 0);
	int task = connected(relay.port);

	assert_true(recv(task, &word, 1, 0) <= 0);
	assert_int_equal(close(task), 0);
	relay.server = dup(STDIN_FILENO);
	end(&relay);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_server_is_one_that_listens_here),
		cmocka_unit_test(test_variables_are_moved_that_tell_of_it),
		cmocka_unit_test(test_all_is_handed_on_both_ways),
		cmocka_unit_test(test_more_connections_wait_until_one_ends),
		cmocka_unit_test(test_the_last_words_of_a_task_arrive),
		cmocka_unit_test(test_without_a_server_connections_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
