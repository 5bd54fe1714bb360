/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doorbell.h - interrupts between members in different guests: the doorbell of QEMU's ivshmem device.
 *
 * Guests share no kernel, so no futex of one wakes the other. But a process that writes a peer's word into
 * the device's doorbell register has QEMU interrupt that peer's guest, and Linux's vfio-pci makes an eventfd
 * readable for it. One process alone may have such a device: the guest's agent (guest/agent), which
 * grants each process that connects to its socket an interrupt of its own, and the register. From then on
 * it has no part in anything: an interrupt goes from the kernel straight to the process, where a thread
 * waits for it and wakes who sleeps.
 */
#ifndef VICINAL_REGION_DOORBELL_H
#define VICINAL_REGION_DOORBELL_H

#include <pthread.h>
#include <sys/types.h>

#include "region/region.h"

/* Where the agent of a device is found; the device's PCI address follows. */
#define DOORBELL_SOCKET "/run/vicinal/doorbell-"

/*
 * What the agent says to each that connects, in one packet (SOCK_SEQPACKET) with two descriptors: an
 * eventfd that counts the interrupts, and the file of the device's registers, to be mapped. The
 * interrupt is granted until the connection ends.
 */
#define DOORBELL_VERSION 1U
struct doorbell_grant {
	uint32_t version;
	uint32_t word;   /* what others write into their registers to interrupt us: guest << 16 | vector */
	uint32_t offset; /* of the doorbell register in the file's first page */
	uint32_t reserved;
};

struct doorbell {
	volatile uint32_t *ring; /* the register */
	void *registers;         /* the page that it lies in */
	uint32_t word;
	atomic_bool works; /* we are interrupted: until the agent is gone */
	atomic_uint rung;  /* counts interrupts, for who sleeps */
	int agent;         /* the connection */
	int interrupts;    /* the eventfd */
	pid_t process;     /* whose thread listens */
	bool listening;
	atomic_bool stop;
	pthread_t listener;
};

/*
 * Have the members of this process in `region` interrupted, by the agent at `socket`; NULL: where that of the
 * region's device is. Returns 0; -ENOENT where there is none, and members look by themselves now and then; or
 * another negative errno, where there is one of no use, with a text.
 *
 * That it works is proved: a first interrupt is our own.
 */
int doorbell_attach(struct region *region, const char *socket, struct region_error *error);
void doorbell_detach(struct region *region);
/* In a forked child: the interrupts are its parent's. */
void doorbell_after_fork(const struct region *region);

static inline bool doorbell_works(const struct doorbell *doorbell)
{
	return doorbell != NULL && atomic_load_explicit(&doorbell->works, memory_order_relaxed);
}

/* What a member says of itself in section_header.interrupt. */
static inline uint64_t doorbell_offer(const struct doorbell *doorbell)
{
	return doorbell != NULL ? INTERRUPTIBLE | doorbell->word : 0;
}

/* How often we were interrupted. Pairs with the listener: who sees a count sees what came before it. */
static inline uint32_t doorbell_count(const struct doorbell *doorbell)
{
	return doorbell != NULL ? atomic_load_explicit(&doorbell->rung, memory_order_acquire) : 0;
}

/*
 * Interrupt the process that `offer` names, which is a peer's word. Whatever it names, an interrupt for
 * nothing is the worst that comes of it: the device takes no number of a guest or vector that it does not
 * have. Does not block. Returns whether there was an offer.
 */
bool doorbell_ring(const struct doorbell *doorbell, uint64_t offer);

#endif
