/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vfs.h - SR-IOV VFs that jobs request as GRES (srun --gres=vf:1), with or without the
 * option --vicinal.
 *
 * Slurm counts the VFs, and says how many VFs of which card a job has on a host. The
 * first step on the host, not the prolog, chooses the VFs and sets them up, for the reason
 * that plugin.c gives for regions.
 */
#ifndef VICINAL_SLURM_VFS_H
#define VICINAL_SLURM_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "node_vfs.h"
#include "settings.h"

/*
 * In slurmstepd, as root: set up the job's VFs, and set the variables of its tasks. If the
 * job has nodes, `for_nodes` is not NULL: set the VFs up for the nodes, and list them there.
 * All steps of a job use them in the same way. Returns 0, or -1 with the reason in `said`.
 */
int vfs_prepare(spank_t spank, const struct settings *settings, struct node_vfs *for_nodes, char *said,
		size_t length);

/*
 * In the epilog: release the job's VFs. Returns whether a job that is over still has
 * VFs.
 */
bool vfs_end(const struct settings *settings, uint32_t job);

#endif
