/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_cgroup.h - moves a process into the control groups of a job that last as long as the job.
 *
 * The groups of a step end with the step. With PrologFlags=Contain, every job has the step
 * `extern`, which lasts from the beginning of the job to its end, for processes that belong to no
 * other step.
 */
#ifndef VICINAL_SLURM_JOB_CGROUP_H
#define VICINAL_SLURM_JOB_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Move a process into the groups of the job's step `extern`, in all hierarchies. If Slurm has no
 * control groups for jobs, the process stays. If the groups end with each step, it also stays,
 * unless it `must` have lasting groups. Returns 0, or -1 with the reason in `fault`.
 */
int job_cgroup_enter(uint32_t job, pid_t process, bool must, char *fault, size_t length);

/*
 * Find the path of the job's groups in the groups of one of its processes, in the format of
 * /proc/PID/cgroup. The path counts from the root, because any user who may create groups, for
 * example with a session of systemd, can give them any name. Returns whether the job has groups.
 *
 * Version 1 of control groups has a hierarchy for each controller, with the same path in all of
 * them: 4:memory:/slurm/uid_1/job_7/step_0. Version 2 has one:
 * 0::/system.slice/slurmstepd.scope/job_7/step_0/slurm.
 */
bool job_cgroup_find(const char *groups, uint32_t job, char path[PATH_MAX]);

/*
 * Whether these are the groups of a process of the step `extern` of the job with this path: all
 * groups of the job among them must be of that step. The step's slurmstepd is in other groups in
 * some hierarchies, or in a group of its own.
 */
bool job_cgroup_is_of_extern(const char *groups, const char *job);

#endif
