/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.c - see serve.h. */
#include "broker/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "region/broker.h"

/*
 * Connections without a request yet. A member sends its request at once, so only a slow or hostile
 * process has one here for long; the oldest gives way to a new one.
 */
#define WAITING_MAX 64U
#define WAITING_NANOSECONDS UINT64_C(2000000000)
/* How many connections a region gets before the next region has its turn. */
#define ACCEPTED_AT_ONCE 16U
#define SECOND UINT64_C(1000000000)

struct waiting {
	int connection; /* -1: none */
	uint64_t since;
	struct served *served;
};

struct server {
	struct broker *broker;
	struct waiting waiting[WAITING_MAX];
	uint64_t last_told;
	uint64_t last_checked;
};

uint64_t broker_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* ---- members, as the kernel knows them: each locks the byte that has the number of its slot ---- */

static bool is_locked(int memory, uint32_t first, uint32_t count)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};

	return fcntl(memory, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool has_room(const struct broker *broker, const struct served *served)
{
	for (uint32_t slot = 0; slot < broker->members; slot++)
		if (!is_locked(served->memory, slot, 1))
			return true;
	return false;
}

/* ---- answers ---- */

static void send_answer(int connection, const struct broker_answer *answer, int descriptor)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)answer, .iov_len = sizeof(*answer)};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = {{0}};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (descriptor >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
	}
	(void)sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* At most one line a second, because a process can be refused as often as it wants. */
static void tell(struct server *server, const struct served *served, const struct ucred *peer,
		 const char *reason)
{
	uint64_t now = broker_now();

	if (now - server->last_told < SECOND)
		return;
	server->last_told = now;
	(void)fprintf(stderr, "vicinal: warning: user %u (process %d) did not get socket:%s: %s\n",
		      (unsigned)peer->uid, (int)peer->pid, served->path, reason);
}

/*
 * A descriptor with an open file description of its own: locks belong to descriptions, and members
 * must not share them.
 */
static int new_descriptor(const struct served *served, uint32_t purpose)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", served->memory);
	return open(path, (purpose == BROKER_LOOK ? O_RDONLY : O_RDWR) | O_CLOEXEC);
}

static void decide(struct server *server, struct served *served, int connection,
		   const struct broker_request *request)
{
	const struct broker *broker = server->broker;
	struct broker_answer answer = {.magic = BROKER_MAGIC, .version = BROKER_VERSION};
	struct ucred peer = {.pid = 0, .uid = UINT32_MAX, .gid = UINT32_MAX};
	socklen_t bytes = sizeof(peer);
	int descriptor = -1;
	bool known = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;

	if (request->version != BROKER_VERSION) {
		answer.verdict = BROKER_OTHER_VERSION;
		(void)snprintf(answer.reason, sizeof(answer.reason),
			       "it speaks version %u of the protocol, and the broker version %u: use one "
			       "Vicinal for both",
			       request->version, BROKER_VERSION);
	} else if (!known || !rules_allow(&broker->rules, connection, &peer)) {
		answer.verdict = BROKER_REFUSED;
		(void)snprintf(answer.reason, sizeof(answer.reason),
			       "the broker allows neither user %u nor a group of the process: its owner can "
			       "allow them with --allow-uid or --allow-gid",
			       (unsigned)peer.uid);
	} else if (request->purpose == BROKER_JOIN && !has_room(broker, served)) {
		answer.verdict = BROKER_FULL;
		(void)snprintf(answer.reason, sizeof(answer.reason),
			       "the region is full, because living members have all its %u slots: serve a "
			       "region with more (--members)",
			       broker->members);
	} else {
		descriptor = new_descriptor(served, request->purpose);
		if (descriptor < 0) {
			answer.verdict = BROKER_UNABLE;
			(void)snprintf(
				answer.reason, sizeof(answer.reason),
				"the broker cannot open its memory again (%s): it needs /proc and free "
				"descriptors",
				strerror(errno));
		}
	}
	if (descriptor < 0)
		tell(server, served, &peer, answer.reason);
	send_answer(connection, &answer, descriptor);
	if (descriptor < 0)
		return;
	(void)close(descriptor);
	if (request->purpose == BROKER_JOIN) {
		atomic_store(&served->use->used, true);
		served->last_used = broker_now();
	}
}

