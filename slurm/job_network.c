/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_network.c - connects the nodes of a job on this host with its nodes on other hosts: see
 * job_network.h.
 */
#include "job_network.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "job_host.h"
#include "slurm_versions.h"

#define NUMBER_MAX 24U
#define NETWORK_MAX 64U
/* Room for NAME=ADDRESS of each other host. The kernel accepts no longer argument. */
#define HOSTS_MAX 131072U

/* List all hosts except `own`, with their addresses. Returns the number of hosts. */
static size_t write_addresses(const node_info_msg_t *known, const char *hosts, const char *own, char *text)
{
	host_list listed = slurm_hostlist_create(hosts);
	size_t used = 0;
	size_t count = 0;

	for (uint32_t i = 0; listed != NULL && i < known->record_count; i++) {
		const node_info_t *node = &known->node_array[i];

		if (node->name == NULL || slurm_hostlist_find(listed, node->name) < 0)
			continue;
		count++;
		if (strcmp(node->name, own) == 0)
			continue;
		int length = snprintf(text + used, HOSTS_MAX - used, "%s%s=%s", used > 0 ? "," : "",
				      node->name, node->node_addr != NULL ? node->node_addr : node->name);

		if (length < 0 || (size_t)length >= HOSTS_MAX - used) {
			count = 0;
			break;
		}
		used += (size_t)length;
	}
	if (listed != NULL) {
		if (count != (size_t)slurm_hostlist_count(listed))
			count = 0;
		slurm_hostlist_destroy(listed);
	}
	return count;
}

/* List the other hosts of a job with their addresses. Returns 0, or -1. */
static int find_others(uint32_t job, char *text)
{
	/* From slurmd's environment, because the user controls the job's environment. */
	const char *own = getenv("SLURMD_NODENAME");
	char *hosts = own != NULL ? job_host_list(job, NULL) : NULL;
	node_info_msg_t *known = NULL;
	size_t count = 0;

	if (hosts != NULL && slurm_load_node((time_t)0, &known, SHOW_ALL) == SLURM_SUCCESS) {
		count = write_addresses(known, hosts, own, text);
		slurm_free_node_info_msg(known);
	}
	free(hosts);
	return count > 1 ? 0 : -1;
}

int job_network_join(const struct supervisor_order *order, int between, int nodes, char *said, size_t length)
{
	const struct settings *settings = order->settings;
	char job[NUMBER_MAX];
	char port[NUMBER_MAX];
	char files[2][NETWORK_MAX];
	char *others = malloc(HOSTS_MAX);
	const char *const arguments[] = {settings->command, "slurm",   "network", job,       "--between",
					 files[0],          "--nodes", files[1],  "--hosts", others,
					 "--port",          port,      NULL};
	int result = -1;

	(void)snprintf(job, sizeof(job), "%" PRIu32, order->job);
	(void)snprintf(port, sizeof(port), "%u", (unsigned)settings->network_port);
	/* This process waits for the command, so the descriptors stay open that long. */
	(void)snprintf(files[0], NETWORK_MAX, "/proc/%d/fd/%d", (int)getpid(), between);
	(void)snprintf(files[1], NETWORK_MAX, "/proc/%d/fd/%d", (int)getpid(), nodes);
	if (others == NULL || find_others(order->job, others) != 0)
		(void)snprintf(said, length,
			       "vicinal: slurmctld does not say on which hosts job %" PRIu32
			       " is, or their addresses: check that it answers, and start the step again",
			       order->job);
	else
		result = command_run(arguments, said, length);
	free(others);
	return result;
}
