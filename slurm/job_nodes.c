/* SPDX-License-Identifier: BSD-3-Clause */
/* job_nodes.c - a job's nodes on this host: see job_nodes.h. */
#include "job_nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "command.h"
#include "job_host.h"
#include "job_network.h"
#include "job_secret.h"
#include "job_state.h"
#include "node_list.h"
#include "node_task.h"
#include "pmix.h"
#include "pmix_nodes.h"
#include "supervisor.h"
#include "supervisor_network.h"

#define NUMBER_MAX 24U
#define WORDS_MAX 4096
#define PMIX_NAME_MAX 64U

/* The supervisor of this step's nodes, and the step's host, from job_nodes_prepare() on. */
static struct supervisor_record supervisor;
static struct job_host host;

/*
 * A relative path begins in the directory of submission. In a job, a variable names that directory.
 */
static int resolve(const char *file, const char *from, char path[PATH_MAX], char *fault, size_t length)
{
	int size = file[0] == '/' || from[0] == '\0' ? snprintf(path, PATH_MAX, "%s", file)
						     : snprintf(path, PATH_MAX, "%s/%s", from, file);

	if (size > 0 && size < PATH_MAX && strchr(path, '\n') == NULL)
		return 0;
	(void)snprintf(fault, length, "vicinal: the path of the cluster file %s is too long", file);
	return -1;
}

int job_nodes_check(const struct request *request, char *fault, size_t length)
{
	char path[PATH_MAX];
	const char *from = getenv("SLURM_JOB_ID") != NULL ? getenv("SLURM_SUBMIT_DIR") : NULL;

	if (resolve(request->file, from != NULL ? from : "", path, fault, length) != 0)
		return -1;
	if (access(path, R_OK) == 0)
		return 0;
	(void)snprintf(fault, length,
		       "vicinal: the cluster file %s cannot be read (%s): check that it exists", path,
		       strerror(errno));
	return -1;
}

static const char *number(char text[NUMBER_MAX], uint64_t value)
{
	(void)snprintf(text, NUMBER_MAX, "%" PRIu64, value);
	return text;
}

/*
 * MPI ranks could not reach each other over the components' separate networks, which have the same
 * addresses.
 */
static bool is_of_mpi(spank_t spank)
{
	char kind[NUMBER_MAX];

	return spank_getenv(spank, "SLURM_MPI_TYPE", kind, sizeof(kind)) == ESPANK_SUCCESS &&
	       strcmp(kind, "none") != 0;
}

int job_nodes_prepare(spank_t spank, const struct settings *settings, const struct request *request,
		      uint32_t tasks, struct node_vfs *vfs, char *fault, size_t length)
{
	char directory[PATH_MAX] = "";
	char file[PATH_MAX];
	char home[PATH_MAX] = "/";
	char jobs[NUMBER_MAX];
	char all[NUMBER_MAX];
	char own[NUMBER_MAX];
	char slots[NUMBER_MAX];
	char most[NUMBER_MAX];
	char channel[NUMBER_MAX];
	char secret[JOB_SECRET_DIGITS + 1] = "";
	int groups = 0;
	gid_t *others = NULL;
	struct supervisor_order order = {
		.directory = settings->directory,
		.home = home,
		.file = file,
		.secret = secret,
		.most = settings->max_size,
		.is_ending = job_state_is_ending,
		.settings = settings,
		.vfs = vfs->count > 0 ? vfs : NULL,
	};

	if (settings->python == NULL) {
		(void)snprintf(fault, length,
			       "vicinal: this host is not prepared for nodes of jobs: run `vicinal slurm "
			       "install` there");
		return -1;
	}
	(void)spank_getenv(spank, "SLURM_SUBMIT_DIR", directory, sizeof(directory));
	if (resolve(request->file, directory, file, fault, length) != 0)
		return -1;
	(void)spank_getenv(spank, "HOME", home, sizeof(home));
	job_secret_read(spank, secret);
	if (spank_get_item(spank, S_JOB_ID, &order.job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &order.user) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_GID, &order.group) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &others, &groups) != ESPANK_SUCCESS ||
	    job_host_find(spank, order.job, &host) != 0) {
		(void)snprintf(fault, length, "vicinal: Slurm does not tell the job's number and hosts");
		return -1;
	}
	if (host.is_spanning && is_of_mpi(spank)) {
		(void)snprintf(
			fault, length,
			"vicinal: components of a heterogeneous job have separate nodes and networks, so MPI "
			"cannot run over several components: start it in each (srun --het-group=N), or use "
			"srun --mpi=none for other programs, or --vicinal without a cluster file");
		return -1;
	}
	order.groups = others;
	order.groups_count = groups > 0 ? (size_t)groups : 0;
	const char *arguments[20 + 2 * NODE_VFS_MAX] = {settings->python,
							"-I",
							"-m",
							"vicinal.integrations.slurm.supervisor",
							file,
							"--directory",
							settings->directory,
							"--job",
							number(jobs, order.job),
							"--hosts",
							number(all, host.hosts),
							"--host",
							number(own, host.host),
							"--tasks",
							number(slots, tasks),
							"--max-size",
							number(most, settings->max_size)};
	size_t count = 17;

	if (settings->network_port == 0)
		arguments[count++] = "--host-network";
	else if (host.hosts > 1)
		order.join = job_network_join;
	if (order.join != NULL || order.vfs != NULL) {
		arguments[count++] = "--channel";
		arguments[count++] = number(channel, SUPERVISOR_CHANNEL);
	}
	for (uint32_t i = 0; i < vfs->count; i++) {
		arguments[count++] = "--vf";
		arguments[count++] = vfs->lines[i];
	}
	order.arguments = arguments;
	if (supervisor_start(&order, &supervisor, fault, length) != 0)
		return -1;
	if (strcmp(supervisor.file, file) == 0)
		return 0;
	(void)snprintf(fault, length, "vicinal: the job already has the nodes of %s: a job has one cluster",
		       supervisor.file);
	return -1;
}

