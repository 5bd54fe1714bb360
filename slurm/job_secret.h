/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_secret.h - a secret that is the same on all hosts of a job, for the keys of its virtual
 * machines.
 *
 * The command that submits the job creates the secret, and passes it to Slurm in a variable of the
 * job, like the option itself. Other processes of the user can read it, but other users cannot. A
 * step that is started from elsewhere (srun --jobid) brings another secret, which is used only on
 * hosts that have no nodes yet.
 */
#ifndef VICINAL_SLURM_JOB_SECRET_H
#define VICINAL_SLURM_JOB_SECRET_H

#include <stdbool.h>

#include <slurm/spank.h>

#define JOB_SECRET_DIGITS 64

/* In srun, sbatch and salloc: create a secret for the job. For a step, only if the job has none. */
void job_secret_draw(bool is_step);

/* In slurmstepd: the secret of this step in hexadecimal digits, or "" if there is none. */
void job_secret_read(spank_t spank, char secret[JOB_SECRET_DIGITS + 1]);

/* In slurmstepd: remove the secret from the variables of the step's tasks, which do not need it. */
void job_secret_hide(spank_t spank);

#endif
