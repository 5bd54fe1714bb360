/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix_nodes.h - tells the PMIx server of a step in which nodes its tasks are.
 *
 * Slurm's plugin says that all tasks of a host are on one node. Open MPI would take them to share files and
 * process numbers, and crash where they do not. So the server, which is in slurmstepd, is told more before
 * there is any task: for each node which tasks are local to each other. A task reads what is said of the
 * node that its PMIX_HOSTNAME names.
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
 * Tell this process's server of the tasks on this host, those of a node in a row. `space` is the step's name
 * in PMIx. Returns 0, also where this process has no such server, or -1.
 */
int pmix_nodes_tell(const char *space, const struct pmix_task *tasks, uint32_t count);

#endif
