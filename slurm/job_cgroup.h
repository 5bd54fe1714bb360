/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_cgroup.h - putting a process into the control groups of a job, as long as that lasts.
 *
 * The groups of a step end with it. With PrologFlags=Contain every job has the step `extern`, which is there
 * from its beginning to its end, for what belongs to the job and to no other step.
 */
#ifndef VICINAL_SLURM_JOB_CGROUP_H
#define VICINAL_SLURM_JOB_CGROUP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Put a process where those of the job's step `extern` are, whatever hierarchies there are. Where Slurm has
 * no control groups for jobs it stays. Returns 0, or -1 with the reason in `fault`.
 */
int job_cgroup_enter(uint32_t job, pid_t process, char *fault, size_t length);

#endif
