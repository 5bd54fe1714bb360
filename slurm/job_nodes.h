/* SPDX-License-Identifier: BSD-3-Clause */
/* job_nodes.h - a job's nodes on this host, made from a cluster's file: what Slurm's hooks do for them. */
#ifndef VICINAL_SLURM_JOB_NODES_H
#define VICINAL_SLURM_JOB_NODES_H

#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "node_functions.h"
#include "request.h"
#include "settings.h"

/* Whether the cluster's file can be read; for srun, sbatch and salloc, which nobody has to wait for. As
 * below. */
int job_nodes_check(const struct request *request, char *fault, size_t length);

/*
 * See that the nodes are there, before there is any task of a step: the first step on a host makes them.
 * `tasks` is how many there is to be room for, `functions` those that the job has for its nodes on this host.
 * Returns 0, or -1 with the reason in `fault`.
 */
int job_nodes_prepare(spank_t spank, const struct settings *settings, const struct request *request,
		      uint32_t tasks, struct node_functions *functions, char *fault, size_t length);

/* In slurmstepd, when all tasks of a step wait: tell its PMIx server, if it has one, in which nodes they are.
 * As above. */
int job_nodes_tell(spank_t spank, const struct settings *settings, char *fault, size_t length);

/* In a task, as its user: go on in its node, or become what runs it there. As above. */
int job_nodes_enter(spank_t spank, const struct settings *settings, char *fault, size_t length);

/* In the epilog of a job: end its nodes, and those that other jobs left. */
void job_nodes_end(const struct settings *settings, uint32_t job);

#endif
