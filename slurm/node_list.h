/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_list.h - the nodes of a job on this host, as the supervisor lists them in the file `nodes`
 * of its directory (src/vicinal/integrations/slurm/node_list.py):
 *
 *  region VALUE MEMBERS                VICINAL_REGION of tasks in containers, and its member slots
 *  identity PROCESS BEGAN              the process whose user namespace tasks in containers use
 *  node NAME container PROCESS BEGAN   the first process of a container
 *  node NAME exec                      a program runs the tasks
 *  vfs ADDRESSES INTERFACES DEVICES   VFs of the preceding node; `-` for none
 *  interface NAME                      the interface that connects the nodes, if it is a VF's
 *
 * Process numbers are from the supervisor's PID namespace. The supervisor belongs to the user, so
 * its list deserves no more trust than the user.
 */
#ifndef VICINAL_SLURM_NODE_LIST_H
#define VICINAL_SLURM_NODE_LIST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "process.h"

#define NODE_NAME_MAX 64U
#define NODE_VF_WORDS 3U
#define NODE_VFS_MOST_BYTES 1024U

struct node {
	char name[NODE_NAME_MAX];
	bool is_container;
	struct process process;
};

struct node_list {
	uint32_t count;
	char region[PATH_MAX]; /* empty if there is none */
	uint32_t members;
	struct process identity; /* 0 if tasks use the containers' user namespace */
	char interface[NODE_NAME_MAX];
	struct node node;                             /* the node of the task */
	char vfs[NODE_VF_WORDS][NODE_VFS_MOST_BYTES]; /* VFs of that node; empty if not listed */
};

/*
 * Read the list of the supervisor whose directory in /proc is open as `supervisor`, for task `task`
 * of `tasks` on this host. Consecutive tasks fill the nodes evenly. Returns 0, or -1 if there is no
 * valid list.
 */
int node_list_read(int supervisor, const char *directory, uint32_t task, uint32_t tasks,
		   struct node_list *list);

#endif