/*
 * PMIx's name for a step of Slurm. Steps of all components have the number of the first component.
 */
static void name_in_pmix(char name[PMIX_NAME_MAX], uint32_t step)
{
	(void)snprintf(name, PMIX_NAME_MAX, "slurm.pmix.%" PRIu32 ".%" PRIu32, host.first, step);
}

static int list_tasks(spank_t spank, int supervisor_directory, const struct settings *settings,
		      struct pmix_task *tasks, uint32_t count)
{
	static struct node_list list;

	for (uint32_t i = 0; i < count; i++) {
		if (spank_get_item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, i, &tasks[i].rank) != ESPANK_SUCCESS ||
		    node_list_read(supervisor_directory, settings->directory, i, count, &list) != 0)
			return -1;
		memcpy(tasks[i].node, list.node.name, sizeof(tasks[i].node));
	}
	return 0;
}

int job_nodes_tell(spank_t spank, const struct settings *settings, char *fault, size_t length)
{
	char name[PMIX_NAME_MAX];
	uint32_t step = 0;
	uint32_t count = 0;
	int directory = process_open(&supervisor.process);
	int result = -1;

	if (directory >= 0 && spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &count) == ESPANK_SUCCESS) {
		struct pmix_task *tasks = calloc(count > 0 ? count : 1, sizeof(*tasks));

		name_in_pmix(name, step);
		if (tasks != NULL && list_tasks(spank, directory, settings, tasks, count) == 0)
			result = pmix_nodes_tell(name, tasks, count);
		free(tasks);
	}
	if (directory >= 0)
		(void)close(directory);
	if (result != 0)
		(void)snprintf(fault, length, "vicinal: the tasks' nodes cannot be registered with PMIx");
	return result;
}

/*
 * Set the variables of a task in a container for its PMIx server. `port` is 0 if the server's port
 * has not changed.
 */
static int tell_of_pmix(spank_t spank, uint16_t server, uint16_t port, const char *node)
{
	static struct pmix_setting setting;
	char **variables = NULL;

	/*
	 * Nodes cannot write to the server's files in slurmd's directory, so all data must use the
	 * connection.
	 */
	if (spank_setenv(spank, "PMIX_MCA_gds", "hash", 1) != ESPANK_SUCCESS ||
	    spank_setenv(spank, "PMIX_HOSTNAME", node, 1) != ESPANK_SUCCESS)
		return -1;
	for (size_t i = 0; port != 0; i++) {
		if (spank_get_item(spank, S_JOB_ENV, &variables) != ESPANK_SUCCESS)
			return -1;
		if (variables[i] == NULL)
			break;
		if (pmix_move(variables[i], server, port, &setting) &&
		    spank_setenv(spank, setting.name, setting.value, 1) != ESPANK_SUCCESS)
			return -1;
	}
	return 0;
}

/*
 * Find the port of the step's PMIx server, or 0. Returns -1 if tasks in nodes cannot use the
 * server.
 */
static int find_pmix(spank_t spank, uint16_t *port, char *fault, size_t length)
{
	char name[PMIX_NAME_MAX];
	char known[PMIX_NAME_MAX];
	char **variables = NULL;
	uint32_t step = 0;

	if (spank_get_item(spank, S_JOB_ENV, &variables) == ESPANK_SUCCESS)
		*port = pmix_server_port((const char *const *)variables);
	if (*port == 0)
		return 0;
	if (!pmix_nodes_known()) {
		(void)snprintf(fault, length,
			       "vicinal: this build does not support PMIx in nodes: install its headers "
			       "(Debian: libpmix-dev), remove build/release and run `make`");
		return -1;
	}
	(void)spank_get_item(spank, S_JOB_STEPID, &step);
	name_in_pmix(name, step);
	if (spank_getenv(spank, "PMIX_NAMESPACE", known, sizeof(known)) == ESPANK_SUCCESS &&
	    strcmp(name, known) == 0)
		return 0;
	(void)snprintf(fault, length,
		       "vicinal: PMIx does not call this step %s, so nodes cannot be registered for it",
		       name);
	return -1;
}

