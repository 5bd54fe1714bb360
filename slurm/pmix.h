/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix.h - the PMIx server of a step, and the variables by which tasks find it.
 *
 * slurmstepd has a server for `srun --mpi=pmix`. It listens on the loopback of the host's network.
 * Tasks read its address from PMIX_SERVER_URI2, PMIX_SERVER_URI3 and so on, for example
 *     pmix-server.16;tcp4://127.0.0.1:58725
 */
#ifndef VICINAL_SLURM_PMIX_H
#define VICINAL_SLURM_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for the whole value around the address. */
#define PMIX_SETTING_MAX 1024U

/* A variable with its new value. */
struct pmix_setting {
	char name[PMIX_SETTING_MAX];
	char value[PMIX_SETTING_MAX];
};

/*
 * The port of the server, according to `variables` (NAME=VALUE, up to NULL). A socket of this
 * process must be listening at the port: it is inherited from the server's process. So a user
 * cannot name another port of the host by a variable. 0 if there is no such server.
 */
uint16_t pmix_server_port(const char *const *variables);

/*
 * Whether a variable contains the server's port `port`. If so, sets its value with `other` as the
 * port.
 */
bool pmix_move(const char *variable, uint16_t port, uint16_t other, struct pmix_setting *setting);

#endif
