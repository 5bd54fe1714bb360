/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * supervisor_record.h - root's record of the supervisor of a job's nodes (supervisor.h):
 * DIRECTORY/nodes-JOB, one line with its process, the boot id of the host, and the cluster file.
 *
 * A process that creates or ends the nodes holds a lock on the file.
 */
#ifndef VICINAL_SLURM_SUPERVISOR_RECORD_H
#define VICINAL_SLURM_SUPERVISOR_RECORD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "process.h"

struct supervisor_record {
	struct process process; /* 0 if nothing is recorded yet */
	char file[PATH_MAX];
};

/*
 * Open and lock a job's record; create it if it does not exist and `make` is set. Waits up to
 * `seconds` for the lock. Returns a descriptor, or -1 with errno: ENOENT if there is no record,
 * EWOULDBLOCK if it stays locked.
 */
int supervisor_record_open(const char *directory, uint32_t job, bool make, unsigned seconds);

/* Read a record. The result is empty if the supervisor has ended. */
void supervisor_record_read(int record, struct supervisor_record *found);

/* The same for a job's record, without its lock. Returns whether the supervisor runs. */
bool supervisor_record_find(const char *directory, uint32_t job, struct supervisor_record *found);

/* Write a record. Returns 0, or -1 with errno. */
int supervisor_record_write(int record, const struct supervisor_record *written);

void supervisor_record_remove(const char *directory, uint32_t job);

/* Call `each` with the job of every record in the directory. */
void supervisor_record_list(const char *directory, void (*each)(uint32_t job, void *data), void *data);

#endif
