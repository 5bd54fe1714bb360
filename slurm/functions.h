/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * functions.h - SR-IOV functions that jobs have as GRES (srun --gres=vf:1), whether they have the option
 * --vicinal or not.
 *
 * Slurm counts them, and says how many of which card a job has on a host. Which ones those are is found
 * and set up by the first step there, and not by the prolog, for the reason that plugin.c has for regions.
 */
#ifndef VICINAL_SLURM_FUNCTIONS_H
#define VICINAL_SLURM_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "node_functions.h"
#include "settings.h"

/*
 * In slurmstepd, as root: have this job's functions set up, and its tasks told of them. Or, where it has
 * nodes, have them set up for these, and say which they are in `for_nodes`, which else is NULL: all steps of
 * a job have them in the same way. Returns 0, or -1 with the reason in `said`.
 */
int functions_prepare(spank_t spank, const struct settings *settings, struct node_functions *for_nodes,
		      char *said, size_t length);

/* In the epilog: take back what a job has. Returns whether there is something of a job that is over. */
bool functions_end(const struct settings *settings, uint32_t job);

#endif
