/* SPDX-License-Identifier: BSD-3-Clause */
/* doorbell.c - obtains an interrupt from the guest's agent, tests it, and waits for interrupts. */
#include "region/doorbell.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "region/member.h"
#include "region/sleep.h"

/* The agent answers at once. An emulated guest that shares its processor takes milliseconds. */
#define ANSWER_MILLISECONDS 5000
/* The same limit for the interrupt that this process sends to itself. */
#define PROOF_MILLISECONDS 2000

/*
 * ---- requesting a grant from the agent ----
 */

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	int agent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (agent < 0)
		return -errno;
	if (connect(agent, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		int code = errno;
		(void)close(agent);
		return -code;
	}
	return agent;
}

/*
 * Receive the grant and its two descriptors. Returns 0 or a negative errno; after an error no
 * descriptor is left open.
 */
static int receive_grant(int agent, struct doorbell_grant *grant, int descriptors[2])
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec bytes = {.iov_base = grant, .iov_len = sizeof(*grant)};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct pollfd polled = {.fd = agent, .events = POLLIN};

	if (poll(&polled, 1, ANSWER_MILLISECONDS) <= 0)
		return -ETIMEDOUT;
	ssize_t length = recvmsg(agent, &message, MSG_CMSG_CLOEXEC);
	if (length < 0)
		return -errno;
	if (length == 0) /* the agent has no interrupt left to grant */
		return -EBUSY;
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header == NULL || header->cmsg_type != SCM_RIGHTS)
		return -EPROTO;
	size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
	if (count == 2 && length == sizeof(*grant) && grant->version == DOORBELL_VERSION &&
	    grant->offset % sizeof(uint32_t) == 0 && grant->offset <= REGION_PAGE - sizeof(uint32_t))
		return 0;
	for (size_t i = 0; i < count; i++)
		(void)close(descriptors[i]);
	return -EPROTO;
}

static int request_grant(struct doorbell *doorbell, const char *path)
{
	struct doorbell_grant grant;
	int descriptors[2] = {-1, -1};

	doorbell->agent = connect_to(path);
	if (doorbell->agent < 0)
		return doorbell->agent;
	int result = receive_grant(doorbell->agent, &grant, descriptors);
	if (result != 0)
		return result;
	doorbell->interrupts = descriptors[0];
	doorbell->word = grant.word;
	doorbell->registers = mmap(NULL, REGION_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[1], 0);
	result = doorbell->registers != MAP_FAILED ? 0 : -errno;
	(void)close(descriptors[1]);
	if (result != 0) {
		doorbell->registers = NULL;
		return result;
	}
	doorbell->ring = (volatile uint32_t *)(void *)((unsigned char *)doorbell->registers + grant.offset);
	return 0;
}

/*
 * Interrupt this process through the device, the server and the kernel, the way of a peer's
 * interrupt.
 */
