/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * supervisor_network.h - a network over the hosts of a job, and functions of cards in the networks of its
 * nodes, from the supervisor's side and from its parent's (supervisor.h).
 *
 *	host's network     the job's, root's alone          the nodes', the user's
 *	UDP  ─────────────  vxlan0 ── bridge ── nodes  ─────  uplink ── bridge ── nodes' interfaces
 *
 * A process with rights in the network that a VXLAN device is in can have it send to any host, and under the
 * number of any other job's network. So it is in a network between, which a process of root's holds that
 * does nothing else: a child of the supervisor, which ends with the supervisor's PID namespace, and all of
 * the network with it. The user gets the end of a cable.
 *
 * Networks are told of by open files that stand for them, and never by numbers of processes. What the
 * supervisor tells of after the first is the user's: `n` with the network to join, and `f` and a number with
 * the one that a function is to get into (node_functions.h). With `m` alone it asks for all of them for
 * virtual machines. Each is answered when it is done.
 */
#ifndef VICINAL_SLURM_SUPERVISOR_NETWORK_H
#define VICINAL_SLURM_SUPERVISOR_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the supervisor finds its end of the channel as. */
#define SUPERVISOR_CHANNEL 3

/* A channel between the supervisor and its parent. Returns 0, or -1 with errno. */
int supervisor_network_channel(int ends[2]);

/*
 * In the supervisor, as root, before anything of the user's: make the network between, leave a process in it,
 * and tell of it by the channel. Returns 0, or -1 with errno.
 */
int supervisor_network_hold(int channel);

enum supervisor_request {
	SUPERVISOR_SILENT, /* it has ended, or says what is none of these */
	SUPERVISOR_JOIN,
	SUPERVISOR_GRANT,
	SUPERVISOR_GRANT_TO_VMS,
};

struct supervisor_asked {
	enum supervisor_request request;
	int network;       /* an open file of the first two's, or -1 */
	uint32_t function; /* which one is to get into it */
};

/* The next request that the channel tells of. */
struct supervisor_asked supervisor_network_receive(int channel);

/* Tell the supervisor that what it asked for is done. */
void supervisor_network_answer(int channel);

/* Whether this is a network which that user made, and neither this process's own nor the one between, if
 * there is one. */
bool supervisor_network_is_of(int network, int between, uid_t user);

#endif
