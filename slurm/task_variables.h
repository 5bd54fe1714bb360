/* SPDX-License-Identifier: BSD-3-Clause */
/* task_variables.h - the variables by which tasks use a region or VFs. */
#ifndef VICINAL_SLURM_TASK_VARIABLES_H
#define VICINAL_SLURM_TASK_VARIABLES_H

#include <stddef.h>

#include <slurm/spank.h>

/*
 * Set the variables of this file for tasks, replacing existing values. Returns 0, or -1 if it is
 * not a valid file of variables.
 */
int task_variables_read(spank_t spank, const char *file);

/*
 * Set the variables of this file (settings.h), and this region, for tasks, replacing existing
 * values. Returns 0, or -1 with the reason in `fault`.
 */
int task_variables_set(spank_t spank, const char *file, const char *region, char *fault, size_t length);

#endif
