/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix.h - the PMIx server of a step, and the variables by which tasks find it.
 *
 * slurmstepd has one for `srun --mpi=pmix`. It listens on the loopback of the host's network, and tasks read
 * where in PMIX_SERVER_URI2, PMIX_SERVER_URI3 and so on, such as
 *
 *     pmix-server.16;tcp4://127.0.0.1:58725
 */
#ifndef VICINAL_SLURM_PMIX_H
#define VICINAL_SLURM_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With all that is around the address. */
#define PMIX_SETTING_MAX 1024U

/* A variable, as it is to be. */
struct pmix_setting {
	char name[PMIX_SETTING_MAX];
	char value[PMIX_SETTING_MAX];
};

/*
 * The port of the server, of which `variables` (NAME=VALUE, up to NULL) tell and which listens in a process
 * that this one was forked from: it still has the socket. So no variable of the user's makes another port of
 * the host's one of these. 0 where there is no such server.
 */
uint16_t pmix_server_port(const char *const *variables);

/* Whether a variable tells where the server is whose port is `port`; what it is to be where that is `other`.
 */
bool pmix_move(const char *variable, uint16_t port, uint16_t other, struct pmix_setting *setting);

#endif
