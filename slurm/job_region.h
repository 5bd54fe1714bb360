/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_region.h - the regions of jobs on this host, as files in a directory that only root can
 * write.
 *
 * job-ID is the region of job ID, and belongs to the job's user. job-ID.SUFFIX is a region that is
 * being created.
 */
#ifndef VICINAL_SLURM_JOB_REGION_H
#define VICINAL_SLURM_JOB_REGION_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The path of a job's region. Returns 0, or -1 if the path is too long. */
int job_region_path(const char *directory, uint32_t job, char path[PATH_MAX]);

enum job_region_state {
	JOB_REGION_NONE,
	JOB_REGION_GOOD,
	JOB_REGION_FOREIGN, /* something else has this name */
};

/*
 * Find a region. If it exists, `members` is its number of member slots, or 0 if that cannot be
 * read.
 */
enum job_region_state job_region_find(const char *path, uid_t user, uint32_t *members);

/* Remove all files of a job. Returns how many could not be removed. No files is no error. */
unsigned job_region_remove(const char *directory, uint32_t job);

/* Remove the unfinished region of a job that a process left behind. */
void job_region_remove_part(const char *directory, uint32_t job, pid_t process);

/* Whether a region of any job has no living member, so that it may be left over. */
bool job_region_any_idle(const char *directory);

#endif
