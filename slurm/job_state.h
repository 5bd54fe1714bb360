/* SPDX-License-Identifier: BSD-3-Clause */
/* job_state.h - how far Slurm is with a job, as slurmctld says; a question takes some milliseconds. */
#ifndef VICINAL_SLURM_JOB_STATE_H
#define VICINAL_SLURM_JOB_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether Slurm has done with it, or has no such job. False where slurmctld does not answer. */
bool job_state_is_over(uint32_t job);

/* Whether Slurm ends it, such as after scancel or at its time limit, or has done with it. As above. */
bool job_state_is_ending(uint32_t job);

#endif
