/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.h - waiting for a peer's word, with the MPI library's progress, and noticing that the peer is gone. */
#ifndef VICINAL_COLLECTIVES_WAIT_H
#define VICINAL_COLLECTIVES_WAIT_H

#include "collectives/communicator.h"

/* Has the peer left the region, or died? Asks the kernel. */
bool communicator_peer_is_gone(struct communicator *communicator, int rank);

/* Tells the provider that this thread, while it polls, waits for words in the region. */
void communicator_wait_elsewhere(bool waits);

/* All further collectives of the communicator fail, because of what the member `rank` did. Says so. */
void communicator_break(struct communicator *communicator, int rank, const char *what);

struct wait {
	unsigned int rounds;
	uint64_t began; /* 0: not set yet */
	uint64_t next_check;
};

/*
 * One round of a wait for `rank`: lets the MPI library work, and offers the core after a while. Returns false
 * if that member is gone.
 */
bool wait_go_on(struct wait *wait, struct communicator *communicator, int rank);

#endif
