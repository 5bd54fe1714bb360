/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_functions.h - SR-IOV functions that a job has for its nodes on this host: their interfaces get from
 * the host's network into those of containers, or virtual machines have them by VFIO.
 *
 * Which ones they are is in a file of root's, functions-JOB.nodes, with a line for each, of words with a
 * blank between (src/vicinal/integrations/slurm/lent_functions.py): its PCI address, `ethernet` or
 * `infiniband`, and what the supervisor is to know besides.
 *
 * They are taken back by their addresses, wherever their interfaces are then (docs/how-to/slurm.md): so
 * nothing of this need be written down.
 */
#ifndef VICINAL_SLURM_NODE_FUNCTIONS_H
#define VICINAL_SLURM_NODE_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "settings.h"

#define NODE_FUNCTIONS_MAX 64U
#define NODE_FUNCTION_LINE_MAX 512U

struct node_functions {
	uint32_t count;
	char lines[NODE_FUNCTIONS_MAX][NODE_FUNCTION_LINE_MAX];
	bool granted[NODE_FUNCTIONS_MAX];
	bool for_vms; /* all of them */
};

enum node_functions_state {
	NODE_FUNCTIONS_NONE, /* the job's functions, if it has some, are not for nodes */
	NODE_FUNCTIONS_GIVEN,
	NODE_FUNCTIONS_WRONG, /* the file is none of root's, or has more than there is room for */
};

enum node_functions_state node_functions_read(const char *directory, uint32_t job,
					      struct node_functions *found);

/*
 * Put the interface of one of them, which has a place in the host's network, into another network, under the
 * name lentNUMBER, down and without an address. Each only once. Returns 0, or -1 with the reason in `said`.
 */
int node_functions_grant(struct node_functions *functions, uint32_t number, int network, char *said,
			 size_t length);

/*
 * Have all of them on vfio-pci, and let that user open them, for virtual machines of the job. Only once, and
 * if none was granted. As above.
 */
int node_functions_grant_to_vms(struct node_functions *functions, const struct settings *settings,
				uint32_t job, uid_t user, char *said, size_t length);

#endif
