/* SPDX-License-Identifier: BSD-3-Clause */
/* vfs.c - SR-IOV VFs of jobs, found by Slurm's records: see vfs.h. */
#include "vfs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "job_state.h"
#include "job_vfs.h"
#include "slurm_versions.h"
#include "task_variables.h"

#define NUMBER_MAX 24U
#define WORDS_MAX 4096U

/* The GRES on one of the job's hosts, in Slurm's words, from a record. */
static const char *words_of_host(const job_info_t *record, const char *host)
{
	host_list hosts = slurm_hostlist_create(record->nodes);
	int host_index = hosts != NULL ? slurm_hostlist_find(hosts, host) : -1;

	if (hosts != NULL)
		slurm_hostlist_destroy(hosts);
	if (host_index < 0 || (uint32_t)host_index >= record->gres_detail_cnt ||
	    record->gres_detail_str[host_index] == NULL)
		return "";
	return record->gres_detail_str[host_index];
}

/* Ask slurmctld, which takes some milliseconds. Returns 0, or -1 with the reason in `said`. */
static int ask(uint32_t job, char words[WORDS_MAX], char *said, size_t length)
{
	/* From slurmd's environment, because the user controls the job's environment. */
	const char *host = getenv("SLURMD_NODENAME");
	job_info_msg_t *answer = NULL;
	int copied = -1;

	if (host == NULL) {
		(void)snprintf(said, length, "vicinal: slurmd does not say which host this is");
		return -1;
	}
	if (load_job(&answer, job, SHOW_DETAIL) != SLURM_SUCCESS) {
		(void)snprintf(said, length,
			       "vicinal: slurmctld does not tell which SR-IOV VFs job %" PRIu32
			       " has on %s (%s): see that it answers, and start the step again",
			       job, host, slurm_strerror(last_slurm_error()));
		return -1;
	}
	/* An array job, or a job of several components, has several records. */
	for (uint32_t i = 0; i < answer->record_count && copied < 0; i++)
		if (answer->job_array[i].job_id == job)
			copied = snprintf(words, WORDS_MAX, "%s", words_of_host(&answer->job_array[i], host));
	slurm_free_job_info_msg(answer);
	if (copied >= 0 && (unsigned)copied < WORDS_MAX)
		return 0;
	(void)snprintf(said, length, "vicinal: slurmctld does not know what GRES job %" PRIu32 " has on %s",
		       job, host);
	return -1;
}

static int set_up(const struct settings *settings, uint32_t job, const char *words, bool for_nodes,
		  char *said, size_t length)
{
	char number[NUMBER_MAX];
	const char *const arguments[] = {settings->command,
					 "slurm",
					 "vfs",
					 number,
					 "--gres",
					 words,
					 "--name",
					 settings->vfs,
					 "--directory",
					 settings->directory,
					 "--purpose",
					 for_nodes ? "nodes" : "tasks",
					 settings->vlans != NULL ? "--vlans" : NULL,
					 settings->vlans,
					 NULL};

	(void)snprintf(number, sizeof(number), "%" PRIu32, job);
	return command_run(arguments, said, length);
}

/*
 * Check that VFs which are already set up are for the purpose of this step. Returns 0, or -1
 * with the reason in `said`.
 */
static int check_purpose(const struct settings *settings, uint32_t job, struct node_vfs *for_nodes,
			 char *said, size_t length)
{
	static struct node_vfs unused;
	enum node_vfs_state state =
		node_vfs_read(settings->directory, job, for_nodes != NULL ? for_nodes : &unused);

	if (state == NODE_VFS_WRONG)
		(void)snprintf(said, length,
			       "vicinal: %s/vfs-%" PRIu32
			       ".nodes cannot be used: an administrator must remove it",
			       settings->directory, job);
	else if ((state == NODE_VFS_GIVEN) != (for_nodes != NULL))
		(void)snprintf(said, length,
			       "vicinal: the job's SR-IOV VFs (--gres=%s) are %s: start all steps of "
			       "the job with the cluster file (--vicinal), or none",
			       settings->vfs,
			       for_nodes != NULL ? "on its host, for steps without nodes" : "in its nodes");
	else
		return 0;
	return -1;
}

int vfs_prepare(spank_t spank, const struct settings *settings, struct node_vfs *for_nodes, char *said,
		size_t length)
{
	char path[PATH_MAX];
	char words[WORDS_MAX];
	uint32_t job = 0;

	if (settings->vfs == NULL)
		return 0;
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    job_vfs_path(settings->directory, job, path) != 0) {
		(void)snprintf(said, length, "vicinal: Slurm does not say what job this is");
		return -1;
	}
	enum job_vfs_state state = job_vfs_find(path);

	if (state == JOB_VFS_UNKNOWN) {
		if (ask(job, words, said, length) != 0)
			return -1;
		if (!job_vfs_are_named(words, settings->vfs)) {
			job_vfs_note_none(settings->directory, path);
			return 0;
		}
		if (set_up(settings, job, words, for_nodes != NULL, said, length) != 0)
			return -1;
		state = job_vfs_find(path);
	}
	if (state == JOB_VFS_NONE)
		return 0;
	if (state == JOB_VFS_GIVEN && check_purpose(settings, job, for_nodes, said, length) != 0)
		return -1;
	/* In nodes the VFs have other names. Tasks learn these names in their nodes. */
	if (state == JOB_VFS_GIVEN && (for_nodes != NULL || task_variables_read(spank, path) == 0))
		return 0;
	(void)snprintf(said, length, "vicinal: %s cannot be used: an administrator must remove it", path);
	return -1;
}

bool vfs_end(const struct settings *settings, uint32_t job)
{
	char said[WORDS_MAX];
	char number[NUMBER_MAX];
	const char *const arguments[] = {settings->command,   "slurm", "release", number, "--directory",
					 settings->directory, NULL};

	if (settings->vfs == NULL)
		return false;
	(void)snprintf(number, sizeof(number), "%" PRIu32, job);
	if (job_vfs_remain(settings->directory, job) && command_run(arguments, said, sizeof(said)) != 0)
		slurm_error("%s", said);
	return job_vfs_any(settings->directory, job_state_is_over);
}
