/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin.c - Slurm's option --vicinal: a region for each job on each of its hosts, and the
 * variables for its tasks; or nodes from a cluster file (job_nodes.h); and SR-IOV VFs for
 * jobs that have them as GRES (vfs.h). docs/how-to/slurm.md describes installation and use.
 *
 * The first step on a host creates the region, not the prolog. A prolog that fails drains the node,
 * but most failures here are a user's request for more memory than the host has. The prolog also
 * does not know the number of tasks. The epilog removes the region.
 *
 * slurmstepd, which loads this plugin, runs as root and is small. So the program vicinal does all
 * longer work, in a separate process.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "command.h"
#include "job_nodes.h"
#include "job_region.h"
#include "job_secret.h"
#include "job_state.h"
#include "request.h"
#include "settings.h"
#include "task_variables.h"
#include "vfs.h"

#define SAID_MAX 1024U
#define NUMBER_MAX 24U
/* SLURM_JOB_CPUS_PER_NODE is long if the hosts differ. A value that does not fit is ignored. */
#define PROCESSORS_MAX 4096

#define VISIBLE __attribute__((visibility("default")))

#pragma GCC visibility push(default)
SPANK_PLUGIN(vicinal, 1)
#pragma GCC visibility pop

static struct settings settings;
static struct request request;
static bool is_asked;
/* The job's VFs for its nodes on this host. */
static struct node_vfs node_vfs;
/* Why this step cannot run. Its tasks print this text and end, see slurm_spank_task_init(). */
static char refusal[SAID_MAX];

__attribute__((format(printf, 1, 2))) static void refuse(const char *form, ...)
{
	va_list words;

	va_start(words, form);
	(void)vsnprintf(refusal, sizeof(refusal), form, words);
	va_end(words);
}

static int on_option(int value, const char *argument, int remote)
{
	char fault[SAID_MAX];

	(void)value;
	if (request_read(argument, settings.max_size, &request, fault, sizeof(fault)) != 0) {
		/* srun has checked the value, but it comes through the user's environment. */
		if (remote)
			refuse("vicinal: %s", fault);
		else
			slurm_error("vicinal: %s", fault);
		return -1;
	}
	if (!remote && request.file[0] != '\0' && job_nodes_check(&request, fault, sizeof(fault)) != 0) {
		slurm_error("%s", fault);
		return -1;
	}
	is_asked = true;
	return 0;
}

VISIBLE int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	static char name[] = "vicinal";
	static char form[] = "region[,members=N][,section=SIZE][,heap=SIZE]|FILE";
	static char usage[] =
		"a region of shared memory for MPI on each host of the job, or the nodes of a cluster file";
	static struct spank_option option = {
		.name = name,
		.arginfo = form,
		.usage = usage,
		.has_arg = 2, /* the value is optional */
		.cb = on_option,
	};
	const char *wrong = NULL;

	if (settings_read(count, arguments, &settings, &wrong) != 0) {
		slurm_error("vicinal: plugstack.conf: '%s' is invalid or missing: run `vicinal slurm check`",
			    wrong);
		return -1;
	}
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE:
		return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
	default:
		return 0;
	}
}

/*
 * The number of tasks for which there must be room: the tasks of this step, or the largest number
 * of processors that the job has on a host, because later steps may have more tasks.
 */
static uint32_t expected_tasks(spank_t spank, uint32_t tasks)
{
	char listed[PROCESSORS_MAX];
	char *rest = NULL;

	if (spank_getenv(spank, "SLURM_JOB_CPUS_PER_NODE", listed, sizeof(listed)) != ESPANK_SUCCESS)
		return tasks;
	/* For example 4(x2),8. */
	for (const char *part = strtok_r(listed, ",", &rest); part != NULL;
	     part = strtok_r(NULL, ",", &rest)) {
		unsigned long processors = strtoul(part, NULL, 10);

		if (processors > tasks && processors <= UINT16_MAX)
			tasks = (uint32_t)processors;
	}
	return tasks;
}

/* Format a number as an argument of the program. */
static const char *number(char text[NUMBER_MAX], uint64_t value)
{
	(void)snprintf(text, NUMBER_MAX, "%" PRIu64, value);
	return text;
}

static int make_region(spank_t spank, uint32_t job, uid_t user, uint32_t tasks)
{
	char jobs[NUMBER_MAX];
	char users[NUMBER_MAX];
	char most[NUMBER_MAX];
	char slots[NUMBER_MAX];
	char section[NUMBER_MAX];
	char heap[NUMBER_MAX];
	bool by_tasks = request.members == 0;
	const char *arguments[20] = {
		settings.command,
		"slurm",
		"region",
		number(jobs, job),
		"--directory",
		settings.directory,
		"--user",
		number(users, user),
		"--max-size",
		number(most, settings.max_size),
		by_tasks ? "--tasks" : "--members",
		number(slots, by_tasks ? expected_tasks(spank, tasks) : request.members),
	};
	size_t count = 12;

	if (request.section > 0) {
		arguments[count++] = "--section-size";
		arguments[count++] = number(section, request.section);
	}
	if (request.heap > 0) {
		arguments[count++] = "--heap";
		arguments[count++] = number(heap, request.heap);
	}
	struct command_of_job of = {.job = job};

	if (command_run_of_job(arguments, &of, refusal, sizeof(refusal)) == 0)
		return 0;
	if (of.was_killed) {
		job_region_remove_part(settings.directory, job, of.process);
		if (job_state_is_ending(job))
			refuse("vicinal: the job ended while its region was created");
		else
			refuse("vicinal: the program that creates the job's region was killed, probably "
			       "because the region does not fit into the job's memory limit: request more "
			       "memory (--mem), or a smaller region (--vicinal=region,members=N)");
	}
	return -1;
}

