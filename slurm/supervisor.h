/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * supervisor.h - the supervisor of a job's nodes on this host: a process of the job's user that
 * creates the nodes, and lasts until the job ends.
 *
 * It is the first process of a PID namespace, so all processes that it created end with it,
 * whatever ends it. It has a mount namespace, and in the plugin's directory a file system in memory
 * that no other process sees and that also ends with it: it holds the job's region, sockets and
 * state. It is no child of slurmstepd, because slurmstepd's children end with the step.
 */
#ifndef VICINAL_SLURM_SUPERVISOR_H
#define VICINAL_SLURM_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "node_vfs.h"
#include "settings.h"
#include "supervisor_record.h"

struct supervisor_order {
	const char *const *arguments; /* the program, its arguments, and NULL */
	const char *directory;        /* the directory of regions */
	const char *home;             /* the user's home directory */
	const char *file;             /* the cluster's file */
	const char *secret;           /* the job's, the same on all hosts; "" if unknown */
	uint64_t most;                /* size limit of its file system, in bytes */
	uint32_t job;
	uid_t user;
	gid_t group;
	const gid_t *groups; /* the user's supplementary groups */
	size_t groups_count;
	bool (*is_ending)(uint32_t job); /* called from time to time: whether the job is ending */
	/*
	 * Connect the nodes' network with those on the job's other hosts, through the network
	 * between (supervisor_network.h). Returns 0, or -1 with the reason in `said`. NULL if there
	 * is nothing to connect.
	 */
	int (*join)(const struct supervisor_order *order, int between, int nodes, char *said, size_t length);
	const struct settings *settings; /* for join() and for the VFs of nodes */
	struct node_vfs *vfs;            /* VFs for the nodes; NULL if there are none */
};

/*
 * Start the supervisor of a job, unless it runs, and wait until it has created the nodes. Returns 0
 * and its record, or -1 with the reason in `said`; after an error, nothing of it remains.
 */
int supervisor_start(const struct supervisor_order *order, struct supervisor_record *started, char *said,
		     size_t length);

/*
 * End a job's supervisor, and with it all that it created, and remove its record. No supervisor is
 * no error. Returns 0, or -1 if something remains.
 */
int supervisor_end(const char *directory, uint32_t job);

#endif
