/* SPDX-License-Identifier: BSD-3-Clause */
/* interrupts.c - grants interrupts: see interrupts.h. */
#include "guest/agent/interrupts.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "region/doorbell.h"

struct server {
	const struct device *device;
	/* The connection that has the vector, or -1; after the last vector, the listener. */
	struct pollfd polled[DEVICE_VECTORS_MAX + 1];
};

/* Does not block: this is the first message in a new socket, so there is room. */
static bool send_grant(int connection, const struct doorbell_grant *grant, int interrupts, int registers)
{
	const int descriptors[2] = {interrupts, registers};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(descriptors))];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(descriptors))}};
	struct doorbell_grant copy = *grant;
	struct iovec bytes = {.iov_base = &copy, .iov_len = sizeof(copy)};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.header), descriptors, sizeof(descriptors));
	return sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(copy);
}

static bool grant_vector(const struct device *device, uint32_t vector, int connection)
{
	const struct doorbell_grant grant = {
		.version = DOORBELL_VERSION,
		.word = device->guest << 16 | vector,
		.offset = device->offset + DEVICE_DOORBELL,
	};
	int interrupts = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (interrupts < 0)
		return false;
	bool granted = device_deliver(device, vector, interrupts) == 0;
	if (granted && !send_grant(connection, &grant, interrupts, device->registers)) {
		(void)device_deliver(device, vector, -1);
		granted = false;
	}
	(void)close(interrupts); /* the kernel and the client have references */
	return granted;
}

static void revoke_vector(struct server *server, uint32_t vector)
{
	(void)device_deliver(server->device, vector, -1);
	(void)close(server->polled[vector].fd);
	server->polled[vector].fd = -1;
}

static void accept_one(struct server *server, int listener)
{
	int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (connection < 0)
		return;
	for (uint32_t vector = 0; vector < server->device->vectors; vector++)
		if (server->polled[vector].fd < 0) {
			if (!grant_vector(server->device, vector, connection))
				break;
			server->polled[vector].fd = connection;
			return;
		}
	(void)close(connection);
}

void grant_interrupts(const struct device *device, int listener)
{
	struct server server = {.device = device};
	uint32_t vectors = device->vectors;

	for (uint32_t vector = 0; vector < vectors; vector++)
		server.polled[vector] = (struct pollfd){.fd = -1, .events = POLLIN};
	server.polled[vectors] = (struct pollfd){.fd = listener, .events = POLLIN};
	for (;;) {
		if (poll(server.polled, vectors + 1, -1) < 0)
			continue;
		/* A client never sends anything: it has exited, or violates the protocol. */
		for (uint32_t vector = 0; vector < vectors; vector++)
			if (server.polled[vector].fd >= 0 && server.polled[vector].revents != 0)
				revoke_vector(&server, vector);
		if (server.polled[vectors].revents != 0)
			accept_one(&server, listener);
	}
}
