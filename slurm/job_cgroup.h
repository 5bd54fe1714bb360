/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_cgroup.h - putting a process into the control groups of a job, as long as that lasts.
 *
 * The groups of a step end with it. With PrologFlags=Contain every job has the step `extern`, which is there
 * from its beginning to its end, for what belongs to the job and to no other step.
 */
#ifndef VICINAL_SLURM_JOB_CGROUP_H
#define VICINAL_SLURM_JOB_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Put a process where those of the job's step `extern` are, whatever hierarchies there are. Where Slurm has
 * no control groups for jobs it stays; where they end with each step too, unless it `must` have some that
 * last. Returns 0, or -1 with the reason in `fault`.
 */
int job_cgroup_enter(uint32_t job, pid_t process, bool must, char *fault, size_t length);

/*
 * The path of the job's groups, by those that a process of the job is in, as /proc/PID/cgroup has them. It
 * counts from the root on: a user that may make groups, such as one with a session of systemd's, calls them
 * what he likes. Returns whether there is one.
 *
 * Version 1 of control groups has a hierarchy for each controller, and one path in all of them:
 * 4:memory:/slurm/uid_1/job_7/step_0. Version 2 has one:
 * 0::/system.slice/slurmstepd.scope/job_7/step_0/slurm.
 */
bool job_cgroup_find(const char *groups, uint32_t job, char path[PATH_MAX]);

/*
 * Whether these are groups of a process of the step `extern` of the job with this path: all that are of the
 * job. The step's slurmstepd is in others in some hierarchies, or in one of its own.
 */
bool job_cgroup_is_of_extern(const char *groups, const char *job);

#endif
