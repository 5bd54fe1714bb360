/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * supervisor.h - the supervisor of a job's nodes on this host: a process of the job's user that makes them,
 * and stays until the job ends.
 *
 * It is the first process of a PID namespace, so that with it all ends that it made, whatever kills it and
 * whatever that was. It has mounts of its own, and in the plugin's directory a file system in memory that
 * nobody else sees, which ends with it too: the job's region, sockets and state are there. It is no child of
 * slurmstepd, whose children end with the step.
 */
#ifndef VICINAL_SLURM_SUPERVISOR_H
#define VICINAL_SLURM_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "node_functions.h"
#include "settings.h"
#include "supervisor_record.h"

struct supervisor_order {
	const char *const *arguments; /* the program, and its arguments, with NULL behind them */
	const char *directory;        /* where regions are */
	const char *home;             /* the user's */
	const char *file;             /* the cluster's file */
	const char *secret;           /* of the job, the same on all hosts; "" where none is known */
	uint64_t most;                /* bytes that its file system may have */
	uint32_t job;
	uid_t user;
	gid_t group;
	const gid_t *groups; /* the user's others */
	size_t groups_count;
	bool (*is_ending)(uint32_t job); /* asked now and then: whether Slurm ends the job */
	/* Join the nodes' network with those of the job's other hosts, by the network between
	 * (supervisor_network.h): returns 0, or -1 with the reason in `said`. NULL where there is nothing to
	 * join. */
	int (*join)(const struct supervisor_order *order, int between, int nodes, char *said, size_t length);
	const struct settings *settings;  /* for that, and for what nodes have of functions */
	struct node_functions *functions; /* that the nodes are to have; NULL where there are none */
};

/*
 * Start the supervisor of a job, unless it runs, and wait until it has made the nodes. Returns 0 and which
 * process it is, or -1 with what it said of why there is none in `said`; nothing of it is left then.
 */
int supervisor_start(const struct supervisor_order *order, struct supervisor_record *started, char *said,
		     size_t length);

/*
 * End a job's supervisor, and with it all that it made, and remove its record. That there is none is no
 * error. Returns 0, or -1 if something is left.
 */
int supervisor_end(const char *directory, uint32_t job);

#endif
