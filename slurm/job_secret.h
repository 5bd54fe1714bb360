/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_secret.h - a secret that a job has on all of its hosts, for the keys of its virtual machines.
 *
 * Whichever command submits the job draws it, and leaves it to Slurm among the variables of the job, as
 * the option itself: the user's other processes can read it, other users' cannot. A step that is started
 * from elsewhere (srun --jobid) brings another one, of which only hosts hear that have no nodes yet.
 */
#ifndef VICINAL_SLURM_JOB_SECRET_H
#define VICINAL_SLURM_JOB_SECRET_H

#include <stdbool.h>

#include <slurm/spank.h>

#define JOB_SECRET_DIGITS 64

/* In srun, sbatch and salloc: draw one for the job, or for the step's unless the job has one. */
void job_secret_draw(bool is_step);

/* In slurmstepd: what this step has as hexadecimal digits, or "" if there is none. */
void job_secret_read(spank_t spank, char secret[JOB_SECRET_DIGITS + 1]);

/* In slurmstepd: keep it from the step's tasks, which do not need it. */
void job_secret_hide(spank_t spank);

#endif
