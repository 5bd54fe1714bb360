/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix_relay.h - hands bytes between a network of nodes and a server on the loopback of the host's.
 *
 * A socket is of the network in which it was made. So the one that tasks connect to is made by a process in
 * the node, and the one from there to the server by a process that is not.
 */
#ifndef VICINAL_SLURM_PMIX_RELAY_H
#define VICINAL_SLURM_PMIX_RELAY_H

#include <stdint.h>

/* Listen on the loopback of this process's network, at a port that is free. Returns the socket, or -1. */
int pmix_relay_listen(uint16_t *port);

/*
 * Hand on what connects to `listener` to that port of this process's loopback, and back, until `ended` can be
 * read, and then what has come by then. `listener` is taken over.
 */
void pmix_relay_run(int listener, uint16_t port, int ended);

#endif
