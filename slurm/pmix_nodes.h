/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix_nodes.h - tells the PMIx server of a step the nodes of its tasks.
 *
 * Slurm's PMIx plugin says that all tasks of a host are on one node. Open MPI would assume that
 * they share files and process numbers, and crash if they do not. So before there are tasks, the
 * server, which is in slurmstepd, is told for each node which tasks are local to each other. A task
 * reads the description of the node that its PMIX_HOSTNAME names.
 */
#ifndef VICINAL_SLURM_PMIX_NODES_H
#define VICINAL_SLURM_PMIX_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "node_list.h"

struct pmix_task {
	uint32_t rank;
	char node[NODE_NAME_MAX];
};

/* Whether this was built with PMIx's headers. */
bool pmix_nodes_known(void);

/*
 * Tell this process's server the tasks on this host; tasks of one node must be consecutive. `space`
 * is the step's name in PMIx. Returns 0, also if this process has no such server, or -1.
 */
int pmix_nodes_tell(const char *space, const struct pmix_task *tasks, uint32_t count);

#endif
