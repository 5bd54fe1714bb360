/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_network.h - joining the nodes of a job with those on its other hosts, in a network that no other job
 * is in.
 */
#ifndef VICINAL_SLURM_JOB_NETWORK_H
#define VICINAL_SLURM_JOB_NETWORK_H

#include <stddef.h>

#include "supervisor.h"

/* What supervisor_order's `join` is to do: as root, by what slurmctld says of the job, and by nothing else.
 */
int job_network_join(const struct supervisor_order *order, int between, int nodes, char *said, size_t length);

#endif