/*
 * Execute the program of Vicinal that runs the task in its node. `server` is the port of the task's
 * PMIx server. Returns only after an error.
 */
static void become_runner(spank_t spank, const struct settings *settings, const struct node *node,
			  uint16_t server)
{
	const char *arguments[WORDS_MAX] = {settings->python, "-I", "-m",
					    "vicinal.integrations.slurm.guest_task"};
	char supervisor_number[NUMBER_MAX];
	char port[NUMBER_MAX];
	char **words = NULL;
	char **variables = NULL;
	int count = 0;
	size_t used = 4;

	if (spank_get_item(spank, S_JOB_ARGV, &count, &words) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_ENV, &variables) != ESPANK_SUCCESS || count >= WORDS_MAX - 10) {
		errno = E2BIG;
		return;
	}
	arguments[used++] = number(supervisor_number, (uint64_t)supervisor.process.number);
	arguments[used++] = settings->directory;
	arguments[used++] = node->name;
	arguments[used++] = number(port, server);
	arguments[used++] = "--";
	for (int i = 0; i < count; i++)
		arguments[used++] = words[i];
	command_become(arguments, (const char *const *)variables);
}

/*
 * Set the task's variables for the VFs of its node, and for the interface that connects all
 * nodes.
 */
static int tell_of_vfs(spank_t spank, const struct node_list *list)
{
	static const char *const names[] = {"VICINAL_VFS", "VICINAL_VF_INTERFACES", "VICINAL_VF_DEVICES"};

	for (size_t i = 0; i < NODE_VF_WORDS && list->vfs[i][0] != '\0'; i++) {
		const char *words = strcmp(list->vfs[i], "-") != 0 ? list->vfs[i] : "";

		if (spank_setenv(spank, names[i], words, 1) != ESPANK_SUCCESS)
			return -1;
	}
	if (list->interface[0] != '\0') { /* unless the user names another */
		(void)spank_setenv(spank, "FI_TCP_IFACE", list->interface, 0);
		(void)spank_setenv(spank, "VICINAL_NET_INTERFACE", list->interface, 0);
	}
	return 0;
}

int job_nodes_enter(spank_t spank, const struct settings *settings, char *fault, size_t length)
{
	static struct node_list list;
	char reason[256];
	uint32_t tasks = 0;
	uint16_t server = 0;
	uint16_t port = 0;
	int task = 0;
	int directory = process_open(&supervisor.process);

	if (directory < 0 || spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
	    node_list_read(directory, settings->directory, (uint32_t)task, tasks, &list) != 0) {
		(void)snprintf(fault, length, "vicinal: the job's nodes have ended: start the job again");
		return -1;
	}
	if (find_pmix(spank, &server, fault, length) != 0)
		return -1;
	if (tell_of_vfs(spank, &list) != 0) {
		(void)snprintf(fault, length, "vicinal: the task's variables cannot be set");
		return -1;
	}
	if (!list.node.is_container) {
		become_runner(spank, settings, &list.node, server);
		(void)snprintf(fault, length, "vicinal: the task cannot run in %s: %s", list.node.name,
			       strerror(errno));
		return -1;
	}
	if (list.region[0] != '\0' && list.members < tasks) {
		(void)snprintf(fault, length,
			       "vicinal: the nodes' region has %" PRIu32
			       " member slots, and this step %" PRIu32
			       " tasks on a host: raise region.members in %s",
			       list.members, tasks, supervisor.file);
		return -1;
	}
	if (spank_setenv(spank, "VICINAL_REGION", list.region, 1) != ESPANK_SUCCESS) {
		(void)snprintf(fault, length, "vicinal: the task's variables cannot be set");
		return -1;
	}
	port = server;
	if (node_task_enter(directory, &list, &port, reason, sizeof(reason)) != 0) {
		(void)snprintf(fault, length, "vicinal: %s", reason);
		return -1;
	}
	if (server != 0 && tell_of_pmix(spank, server, port, list.node.name) != 0) {
		(void)snprintf(fault, length, "vicinal: the task's variables cannot be set");
		return -1;
	}
	return 0;
}

struct ended {
	const char *directory;
	uint32_t job;
};

static void end_left_over(uint32_t job, void *data)
{
	const struct ended *ended = data;

	if (job != ended->job && job_state_is_over(job))
		(void)supervisor_end(ended->directory, job);
}

void job_nodes_end(const struct settings *settings, uint32_t job)
{
	struct ended ended = {.directory = settings->directory, .job = job};

	if (supervisor_end(settings->directory, job) != 0)
		slurm_error("vicinal: the nodes of job %" PRIu32 " do not end: the next epilog tries again",
			    job);
	supervisor_record_list(settings->directory, end_left_over, &ended);
}
