/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_host.h - the index of a step's host in its job.
 *
 * The components of a heterogeneous job are jobs with numbers of their own. A step over several
 * components is a step in each of them, and its variables cover all components together. So the
 * plugin asks slurmctld for the component's hosts. The user controls the variables, but wrong ones
 * harm only the job.
 */
#ifndef VICINAL_SLURM_JOB_HOST_H
#define VICINAL_SLURM_JOB_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include <slurm/spank.h>

struct job_host {
	uint32_t first;   /* number of the job's first component, or of the job */
	uint32_t hosts;   /* number of hosts of the job or component */
	uint32_t host;    /* index of this host among them */
	bool is_spanning; /* the step also has tasks in other components */
};

/*
 * Ask slurmctld for the hosts of a job, and for the number of its first component unless `first` is
 * NULL. Returns the list, which the caller must free, or NULL.
 */
char *job_host_list(uint32_t job, uint32_t *first);

/* Returns 0, or -1 if Slurm does not tell. */
int job_host_find(spank_t spank, uint32_t job, struct job_host *host);

#endif
