/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_task.h - a task of Slurm's gets into a container.
 *
 * It keeps what slurmstepd gave it: open files, variables, limits, control group. A process that goes to
 * another PID namespace takes its children there and not itself, so it goes on as its own child; what
 * slurmstepd knows as the task waits for that outside of the node, and ends as it does.
 */
#ifndef VICINAL_SLURM_NODE_TASK_H
#define VICINAL_SLURM_NODE_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "node_list.h"

/*
 * Get into the task's own node of the list. `supervisor` is the supervisor's directory in /proc. `port` is
 * where a server for the task listens on this network's loopback, or 0; and then where the task finds it on
 * its node's, which what waits outside keeps up. Returns 0 in the node, in the same working directory; or -1
 * with the reason in `fault`, and then the process is good for nothing.
 */
int node_task_enter(int supervisor, const struct node_list *list, uint16_t *port, char *fault, size_t length);

#endif
