/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * supervisor_record.h - what root writes down of the supervisor of a job's nodes (supervisor.h):
 * DIRECTORY/nodes-JOB, of one line with its process, the time since which the host runs, and the cluster's
 * file.
 *
 * It is locked by the process that makes the nodes, or ends them.
 */
#ifndef VICINAL_SLURM_SUPERVISOR_RECORD_H
#define VICINAL_SLURM_SUPERVISOR_RECORD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "process.h"

struct supervisor_record {
	struct process process; /* 0 where nothing is written down yet */
	char file[PATH_MAX];
};

/*
 * Open a job's record and lock it, and make it if it is not there and that is wanted. Waits `seconds` for the
 * lock. Returns a descriptor, or -1 with errno, which is ENOENT where there is none, EWOULDBLOCK where it
 * stays locked.
 */
int supervisor_record_open(const char *directory, uint32_t job, bool make, unsigned seconds);

/* What it says; of a supervisor that has ended nothing. */
void supervisor_record_read(int record, struct supervisor_record *found);

/* The same of a job's record, even if another process has locked it. Returns whether its supervisor runs. */
bool supervisor_record_find(const char *directory, uint32_t job, struct supervisor_record *found);

/* Write it down. Returns 0, or -1 with errno. */
int supervisor_record_write(int record, const struct supervisor_record *written);

/* Remove it. */
void supervisor_record_remove(const char *directory, uint32_t job);

/* Call `each` with the job of every record in the directory. */
void supervisor_record_list(const char *directory, void (*each)(uint32_t job, void *data), void *data);

#endif
