/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_nodes.h - a job's nodes on this host, created from a cluster file: the actions of Slurm's
 * hooks.
 */
#ifndef VICINAL_SLURM_JOB_NODES_H
#define VICINAL_SLURM_JOB_NODES_H

#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "node_vfs.h"
#include "request.h"
#include "settings.h"

/*
 * Check that the cluster file can be read; for srun, sbatch and salloc, before the job waits in the
 * queue. Returns as below.
 */
int job_nodes_check(const struct request *request, char *fault, size_t length);

/*
 * Create the nodes before a step has tasks, if they do not exist: the first step on a host creates
 * them. `tasks` is the number of tasks for which there must be room. `vfs` are the job's
 * VFs for its nodes on this host. Returns 0, or -1 with the reason in `fault`.
 */
int job_nodes_prepare(spank_t spank, const struct settings *settings, const struct request *request,
		      uint32_t tasks, struct node_vfs *vfs, char *fault, size_t length);

/*
 * In slurmstepd, while all tasks of a step wait: tell the step's PMIx server, if there is one, the
 * nodes of the tasks. Returns as above.
 */
int job_nodes_tell(spank_t spank, const struct settings *settings, char *fault, size_t length);

/*
 * In a task, as its user: continue in its node, or execute the program that runs it there. Returns
 * as above.
 */
int job_nodes_enter(spank_t spank, const struct settings *settings, char *fault, size_t length);

/* In the epilog of a job: end its nodes, and nodes that other jobs left behind. */
void job_nodes_end(const struct settings *settings, uint32_t job);

#endif
