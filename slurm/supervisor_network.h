/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * supervisor_network.h - a network across the hosts of a job, and SR-IOV VFs in the networks
 * of its nodes: both the supervisor's side, and the side of the process that starts it
 * (supervisor.h).
 *
 *  host's network     the job's, for root only         the nodes', the user's
 *  UDP  ─────────────  vxlan0 ── bridge ── nodes  ─────  uplink ── bridge ── nodes' interfaces
 *
 * A process with rights in the network of a VXLAN device can make it send to any host, and under
 * the number of any other job's network. So the device is in a separate network between. Only a
 * process of root holds that network, and does nothing else: a child of the supervisor, which ends
 * with the supervisor's PID namespace, so that the network ends too. The user gets one end of a
 * virtual cable.
 *
 * Networks are passed as open files, never as numbers of processes. After the first message, the
 * user controls what the supervisor sends: `n` with the network to connect, and `f` and a number
 * with the network into which that VF is to move (node_vfs.h). `m` without a file
 * requests all VFs for virtual machines. Each request is answered when it is done.
 */
#ifndef VICINAL_SLURM_SUPERVISOR_NETWORK_H
#define VICINAL_SLURM_SUPERVISOR_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The supervisor's descriptor of its end of the channel. */
#define SUPERVISOR_CHANNEL 3

/*
 * Create a channel between the supervisor and the process that starts it. Returns 0, or -1 with
 * errno.
 */
int supervisor_network_channel(int ends[2]);

/*
 * In the supervisor, as root, before any of the user's code runs: create the network between, leave
 * a process in it, and send it over the channel. Returns 0, or -1 with errno.
 */
int supervisor_network_hold(int channel);

enum supervisor_request {
	SUPERVISOR_SILENT, /* it has ended, or sent something invalid */
	SUPERVISOR_JOIN,
	SUPERVISOR_GRANT,
	SUPERVISOR_GRANT_TO_VMS,
};

struct supervisor_asked {
	enum supervisor_request request;
	int network; /* an open file for the first two requests, or -1 */
	uint32_t vf; /* index of the VF to move into the network */
};

/* Receive the next request from the channel. */
struct supervisor_asked supervisor_network_receive(int channel);

/* Tell the supervisor that its request is done. */
void supervisor_network_answer(int channel);

/*
 * Whether `network` is a network that `user` created, and neither this process's network nor, if
 * there is one, the network between.
 */
bool supervisor_network_is_of(int network, int between, uid_t user);

#endif
