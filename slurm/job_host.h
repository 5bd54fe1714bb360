/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_host.h - which host of its job a step is on.
 *
 * A heterogeneous job's components are jobs with numbers of their own. A step over several of them is a step
 * in each, whose variables are of all together: so slurmctld is asked which hosts are the component's.
 * Variables are the user's: wrong ones harm the job alone.
 */
#ifndef VICINAL_SLURM_JOB_HOST_H
#define VICINAL_SLURM_JOB_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include <slurm/spank.h>

struct job_host {
	uint32_t first;   /* the number of the job's first component, or the job's */
	uint32_t hosts;   /* of the job, or of the component */
	uint32_t host;    /* which of them this is */
	bool is_spanning; /* the step has tasks in other components too */
};

/* The hosts of a job by slurmctld, and in `first`, unless it is NULL, the number of its first component.
 * Returns the list, which is to be freed, or NULL. */
char *job_host_list(uint32_t job, uint32_t *first);

/* Returns 0, or -1 where Slurm does not say it. */
int job_host_find(spank_t spank, uint32_t job, struct job_host *host);

#endif
