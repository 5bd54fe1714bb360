/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_functions.h - records of the SR-IOV functions of jobs on this host, as files in the directory
 * of regions, which only root can write.
 *
 *  functions-ID        variables for the tasks of job ID, whose functions are set up; empty if it has none
 *  functions-ID.nodes  the functions for the job's nodes (node_functions.h)
 *  functions-ID.lock   exists from before the first function is set up until the last was released
 *
 * `vicinal slurm functions` and `vicinal slurm release` create and remove these files, except empty
 * ones.
 */
#ifndef VICINAL_SLURM_JOB_FUNCTIONS_H
#define VICINAL_SLURM_JOB_FUNCTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* The path of a job's variables. Returns 0, or -1 if the path is too long. */
int job_functions_path(const char *directory, uint32_t job, char path[PATH_MAX]);

enum job_functions_state {
	JOB_FUNCTIONS_UNKNOWN, /* no step has asked Slurm yet */
	JOB_FUNCTIONS_NONE,
	JOB_FUNCTIONS_GIVEN,
	JOB_FUNCTIONS_FOREIGN, /* something else has this name */
};

enum job_functions_state job_functions_find(const char *path);

/*
 * Record that a job has no functions, so that its next step need not ask Slurm. If that fails, the
 * next step asks again.
 */
void job_functions_note_none(const char *directory, const char *path);

/*
 * Whether Slurm's words for a job's GRES on a host, such as vf:ib0(CNT:1),gpu(IDX:0), contain the
 * GRES `name`.
 */
bool job_functions_are_named(const char *words, const char *name);

/*
 * Remove the record that a job has no functions. Returns whether other files of the job remain, for
 * `vicinal slurm release`.
 */
bool job_functions_remain(const char *directory, uint32_t job);

/* Whether there are functions of a job for which `is_meant` is true. */
bool job_functions_any(const char *directory, bool (*is_meant)(uint32_t job));

#endif
