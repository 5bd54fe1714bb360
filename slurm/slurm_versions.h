/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slurm_versions.h - what differs between Slurm's versions, 22.05 to 26.05.
 *
 * slurm.h of the version for which the plugin is compiled decides, because Slurm loads only plugins of
 * its own version.
 */
#ifndef VICINAL_SLURM_VERSIONS_H
#define VICINAL_SLURM_VERSIONS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* A list of hosts. `hostlist_t` was a pointer before 23.11, and is the structure since. */
typedef __typeof__(slurm_hostlist_create(NULL)) host_list;

/* Why Slurm's last call failed, in this thread. Since 23.11 the calls set errno. */
static inline int last_slurm_error(void)
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
	return slurm_get_errno();
#else
	return errno;
#endif
}

/*
 * Load the records of a job, with `flags` such as SHOW_ALL. Returns SLURM_SUCCESS, or another value:
 * see last_slurm_error(). The caller frees the answer with slurm_free_job_info_msg().
 */
static inline int load_job(job_info_msg_t **answer, uint32_t job, uint16_t flags)
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(26, 5, 0)
	return slurm_load_job(answer, job, flags);
#else
	slurm_step_id_t id = {.job_id = job, .step_id = NO_VAL, .step_het_comp = NO_VAL};

	return slurm_load_job(answer, id, flags);
#endif
}

#endif