static void prepare_region(spank_t spank)
{
	char path[PATH_MAX];
	char region[PATH_MAX + 8];
	uint32_t job = 0;
	uint32_t tasks = 0;
	uint32_t members = 0;
	uid_t user = 0;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
	    job_region_path(settings.directory, job, path) != 0) {
		refuse("vicinal: Slurm does not tell the job's number");
		return;
	}
	enum job_region_state state = job_region_find(path, user, &members);

	if (state == JOB_REGION_NONE) {
		if (make_region(spank, job, user, tasks) != 0)
			return;
		state = job_region_find(path, user, &members);
	}
	if (state != JOB_REGION_GOOD)
		refuse("vicinal: %s is not a region of this job's user: an administrator must remove it",
		       path);
	else if (members < tasks)
		refuse("vicinal: the job's region has %" PRIu32 " member slots, and this step %" PRIu32
		       " tasks on a host: start the job with --vicinal=region,members=N, N twice that",
		       members, tasks);
	else {
		(void)snprintf(region, sizeof(region), "file:%s", path);
		(void)task_variables_set(spank, settings.variables, region, refusal, sizeof(refusal));
	}
}

/*
 * A job's scripts and shells call Slurm's commands, which do not work from a separate network. So
 * these steps do not run in nodes.
 */
static bool is_in_nodes(spank_t spank)
{
	uint32_t step = 0;

	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step != SLURM_BATCH_SCRIPT &&
	       step != SLURM_INTERACTIVE_STEP;
}

static void prepare_nodes(spank_t spank)
{
	uint32_t tasks = 0;

	if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS)
		tasks = 1;
	/*
	 * The file of variables is read here, because tasks may see other files than this process.
	 */
	if (job_nodes_prepare(spank, &settings, &request, expected_tasks(spank, tasks), &node_vfs, refusal,
			      sizeof(refusal)) == 0 &&
	    is_in_nodes(spank)) {
		job_secret_hide(spank);
		(void)task_variables_set(spank, settings.variables, "", refusal, sizeof(refusal));
	}
}

/* Called in slurmstepd, as root, before there are tasks; and in the users' commands. */
VISIBLE int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
	uint32_t step = 0;

	(void)count;
	(void)arguments;
	if (spank_context() != S_CTX_REMOTE && is_asked && request.file[0] != '\0')
		job_secret_draw(spank_context() == S_CTX_LOCAL);
	if (spank_context() != S_CTX_REMOTE || refusal[0] != '\0')
		return 0;
	/* A step without tasks. */
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == SLURM_EXTERN_CONT)
		return 0;
	const bool in_nodes = is_asked && request.file[0] != '\0';

	if (vfs_prepare(spank, &settings, in_nodes ? &node_vfs : NULL, refusal, sizeof(refusal)) != 0 ||
	    !is_asked)
		return 0;
	if (in_nodes)
		prepare_nodes(spank);
	else
		prepare_region(spank);
	return 0;
}

/*
 * Called in slurmstepd for each task. All tasks exist, and none continues before the last of these
 * calls.
 */
VISIBLE int slurm_spank_task_post_fork(spank_t spank, int count, char **arguments)
{
	static bool is_told;
	char fault[SAID_MAX];

	(void)count;
	(void)arguments;
	if (is_told || refusal[0] != '\0' || !is_asked || request.file[0] == '\0' || !is_in_nodes(spank))
		return 0;
	is_told = true;
	if (job_nodes_tell(spank, &settings, fault, sizeof(fault)) == 0)
		return 0;
	slurm_error("%s", fault);
	return -1;
}

/*
 * Called in each task. If slurm_spank_init_post_opt() failed instead, the user would not see the
 * reason, and srun of Slurm 22.05 would end without an error.
 */
VISIBLE int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	int task = 0;

	(void)count;
	(void)arguments;
	if (refusal[0] == '\0') {
		if (!is_asked || request.file[0] == '\0' || !is_in_nodes(spank) ||
		    job_nodes_enter(spank, &settings, refusal, sizeof(refusal)) == 0)
			return 0;
		/* An error of this task only. */
		slurm_error("%s", refusal);
		return -1;
	}
	if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0)
		slurm_error("%s", refusal);
	return -1;
}

/*
 * Called for every job, with or without the option, possibly several times. It runs in a separate
 * process, in which slurm_spank_init() was not called. A failure would drain the node, so errors
 * are only logged: the next epilog tries again to free the memory.
 */
VISIBLE int slurm_spank_job_epilog(spank_t spank, int count, char **arguments)
{
	const char *wrong = NULL;
	char said[SAID_MAX];
	uint32_t job = 0;

	if (settings_read(count, arguments, &settings, &wrong) != 0 ||
	    spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) {
		slurm_error("vicinal: plugstack.conf is invalid, or Slurm does not tell the job's number");
		return 0;
	}
	job_nodes_end(&settings, job);
	if (job_region_remove(settings.directory, job) > 0)
		slurm_error("vicinal: regions of job %" PRIu32 " in %s could not be removed", job,
			    settings.directory);
	const bool over = vfs_end(&settings, job);

	if (!over && !job_region_any_idle(settings.directory))
		return 0;
	const char *const sweep[] = {settings.command,   "slurm", "sweep", "--directory",
				     settings.directory, NULL};

	if (command_run(sweep, said, sizeof(said)) != 0)
		slurm_error("%s", said);
	return 0;
}
