/* SPDX-License-Identifier: BSD-3-Clause */
/* job_state.h - the state of a job from slurmctld; a question takes some milliseconds. */
#ifndef VICINAL_SLURM_JOB_STATE_H
#define VICINAL_SLURM_JOB_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the job is over or does not exist. False if slurmctld does not answer. */
bool job_state_is_over(uint32_t job);

/*
 * Whether the job is ending, for example after scancel or at its time limit, or is over. As above.
 */
bool job_state_is_ending(uint32_t job);

#endif