/* Answer a connection that has sent its request, or that never will. False if it has sent nothing yet. */
static bool answer(struct server *server, struct served *served, int connection)
{
	struct broker_request request;
	/* Descriptors in a message without room for them are closed by the kernel. */
	ssize_t length = recv(connection, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (length == (ssize_t)sizeof(request) && request.magic == BROKER_MAGIC)
		decide(server, served, connection, &request);
	return true;
}

/* ---- connections ---- */

static void drop(struct waiting *waiting)
{
	(void)close(waiting->connection);
	waiting->connection = -1;
}

static struct waiting *oldest_or_free(struct server *server)
{
	struct waiting *best = &server->waiting[0];

	for (uint32_t i = 0; i < WAITING_MAX; i++) {
		struct waiting *waiting = &server->waiting[i];
		if (waiting->connection < 0)
			return waiting;
		if (waiting->since < best->since)
			best = waiting;
	}
	return best;
}

static void accept_some(struct server *server, struct served *served)
{
	for (uint32_t i = 0; i < ACCEPTED_AT_ONCE; i++) {
		int connection = accept4(served->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (connection < 0) {
			if (errno == EMFILE || errno == ENFILE) /* poll() would return at once */
				(void)nanosleep(&(const struct timespec){.tv_nsec = 10000000}, NULL);
			return;
		}
		if (answer(server, served, connection)) {
			(void)close(connection);
			continue;
		}
		struct waiting *waiting = oldest_or_free(server);
		if (waiting->connection >= 0)
			drop(waiting);
		*waiting = (struct waiting){connection, broker_now(), served};
	}
}

static void look_at_waiting(struct server *server, uint64_t now)
{
	for (uint32_t i = 0; i < WAITING_MAX; i++) {
		struct waiting *waiting = &server->waiting[i];
		if (waiting->connection >= 0 && (answer(server, waiting->served, waiting->connection) ||
						 now - waiting->since > WAITING_NANOSECONDS))
			drop(waiting);
	}
}

/* ---- the end of a region ---- */

/* Returns whether a region ended. */
static bool check_idle(struct server *server, uint64_t now)
{
	struct broker *broker = server->broker;
	bool ended = false;

	for (uint32_t i = 0; i < broker->count; i++) {
		struct served *served = &broker->served[i];
		if (served->listener < 0)
			continue;
		if (is_locked(served->memory, 0, broker->members)) {
			atomic_store(&served->use->used, true);
			served->last_used = now;
		} else if (atomic_load(&served->use->used) && now - served->last_used >= broker->idle) {
			atomic_store(&served->use->ended, true);
			ended = true;
		}
	}
	return ended;
}

/* Milliseconds until something must be looked at without an event, or -1. */
static int timeout_of(const struct server *server)
{
	for (uint32_t i = 0; i < WAITING_MAX; i++)
		if (server->waiting[i].connection >= 0)
			return 100;
	if (server->broker->idle == 0)
		return -1;
	return server->broker->idle < 4 * SECOND ? (int)(server->broker->idle / 4000000) + 1 : 1000;
}

static uint32_t list(const struct server *server, int supervisor, struct pollfd *polled)
{
	const struct broker *broker = server->broker;
	uint32_t count = 0;

	polled[count++] = (struct pollfd){.fd = supervisor, .events = POLLIN};
	for (uint32_t i = 0; i < broker->count; i++) /* poll() ignores a descriptor of -1 */
		polled[count++] = (struct pollfd){.fd = broker->served[i].listener, .events = POLLIN};
	for (uint32_t i = 0; i < WAITING_MAX; i++)
		polled[count++] = (struct pollfd){.fd = server->waiting[i].connection, .events = POLLIN};
	return count;
}

static enum serve_end serve_until(struct server *server, int supervisor)
{
	struct broker *broker = server->broker;
	struct pollfd polled[1 + SERVED_MAX + WAITING_MAX];

	for (;;) {
		uint32_t count = list(server, supervisor, polled);
		int ready = poll(polled, count, timeout_of(server));
		uint64_t now = broker_now();
		if (ready > 0 && polled[0].revents != 0)
			return SERVE_ALONE;
		look_at_waiting(server, now);
		for (uint32_t i = 0; ready > 0 && i < broker->count; i++)
			if (polled[1 + i].revents != 0)
				accept_some(server, &broker->served[i]);
		if (broker->idle != 0 && check_idle(server, now))
			return SERVE_REGION_ENDED;
	}
}

enum serve_end serve(struct broker *broker, int supervisor)
{
	struct server server = {.broker = broker};

	for (uint32_t i = 0; i < WAITING_MAX; i++)
		server.waiting[i].connection = -1;
	for (uint32_t i = 0; i < broker->count; i++)
		broker->served[i].last_used = broker_now();
	enum serve_end end = serve_until(&server, supervisor);
	for (uint32_t i = 0; i < WAITING_MAX; i++)
		if (server.waiting[i].connection >= 0)
			drop(&server.waiting[i]);
	return end;
}