static bool prove(const struct doorbell *doorbell)
{
	struct pollfd polled = {.fd = doorbell->interrupts, .events = POLLIN};
	uint64_t count = 0;

	(void)doorbell_ring(doorbell, doorbell_offer(doorbell));
	return poll(&polled, 1, PROOF_MILLISECONDS) > 0 &&
	       read(doorbell->interrupts, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

/* ---- listening ---- */

static void *listen_to_interrupts(void *argument)
{
	struct doorbell *doorbell = argument;
	struct pollfd polled[2] = {{.fd = doorbell->interrupts, .events = POLLIN},
				   {.fd = doorbell->agent, .events = POLLIN}};

	while (!atomic_load_explicit(&doorbell->stop, memory_order_relaxed)) {
		uint64_t count = 0;
		if (poll(polled, 2, -1) < 0)
			continue;
		/* The agent closed the connection, so the interrupt is no longer granted. */
		if (polled[1].revents != 0) {
			atomic_store_explicit(&doorbell->works, false, memory_order_relaxed);
			polled[1].fd = -1;
		}
		if (polled[0].revents != 0)
			(void)!read(doorbell->interrupts, &count, sizeof(count));
		sleep_wake_private(&doorbell->rung);
	}
	return NULL;
}

/* The thread blocks signals: they are for the application's threads. */
static bool start_listener(struct doorbell *doorbell)
{
	sigset_t all;
	sigset_t before;

	(void)sigfillset(&all);
	(void)sigdelset(&all, SIGBUS); /* raised by a fault in the region: see region/guard.h */
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	doorbell->listening = pthread_create(&doorbell->listener, NULL, listen_to_interrupts, doorbell) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return doorbell->listening;
}

/*
 * ---- the doorbell of a region ----
 */

static void give_back(struct doorbell *doorbell)
{
	/* A forked child does not have the thread. */
	if (doorbell->listening && doorbell->process == getpid()) {
		atomic_store_explicit(&doorbell->stop, true, memory_order_relaxed);
		(void)!write(doorbell->interrupts, &(uint64_t){1}, sizeof(uint64_t));
		(void)pthread_join(doorbell->listener, NULL);
	}
	if (doorbell->registers != NULL)
		(void)munmap(doorbell->registers, REGION_PAGE);
	if (doorbell->interrupts >= 0)
		(void)close(doorbell->interrupts);
	if (doorbell->agent >= 0)
		(void)close(doorbell->agent);
	free(doorbell);
}

static int refuse(const struct region *region, int code, struct region_error *error)
{
	const char *const remedy = "processes that wait in this guest poll from time to time instead";

	switch (code) {
	case -EBUSY:
		return region_fail(error, code,
				   "the doorbell of region %.1024s has no interrupt left: %s; start fewer "
				   "processes here, or give the device more vectors",
				   region->path, remedy);
	case -ETIMEDOUT:
		return region_fail(error, code,
				   "the doorbell of region %.1024s was rung and no interrupt came: %s; check "
				   "that its server on the host runs (docs/explanation/region.md)",
				   region->path, remedy);
	default:
		return region_fail(error, code,
				   "the doorbell of region %.1024s cannot be used (%s): %s; check that the "
				   "guest's agent matches this provider (docs/explanation/region.md)",
				   region->path, strerror(-code), remedy);
	}
}

int doorbell_attach(struct region *region, const char *socket, struct region_error *error)
{
	char path[PATH_MAX];

	if (socket == NULL) {
		if (region->kind != REGION_PCI)
			return -ENOENT;
		(void)snprintf(path, sizeof(path), DOORBELL_SOCKET "%.1024s", region->name + strlen("pci:"));
		socket = path;
	}
	if (access(socket, F_OK) != 0)
		return -ENOENT;
	struct doorbell *doorbell = calloc(1, sizeof(*doorbell));
	if (doorbell == NULL)
		return refuse(region, -ENOMEM, error);
	doorbell->agent = -1;
	doorbell->interrupts = -1;
	doorbell->process = getpid();
	int result = request_grant(doorbell, socket);
	if (result == 0 && !prove(doorbell))
		result = -ETIMEDOUT;
	atomic_store(&doorbell->works, result == 0);
	if (result == 0 && !start_listener(doorbell))
		result = -EAGAIN;
	if (result != 0) {
		give_back(doorbell);
		return refuse(region, result, error);
	}
	region->doorbell = doorbell;
	return 0;
}

void doorbell_detach(struct region *region)
{
	if (region->doorbell != NULL)
		give_back(region->doorbell);
	region->doorbell = NULL;
}

void doorbell_after_fork(const struct region *region)
{
	struct doorbell *doorbell = region->doorbell;

	if (doorbell == NULL)
		return;
	atomic_store_explicit(&doorbell->works, false, memory_order_relaxed);
	/* Otherwise the agent would take the parent's connection for the child's. */
	(void)close(doorbell->agent);
	(void)close(doorbell->interrupts);
	doorbell->agent = -1;
	doorbell->interrupts = -1;
}

bool doorbell_ring(const struct doorbell *doorbell, uint64_t offer)
{
	if ((offer & INTERRUPTIBLE) == 0)
		return false;
	*doorbell->ring = (uint32_t)offer;
	return true;
}
