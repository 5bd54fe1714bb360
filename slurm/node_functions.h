/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_functions.h - SR-IOV functions that a job has for its nodes on this host: their interfaces
 * move from the host's network to the networks of containers, or virtual machines get the functions
 * by VFIO.
 *
 * A file that only root writes, functions-JOB.nodes, lists the functions, one on each line, in
 * words separated by blanks: the PCI address, `ethernet` or `infiniband`, and further words for the
 * supervisor (src/vicinal/integrations/slurm/lent_functions.py).
 *
 * Functions are released by their addresses, wherever their interfaces are then
 * (docs/how-to/slurm.md), so their use is not recorded.
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
	bool for_vms; /* virtual machines have all of them */
};

enum node_functions_state {
	NODE_FUNCTIONS_NONE, /* the job's functions, if there are any, are not for nodes */
	NODE_FUNCTIONS_GIVEN,
	NODE_FUNCTIONS_WRONG, /* root does not own the file, or it lists too many functions */
};

enum node_functions_state node_functions_read(const char *directory, uint32_t job,
					      struct node_functions *found);

/*
 * Move the interface of one function from the host's network to another network, under the name
 * lentNUMBER, down and without an address. Each function can be moved once. Returns 0, or -1 with
 * the reason in `said`.
 */
int node_functions_grant(struct node_functions *functions, uint32_t number, int network, char *said,
			 size_t length);

/*
 * Bind all of them to vfio-pci, and permit the user to open them, for virtual machines of the job.
 * Possible once, and only if none was moved. Returns as above.
 */
int node_functions_grant_to_vms(struct node_functions *functions, const struct settings *settings,
				uint32_t job, uid_t user, char *said, size_t length);

#endif
