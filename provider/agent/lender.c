/* SPDX-License-Identifier: BSD-3-Clause */
/* lender.c - lends interrupts: see lender.h. */
#include "agent/lender.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "region/doorbell.h"

struct lender {
	const struct device *device;
	/* The connection that has a vector, or -1; after the last the listener. */
	struct pollfd polled[DEVICE_VECTORS_MOST + 1];
};

/* Does not block: what is sent is the first in a fresh socket, and there is room. */
static bool send_loan(int connection, const struct doorbell_loan *loan, int interrupts, int registers)
{
	const int descriptors[2] = {interrupts, registers};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(descriptors))];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(descriptors))}};
	struct doorbell_loan copy = *loan;
	struct iovec bytes = {.iov_base = &copy, .iov_len = sizeof(copy)};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.header), descriptors, sizeof(descriptors));
	return sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(copy);
}

static bool lend(const struct device *device, uint32_t vector, int connection)
{
	const struct doorbell_loan loan = {
		.version = DOORBELL_VERSION,
		.word = device->guest << 16 | vector,
		.place = device->place + DEVICE_DOORBELL,
	};
	int interrupts = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (interrupts < 0)
		return false;
	bool lent = device_deliver(device, vector, interrupts) == 0;
	if (lent && !send_loan(connection, &loan, interrupts, device->registers)) {
		(void)device_deliver(device, vector, -1);
		lent = false;
	}
	(void)close(interrupts); /* the kernel and the borrower have it */
	return lent;
}

static void take_back(struct lender *lender, uint32_t vector)
{
	(void)device_deliver(lender->device, vector, -1);
	(void)close(lender->polled[vector].fd);
	lender->polled[vector].fd = -1;
}

static void accept_one(struct lender *lender, int listener)
{
	int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (connection < 0)
		return;
	for (uint32_t vector = 0; vector < lender->device->vectors; vector++)
		if (lender->polled[vector].fd < 0) {
			if (!lend(lender->device, vector, connection))
				break;
			lender->polled[vector].fd = connection;
			return;
		}
	(void)close(connection);
}

void lend_interrupts(const struct device *device, int listener)
{
	struct lender lender = {.device = device};
	uint32_t vectors = device->vectors;

	for (uint32_t vector = 0; vector < vectors; vector++)
		lender.polled[vector] = (struct pollfd){.fd = -1, .events = POLLIN};
	lender.polled[vectors] = (struct pollfd){.fd = listener, .events = POLLIN};
	for (;;) {
		if (poll(lender.polled, vectors + 1, -1) < 0)
			continue;
		/* A borrower has nothing to say: it is gone, or does not know what it does. */
		for (uint32_t vector = 0; vector < vectors; vector++)
			if (lender.polled[vector].fd >= 0 && lender.polled[vector].revents != 0)
				take_back(&lender, vector);
		if (lender.polled[vectors].revents != 0)
			accept_one(&lender, listener);
	}
}
