/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_task.h - moves a task of Slurm into a container.
 *
 * The task keeps what slurmstepd gave it: open files, variables, limits and control group. A
 * process that enters another PID namespace does not move itself, only its later children. So the
 * task continues as its own child. The process that slurmstepd knows as the task waits for the
 * child outside the node, and ends in the same way.
 */
#ifndef VICINAL_SLURM_NODE_TASK_H
#define VICINAL_SLURM_NODE_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "node_list.h"

/*
 * Enter the task's node from the list. `supervisor` is the supervisor's directory in /proc. `*port`
 * is the port of a server for the task on the loopback of this network, or 0. It is replaced by the
 * port in the node's network, which the process outside relays. Returns 0 in the node, in the same
 * working directory; or -1 with the reason in `fault`, and then the process must end.
 */
int node_task_enter(int supervisor, const struct node_list *list, uint16_t *port, char *fault, size_t length);

#endif
