/* SPDX-License-Identifier: BSD-3-Clause */
/* job_state.c - the state of a job: see job_state.h. */
#include "job_state.h"

#include "slurm_versions.h"

/* Whether `is_meant` is true of a job's state, or the job does not exist. */
static bool is_of(uint32_t job, bool (*is_meant)(uint32_t state))
{
	job_info_msg_t *answer = NULL;
	bool meant = true;

	if (load_job(&answer, job, SHOW_ALL) != SLURM_SUCCESS)
		return last_slurm_error() == ESLURM_INVALID_JOB_ID;
	/* An array job, or a job of several components, has several records. */
	for (uint32_t i = 0; i < answer->record_count; i++) {
		if (answer->job_array[i].job_id == job && !is_meant(answer->job_array[i].job_state))
			meant = false;
	}
	slurm_free_job_info_msg(answer);
	return meant;
}

static bool is_over(uint32_t state)
{
	return (state & JOB_STATE_BASE) >= JOB_COMPLETE && (state & JOB_COMPLETING) == 0;
}

static bool is_ending(uint32_t state)
{
	return (state & JOB_STATE_BASE) >= JOB_COMPLETE || (state & JOB_COMPLETING) != 0;
}

bool job_state_is_over(uint32_t job)
{
	return is_of(job, is_over);
}

bool job_state_is_ending(uint32_t job)
{
	return is_of(job, is_ending);
}
