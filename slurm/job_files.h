/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_files.h - names of files in the directory of regions: PREFIX, as in `job-`, and the number of a job.
 * What has a dot and more behind that is of the same job.
 */
#ifndef VICINAL_SLURM_JOB_FILES_H
#define VICINAL_SLURM_JOB_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Path of a job's file. Returns 0, or -1 where it would be too long. */
int job_files_path(const char *directory, const char *prefix, uint32_t job, char path[PATH_MAX]);

/* Whether a name in the directory is of a job's files with this prefix, and of which job. */
bool job_files_is_of(const char *name, const char *prefix, uint32_t *job);

#endif
