/* SPDX-License-Identifier: BSD-3-Clause */
/* job_host.c - the index of a step's host in its job: see job_host.h. */
#include "job_host.h"

#include <stdlib.h>
#include <string.h>

#include "slurm_versions.h"

/* The maximum length of a job's list of hosts, such as SLURM_NODELIST. */
#define HOSTS_MAX 65536U
#define NUMBER_MAX 24U

/* The hosts that a variable lists, or NULL. `room` has HOSTS_MAX bytes. */
static host_list hosts_of(spank_t spank, const char *variable, char *room)
{
	if (spank_getenv(spank, variable, room, HOSTS_MAX) != ESPANK_SUCCESS)
		return NULL;
	return slurm_hostlist_create(room);
}

char *job_host_list(uint32_t job, uint32_t *first)
{
	job_info_msg_t *answer = NULL;
	char *hosts = NULL;

	if (load_job(&answer, job, SHOW_ALL) != SLURM_SUCCESS)
		return NULL;
	/* An array job, or a job of several components, has several records. */
	for (uint32_t i = 0; i < answer->record_count && hosts == NULL; i++) {
		const job_info_t *record = &answer->job_array[i];

		if (record->job_id != job || record->nodes == NULL)
			continue;
		hosts = strdup(record->nodes);
		if (first != NULL)
			*first = record->het_job_id != 0 ? record->het_job_id : job;
	}
	slurm_free_job_info_msg(answer);
	return hosts;
}

/*
 * The name of this host, from the list of the step's hosts and the index that Slurm gives. The
 * caller must free it.
 */
static char *own_name(spank_t spank, char *room)
{
	uint32_t of_step = 0;
	char *name = NULL;
	host_list step = hosts_of(spank, "SLURM_STEP_NODELIST", room);

	if (step == NULL)
		step = hosts_of(spank, "SLURM_JOB_NODELIST", room);
	if (step == NULL)
		return NULL;
	if (spank_get_item(spank, S_JOB_NODEID, &of_step) == ESPANK_SUCCESS) {
		while ((name = slurm_hostlist_shift(step)) != NULL && of_step-- > 0)
			free(name);
	}
	slurm_hostlist_destroy(step);
	return name;
}

/* Whether the step has hosts outside this component. */
static bool spans(spank_t spank, host_list component, char *room)
{
	host_list step = hosts_of(spank, "SLURM_STEP_NODELIST", room);
	bool others = false;
	char *name = NULL;

	while (step != NULL && (name = slurm_hostlist_shift(step)) != NULL) {
		others = others || slurm_hostlist_find(component, name) < 0;
		free(name);
	}
	if (step != NULL)
		slurm_hostlist_destroy(step);
	return others;
}

/* Find the index of this host in the list. Returns 0, or -1. */
static int find(host_list hosts, const char *own, struct job_host *host)
{
	int found = hosts != NULL && own != NULL ? slurm_hostlist_find(hosts, own) : -1;

	if (found < 0)
		return -1;
	host->hosts = (uint32_t)slurm_hostlist_count(hosts);
	host->host = (uint32_t)found;
	return 0;
}

static int find_in_component(spank_t spank, uint32_t job, struct job_host *host, char *room)
{
	char *listed = job_host_list(job, &host->first);
	host_list hosts = listed != NULL ? slurm_hostlist_create(listed) : NULL;
	/*
	 * From slurmd's environment. Indices of hosts refer to the component, but the lists in
	 * variables do not.
	 */
	int result = find(hosts, getenv("SLURMD_NODENAME"), host);

	if (hosts != NULL) {
		host->is_spanning = spans(spank, hosts, room);
		slurm_hostlist_destroy(hosts);
	}
	free(listed);
	return result;
}

static int find_in_job(spank_t spank, struct job_host *host, char *room)
{
	char *own = own_name(spank, room);
	host_list hosts = hosts_of(spank, "SLURM_JOB_NODELIST", room);
	int result = find(hosts, own, host);

	if (hosts != NULL)
		slurm_hostlist_destroy(hosts);
	free(own);
	return result;
}

int job_host_find(spank_t spank, uint32_t job, struct job_host *host)
{
	char size[NUMBER_MAX];
	char *room = malloc(HOSTS_MAX);
	int result = -1;

	*host = (struct job_host){.first = job};
	if (room != NULL)
		result = spank_getenv(spank, "SLURM_HET_SIZE", size, sizeof(size)) == ESPANK_SUCCESS
				 ? find_in_component(spank, job, host, room)
				 : find_in_job(spank, host, room);
	free(room);
	return result;
}
