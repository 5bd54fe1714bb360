/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doorbell.h - interrupts between members in different guests: the doorbell of QEMU's ivshmem
 * device.
 *
 * Guests share no kernel, so a futex of one guest does not wake a process in another. Instead, a
 * member writes a peer's word into the device's doorbell register. QEMU then interrupts the peer's
 * guest, and Linux's vfio-pci makes an eventfd readable. Only one process can open such a device:
 * the guest's agent (guest/agent). The agent grants an interrupt and the register to each process
 * that connects to its socket. After that, interrupts go from the kernel directly to the process,
 * where a thread waits for them and wakes the sleepers.
 */
#ifndef VICINAL_REGION_DOORBELL_H
#define VICINAL_REGION_DOORBELL_H

#include <pthread.h>
#include <sys/types.h>

#include "region/region.h"

/* The socket of a device's agent: the device's PCI address follows. */
#define DOORBELL_SOCKET "/run/vicinal/doorbell-"

/*
 * The packet that the agent sends to each new connection (SOCK_SEQPACKET). It carries two
 * descriptors: an eventfd that counts the interrupts, and the file of the device's registers, for
 * mapping. The interrupt is granted until the connection ends.
 */
#define DOORBELL_VERSION 1U
struct doorbell_grant {
	uint32_t version;
	uint32_t word;   /* what peers write into their registers to interrupt this process: guest << 16 |
			    vector */
	uint32_t offset; /* of the doorbell register in the file's first page */
	uint32_t reserved;
};

struct doorbell {
	volatile uint32_t *ring; /* the doorbell register */
	void *registers;         /* the page of the register */
	uint32_t word;
	atomic_bool works; /* interrupts arrive: false once the agent is gone */
	atomic_uint rung;  /* counts interrupts; sleepers wait on it */
	int agent;         /* the connection to the agent */
	int interrupts;    /* the eventfd */
	pid_t process;     /* the process whose thread waits */
	bool listening;
	atomic_bool stop;
	pthread_t listener;
};

/*
 * Request interrupts for the members of this process in `region`, from the agent at `socket`. NULL
 * means the socket of the region's device. Returns 0; -ENOENT if there is no agent, and then
 * members poll from time to time; or another negative errno and a text if the agent or the
 * interrupt cannot be used. A first interrupt, which the process sends to itself, proves that
 * interrupts arrive.
 */
int doorbell_attach(struct region *region, const char *socket, struct region_error *error);
void doorbell_detach(struct region *region);
/* In a forked child: the interrupts belong to the parent. */
void doorbell_after_fork(const struct region *region);

static inline bool doorbell_works(const struct doorbell *doorbell)
{
	return doorbell != NULL && atomic_load_explicit(&doorbell->works, memory_order_relaxed);
}

/* The value of section_header.interrupt for this member. */
static inline uint64_t doorbell_offer(const struct doorbell *doorbell)
{
	return doorbell != NULL ? INTERRUPTIBLE | doorbell->word : 0;
}

/*
 * The number of interrupts so far. Acquire: pairs with the listener's release in
 * sleep_wake_private(). A caller that sees a count also sees what came before the interrupt.
 */
static inline uint32_t doorbell_count(const struct doorbell *doorbell)
{
	return doorbell != NULL ? atomic_load_explicit(&doorbell->rung, memory_order_acquire) : 0;
}

/*
 * Interrupt the member that published `offer`. A peer wrote that word, but a false word can cause
 * only a needless interrupt: the device ignores numbers of guests and vectors that do not exist.
 * Does not block. Returns false if `offer` says that the member cannot be interrupted.
 */
bool doorbell_ring(const struct doorbell *doorbell, uint64_t offer);

#endif
