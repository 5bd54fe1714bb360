/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_relay.c - relays bytes between two networks: see pmix_relay.h. */
#include "pmix_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* A rank has one connection; the rest is for its child processes. Further connections wait. */
#define CONNECTIONS_MAX 32U
#define BUFFER_BYTES 16384U
/* The maximum number of polls for the remaining bytes after the task has ended. */
#define LAST_POLLS 1000U

/*
 * One direction, from one socket to another. Nothing is read before all that was read is written.
 */
struct direction {
	int from;
	int to;
	size_t first; /* first byte to write */
	size_t end;
	bool is_over; /* end of file was read */
	char bytes[BUFFER_BYTES];
};

struct connection {
	bool is_open;
	struct direction directions[2]; /* to the server, and back */
};

struct relay {
	int listener; /* -1: closed */
	uint16_t port;
	bool is_full;
	struct connection connections[CONNECTIONS_MAX];
	struct pollfd ready[CONNECTIONS_MAX * 2 + 2];
};

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

int pmix_relay_listen(uint16_t *port)
{
	struct sockaddr_in address = loopback(0);
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (listener < 0)
		return -1;
	if (bind(listener, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(listener, (int)CONNECTIONS_MAX) != 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
		(void)close(listener);
		return -1;
	}
	*port = ntohs(address.sin_port);
	return listener;
}

/* Messages are relayed as they arrive, so the sockets must not delay them. */
static void be_prompt(int opened)
{
	const int on = 1;

	(void)setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int connect_to(uint16_t port)
{
	const struct sockaddr_in address = loopback(port);
	int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (opened < 0)
		return -1;
	be_prompt(opened);
	if (connect(opened, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
	    errno != EINPROGRESS) {
		(void)close(opened);
		return -1;
	}
	return opened;
}

static void begin(struct connection *connection, int task, int server)
{
	struct direction *there = &connection->directions[0];
	struct direction *back = &connection->directions[1];

	connection->is_open = true;
	there->from = back->to = task;
	there->to = back->from = server;
	there->first = there->end = back->first = back->end = 0;
	there->is_over = back->is_over = false;
}

static void take_connection(struct relay *relay)
{
	struct connection *connection = NULL;
	bool any = false;

	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		if (relay->connections[i].is_open)
			any = true;
		else if (connection == NULL)
			connection = &relay->connections[i];
	}
	relay->is_full = connection == NULL;
	if (connection == NULL)
		return;
	int task = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (task < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return;
	if (task < 0 && any) { /* the user may have too many open files, until one is closed */
		relay->is_full = true;
		return;
	}
	int server = task >= 0 ? connect_to(relay->port) : -1;

	if (server >= 0) {
		be_prompt(task);
		begin(connection, task, server);
		return;
	}
	/* The client sees the closed connection. */
	(void)close(task >= 0 ? task : relay->listener);
	if (task < 0)
		relay->listener = -1;
}

static void end_connection(struct relay *relay, struct connection *connection)
{
	(void)close(connection->directions[0].from);
	(void)close(connection->directions[0].to);
	connection->is_open = false;
	relay->is_full = false;
}

static bool is_passing(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* Returns -1 if a socket has failed. */
static int hand_on(struct direction *direction)
{
	if (direction->first == direction->end && !direction->is_over) {
		ssize_t got = recv(direction->from, direction->bytes, sizeof(direction->bytes), 0);

		if (got < 0)
			return is_passing() ? 0 : -1;
		direction->first = 0;
		direction->end = (size_t)got;
		direction->is_over = got == 0;
		if (direction->is_over)
			return shutdown(direction->to, SHUT_WR) == 0 || errno == ENOTCONN ? 0 : -1;
	}
	if (direction->first < direction->end) {
		ssize_t sent = send(direction->to, direction->bytes + direction->first,
				    direction->end - direction->first, MSG_NOSIGNAL);

		if (sent < 0)
			return is_passing() ? 0 : -1;
		direction->first += (size_t)sent;
	}
	return 0;
}

/* What a direction waits for. Both directions may wait for the same socket. */
static struct pollfd awaited(const struct direction *direction)
{
	if (direction->first < direction->end)
		return (struct pollfd){.fd = direction->to, .events = POLLOUT};
	return (struct pollfd){.fd = direction->is_over ? -1 : direction->from, .events = POLLIN};
}

/* Wait for an event and handle it. Returns false if there was none, or `ended` is readable. */
static bool take_turn(struct relay *relay, int ended, int milliseconds)
{
	struct pollfd *ready = relay->ready;
	nfds_t count = 0;

	ready[count++] = (struct pollfd){.fd = ended, .events = POLLIN};
	ready[count++] = (struct pollfd){.fd = relay->is_full ? -1 : relay->listener, .events = POLLIN};
	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		const struct connection *connection = &relay->connections[i];

		for (size_t direction = 0; direction < 2; direction++)
			ready[count++] = connection->is_open ? awaited(&connection->directions[direction])
							     : (struct pollfd){.fd = -1};
	}
	int found = poll(ready, count, milliseconds);

	if (found <= 0)
		return found < 0 && errno == EINTR;
	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		struct connection *connection = &relay->connections[i];
		const struct pollfd *of_directions = &ready[2 + 2 * i];
		bool broken = false;

		for (size_t direction = 0; connection->is_open && direction < 2; direction++)
			broken |= of_directions[direction].revents != 0 &&
				  hand_on(&connection->directions[direction]) != 0;
		if (connection->is_open &&
		    (broken || (connection->directions[0].is_over && connection->directions[1].is_over)))
			end_connection(relay, connection);
	}
	if (ready[1].revents != 0)
		take_connection(relay);
	return ready[0].revents == 0;
}

void pmix_relay_run(int listener, uint16_t port, int ended)
{
	struct relay *relay = calloc(1, sizeof(*relay));
	struct pollfd end = {.fd = ended, .events = POLLIN};

	if (relay == NULL) {
		(void)close(listener);
		while (poll(&end, 1, -1) < 0 && errno == EINTR) {
		}
		return;
	}
	relay->listener = listener;
	relay->port = port;
	while (take_turn(relay, ended, -1)) {
	}
	/* The last bytes of the task. Other processes of the node do not delay the end. */
	for (unsigned polls = 0; polls < LAST_POLLS && take_turn(relay, -1, 0); polls++) {
	}
	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		if (relay->connections[i].is_open)
			end_connection(relay, &relay->connections[i]);
	}
	if (relay->listener >= 0)
		(void)close(relay->listener);
	free(relay);
}
