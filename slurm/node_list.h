/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_list.h - the nodes of a job on this host, as its supervisor lists them in the file `nodes` of its
 * directory (src/vicinal/integrations/slurm/node_list.py):
 *
 *	region VALUE MEMBERS                VICINAL_REGION of tasks in containers, and its member slots
 *	identity PROCESS BEGAN              its user namespace is that of tasks in containers
 *	node NAME container PROCESS BEGAN   the first process of a container
 *	node NAME exec                      tasks are run by a program
 *	functions ADDRESSES INTERFACES DEVICES   those of the node before; `-` for none
 *	interface NAME                      what the nodes reach each other by, if by functions
 *
 * Processes are as the supervisor numbers them. The supervisor is the user's: nothing in it is to be believed
 * more than the user.
 */
#ifndef VICINAL_SLURM_NODE_LIST_H
#define VICINAL_SLURM_NODE_LIST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "process.h"

#define NODE_NAME_MAX 64U
#define NODE_FUNCTION_WORDS 3U
#define NODE_FUNCTIONS_MOST_BYTES 1024U

struct node {
	char name[NODE_NAME_MAX];
	bool is_container;
	struct process process;
};

struct node_list {
	uint32_t count;
	char region[PATH_MAX]; /* empty where there is none */
	uint32_t members;
	struct process identity; /* 0 where tasks have the containers' */
	char interface[NODE_NAME_MAX];
	struct node node;                                               /* the task's own */
	char functions[NODE_FUNCTION_WORDS][NODE_FUNCTIONS_MOST_BYTES]; /* of that; empty: nothing is said */
};

/*
 * Read the list of a supervisor whose directory in /proc is open as `supervisor`, for task `task` of `tasks`
 * on this host: as many tasks in a row as there are in every node. Returns 0, or -1 where there is none, or
 * it is none.
 */
int node_list_read(int supervisor, const char *directory, uint32_t task, uint32_t tasks,
		   struct node_list *list);

#endif
