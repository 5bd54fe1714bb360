/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_vfs.h - records of the SR-IOV VFs of jobs on this host, as files in the directory
 * of regions, which only root can write.
 *
 *  vfs-ID        variables for the tasks of job ID, whose VFs are set up; empty if it has none
 *  vfs-ID.nodes  the VFs for the job's nodes (node_vfs.h)
 *  vfs-ID.lock   exists from before the first VF is set up until the last was released
 *
 * `vicinal slurm vfs` and `vicinal slurm release` create and remove these files, except empty
 * ones.
 */
#ifndef VICINAL_SLURM_JOB_VFS_H
#define VICINAL_SLURM_JOB_VFS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* The path of a job's variables. Returns 0, or -1 if the path is too long. */
int job_vfs_path(const char *directory, uint32_t job, char path[PATH_MAX]);

enum job_vfs_state {
	JOB_VFS_UNKNOWN, /* no step has asked Slurm yet */
	JOB_VFS_NONE,
	JOB_VFS_GIVEN,
	JOB_VFS_FOREIGN, /* something else has this name */
};

enum job_vfs_state job_vfs_find(const char *path);

/*
 * Record that a job has no VFs, so that its next step need not ask Slurm. If that fails, the
 * next step asks again.
 */
void job_vfs_note_none(const char *directory, const char *path);

/*
 * Whether Slurm's words for a job's GRES on a host, such as vf:ib0(CNT:1),gpu(IDX:0), contain the
 * GRES `name`.
 */
bool job_vfs_are_named(const char *words, const char *name);

/*
 * Remove the record that a job has no VFs. Returns whether other files of the job remain, for
 * `vicinal slurm release`.
 */
bool job_vfs_remain(const char *directory, uint32_t job);

/* Whether there are VFs of a job for which `is_meant` is true. */
bool job_vfs_any(const char *directory, bool (*is_meant)(uint32_t job));

#endif
