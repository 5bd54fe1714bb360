/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_functions.h - what is known on this host of the SR-IOV functions of jobs, as files of the directory
 * of regions, which only root writes to.
 *
 *	functions-ID       variables for the tasks of job ID, whose functions are set up; empty if it has none
 *	functions-ID.nodes what of them its nodes are to have (node_functions.h)
 *	functions-ID.lock  there from before the first is set up until the last was taken back
 *
 * `vicinal slurm functions` and `vicinal slurm release` make and remove both, but for empty ones.
 */
#ifndef VICINAL_SLURM_JOB_FUNCTIONS_H
#define VICINAL_SLURM_JOB_FUNCTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Path of a job's variables. Returns 0, or -1 where it would be too long. */
int job_functions_path(const char *directory, uint32_t job, char path[PATH_MAX]);

enum job_functions_state {
	JOB_FUNCTIONS_UNKNOWN, /* nobody has asked yet */
	JOB_FUNCTIONS_NONE,
	JOB_FUNCTIONS_GIVEN,
	JOB_FUNCTIONS_FOREIGN, /* something else is in its place */
};

enum job_functions_state job_functions_find(const char *path);

/* Keep that a job has none, so that its next step need not ask. If that fails, it asks again. */
void job_functions_note_none(const char *directory, const char *path);

/* Whether Slurm's words for what a job has on a host, such as vf:ib0(CNT:1),gpu(IDX:0), name this GRES. */
bool job_functions_are_named(const char *words, const char *name);

/* Remove the note that a job has none. Returns whether there is more of it, for `vicinal slurm release`. */
bool job_functions_remain(const char *directory, uint32_t job);

/* Whether there are functions of a job of which this is true. */
bool job_functions_any(const char *directory, bool (*is_meant)(uint32_t job));

#endif
