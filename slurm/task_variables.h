/* SPDX-License-Identifier: BSD-3-Clause */
/* task_variables.h - the variables with which tasks use a region, or functions. */
#ifndef VICINAL_SLURM_TASK_VARIABLES_H
#define VICINAL_SLURM_TASK_VARIABLES_H

#include <stddef.h>

#include <slurm/spank.h>

/* Give tasks the variables of this file in place of their own. Returns 0, or -1 where it is none of
 * variables. */
int task_variables_read(spank_t spank, const char *file);

/*
 * Give tasks the variables of this file (settings.h), and this region, in place of their own. Returns 0, or
 * -1 with what is wrong in `fault`.
 */
int task_variables_set(spank_t spank, const char *file, const char *region, char *fault, size_t length);

#endif
