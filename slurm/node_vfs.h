/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_vfs.h - SR-IOV VFs that a job has for its nodes on this host: their interfaces
 * move from the host's network to the networks of containers, or virtual machines get the VFs
 * by VFIO.
 *
 * A file that only root writes, vfs-JOB.nodes, lists the VFs, one on each line, in
 * words separated by blanks: the PCI address, `ethernet` or `infiniband`, and further words for the
 * supervisor (src/vicinal/integrations/slurm/granted_vfs.py).
 *
 * VFs are released by their addresses, wherever their interfaces are then
 * (docs/how-to/slurm.md), so their use is not recorded.
 */
#ifndef VICINAL_SLURM_NODE_VFS_H
#define VICINAL_SLURM_NODE_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "settings.h"

#define NODE_VFS_MAX 64U
#define NODE_VF_LINE_MAX 512U

struct node_vfs {
	uint32_t count;
	char lines[NODE_VFS_MAX][NODE_VF_LINE_MAX];
	bool granted[NODE_VFS_MAX];
	bool for_vms; /* virtual machines have all of them */
};

enum node_vfs_state {
	NODE_VFS_NONE, /* the job's VFs, if there are any, are not for nodes */
	NODE_VFS_GIVEN,
	NODE_VFS_WRONG, /* root does not own the file, or it lists too many VFs */
};

enum node_vfs_state node_vfs_read(const char *directory, uint32_t job, struct node_vfs *found);

/*
 * Move the interface of one VF from the host's network to another network, under the name
 * vfNUMBER, down and without an address. Each VF can be moved once. Returns 0, or -1 with
 * the reason in `said`.
 */
int node_vfs_grant(struct node_vfs *vfs, uint32_t number, int network, char *said, size_t length);

/*
 * Bind all of them to vfio-pci, and permit the user to open them, for virtual machines of the job.
 * Possible once, and only if none was moved. Returns as above.
 */
int node_vfs_grant_to_vms(struct node_vfs *vfs, const struct settings *settings, uint32_t job, uid_t user,
			  char *said, size_t length);

#endif
