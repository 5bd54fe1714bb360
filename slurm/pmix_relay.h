/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix_relay.h - relays bytes between a network of nodes and a server on the loopback of the host's
 * network.
 *
 * A socket belongs to the network in which it was created. So a process in the node creates the
 * socket to which tasks connect, and a process outside creates the socket to the server.
 */
#ifndef VICINAL_SLURM_PMIX_RELAY_H
#define VICINAL_SLURM_PMIX_RELAY_H

#include <stdint.h>

/* Listen on the loopback of this process's network, at a free port. Returns the socket, or -1. */
int pmix_relay_listen(uint16_t *port);

/*
 * Relay connections to `listener` to a port of this process's loopback, and back, until `ended` is
 * readable; then relay what has arrived by then. Takes over `listener`.
 */
void pmix_relay_run(int listener, uint16_t port, int ended);

#endif
