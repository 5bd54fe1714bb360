/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_files.h - names of files in the directory of regions: PREFIX, for example `job-`, and the
 * number of a job. A dot and a suffix may follow.
 */
#ifndef VICINAL_SLURM_JOB_FILES_H
#define VICINAL_SLURM_JOB_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* The path of a job's file. Returns 0, or -1 if the path is too long. */
int job_files_path(const char *directory, const char *prefix, uint32_t job, char path[PATH_MAX]);

/* Whether a name belongs to a job's files with this prefix, and to which job. */
bool job_files_is_of(const char *name, const char *prefix, uint32_t *job);

#endif
