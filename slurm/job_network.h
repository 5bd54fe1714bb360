/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_network.h - connects the nodes of a job with its nodes on other hosts, by a network that no
 * other job shares.
 */
#ifndef VICINAL_SLURM_JOB_NETWORK_H
#define VICINAL_SLURM_JOB_NETWORK_H

#include <stddef.h>

#include "supervisor.h"

/*
 * The function for supervisor_order.join: runs as root, and relies only on what slurmctld says
 * about the job.
 */
int job_network_join(const struct supervisor_order *order, int between, int nodes, char *said, size_t length);

#endif
