/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_region.h - the regions of jobs on this host, as files of a directory that only root writes to.
 *
 * job-ID is the region of job ID, of the job's user; job-ID.something is one that is being made.
 */
#ifndef VICINAL_SLURM_JOB_REGION_H
#define VICINAL_SLURM_JOB_REGION_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Path of a job's region. Returns 0, or -1 where it would be too long. */
int job_region_path(const char *directory, uint32_t job, char path[PATH_MAX]);

enum job_region_state {
	JOB_REGION_NONE,
	JOB_REGION_GOOD,
	JOB_REGION_FOREIGN, /* something else is in its place */
};

/* Whether it is there; then `members` is how many member slots it has, 0 if nobody can tell. */
enum job_region_state job_region_find(const char *path, uid_t user, uint32_t *members);

/* Remove all of a job. Returns how many could not be removed; that there is none is no error. */
unsigned job_region_remove(const char *directory, uint32_t job);

/* Remove what a process has left that was to make the region of a job. */
void job_region_remove_part(const char *directory, uint32_t job, pid_t process);

/* Whether there is a region of any job that no living process is a member of: it may be left over. */
bool job_region_any_idle(const char *directory);

#endif
