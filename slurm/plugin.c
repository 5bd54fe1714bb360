/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin.c - Slurm's option --vicinal: a region for each job on each of its hosts, and the variables
 * with which its tasks use it; or nodes from a cluster's file (job_nodes.h); and functions of cards for jobs
 * that have them as GRES (functions.h). docs/how-to/slurm.md is for those who install and use it.
 *
 * Regions are made by the first step on a host and not in the prolog: a prolog that fails drains the
 * node, and what fails here is mostly one user's request for more memory than there is. And a prolog is
 * not told how many tasks there will be. The epilog takes the region away.
 *
 * slurmstepd, which loads this, is root's and small. So what is more than a few lines is done by the
 * program vicinal, in a process of its own.
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
#include "functions.h"
#include "job_nodes.h"
#include "job_region.h"
#include "job_secret.h"
#include "job_state.h"
#include "request.h"
#include "settings.h"
#include "task_variables.h"

#define SAID_MAX 1024U
#define NUMBER_MAX 24U
/* SLURM_JOB_CPUS_PER_NODE of many different hosts is long; what does not fit is not looked at. */
#define PROCESSORS_MAX 4096

#define VISIBLE __attribute__((visibility("default")))

#pragma GCC visibility push(default)
SPANK_PLUGIN(vicinal, 1)
#pragma GCC visibility pop

static struct settings settings;
static struct request request;
static bool is_asked;
/* Those that the job has for its nodes on this host. */
static struct node_functions node_functions;
/* Why this step cannot be, in words. Its tasks say so and end, see slurm_spank_task_init(). */
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
		/* srun has looked at it, but it comes by way of the user's environment. */
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
		"a region of shared memory for MPI on each host of the job, or the nodes of a cluster's file";
	static struct spank_option option = {
		.name = name,
		.arginfo = form,
		.usage = usage,
		.has_arg = 2, /* it may have a value */
		.cb = on_option,
	};
	const char *wrong = NULL;

	if (settings_read(count, arguments, &settings, &wrong) != 0) {
		slurm_error("vicinal: plugstack.conf: '%s' is wrong or missing: run `vicinal slurm check`",
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

/* The tasks that there is to be room for: those of this step, and as many as the job has processors on
 * the host where it has the most, since later steps may have more than this. */
static uint32_t expected_tasks(spank_t spank, uint32_t tasks)
{
	char listed[PROCESSORS_MAX];
	char *rest = NULL;

	if (spank_getenv(spank, "SLURM_JOB_CPUS_PER_NODE", listed, sizeof(listed)) != ESPANK_SUCCESS)
		return tasks;
	/* Such as 4(x2),8. */
	for (const char *part = strtok_r(listed, ",", &rest); part != NULL;
	     part = strtok_r(NULL, ",", &rest)) {
		unsigned long processors = strtoul(part, NULL, 10);

		if (processors > tasks && processors <= UINT16_MAX)
			tasks = (uint32_t)processors;
	}
	return tasks;
}

/* A number as an argument of the program. */
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
			refuse("vicinal: the job was ended while its region was made");
		else
			refuse("vicinal: what made the job's region was killed, most likely since the "
			       "region does not fit into the job's memory limit: ask for more memory "
			       "(--mem), or for a smaller region (--vicinal=region,members=N)");
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
		refuse("vicinal: Slurm does not say what job this is");
		return;
	}
	enum job_region_state state = job_region_find(path, user, &members);

	if (state == JOB_REGION_NONE) {
		if (make_region(spank, job, user, tasks) != 0)
			return;
		state = job_region_find(path, user, &members);
	}
	if (state != JOB_REGION_GOOD)
		refuse("vicinal: %s is no region of this job's user: an administrator has to remove it",
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

/* Scripts and shells of a job give commands to Slurm, which nobody can from a network of one's own. */
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
	/* Tasks may see other files than this process does, so their variables are read here. */
	if (job_nodes_prepare(spank, &settings, &request, expected_tasks(spank, tasks), &node_functions,
			      refusal, sizeof(refusal)) == 0 &&
	    is_in_nodes(spank)) {
		job_secret_hide(spank);
		(void)task_variables_set(spank, settings.variables, "", refusal, sizeof(refusal));
	}
}

/* In slurmstepd, as root, before there is any task; and in the commands of users. */
VISIBLE int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
	uint32_t step = 0;

	(void)count;
	(void)arguments;
	if (spank_context() != S_CTX_REMOTE && is_asked && request.file[0] != '\0')
		job_secret_draw(spank_context() == S_CTX_LOCAL);
	if (spank_context() != S_CTX_REMOTE || refusal[0] != '\0')
		return 0;
	/* One without tasks. */
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == SLURM_EXTERN_CONT)
		return 0;
	const bool in_nodes = is_asked && request.file[0] != '\0';

	if (functions_prepare(spank, &settings, in_nodes ? &node_functions : NULL, refusal,
			      sizeof(refusal)) != 0 ||
	    !is_asked)
		return 0;
	if (in_nodes)
		prepare_nodes(spank);
	else
		prepare_region(spank);
	return 0;
}

/* In slurmstepd, for each task; all are there, and none goes on before the last of these. */
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

/* In each task. Had slurm_spank_init_post_opt() failed, the user would not see why, and srun, of Slurm
 * 22.05, would end as if nothing had happened. */
VISIBLE int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	int task = 0;

	(void)count;
	(void)arguments;
	if (refusal[0] == '\0') {
		if (!is_asked || request.file[0] == '\0' || !is_in_nodes(spank) ||
		    job_nodes_enter(spank, &settings, refusal, sizeof(refusal)) == 0)
			return 0;
		/* This task's own matter. */
		slurm_error("%s", refusal);
		return -1;
	}
	if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0)
		slurm_error("%s", refusal);
	return -1;
}

/* Of every job, whether it asked or not; as often as Slurm likes. It is a process of its own, in which
 * slurm_spank_init() was not called. If it failed, the node would be drained: the memory is not lost, the
 * next epilog tries again. */
VISIBLE int slurm_spank_job_epilog(spank_t spank, int count, char **arguments)
{
	const char *wrong = NULL;
	char said[SAID_MAX];
	uint32_t job = 0;

	if (settings_read(count, arguments, &settings, &wrong) != 0 ||
	    spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) {
		slurm_error("vicinal: plugstack.conf is wrong, or Slurm does not say what job this is");
		return 0;
	}
	job_nodes_end(&settings, job);
	if (job_region_remove(settings.directory, job) > 0)
		slurm_error("vicinal: regions of job %" PRIu32 " in %s could not be removed", job,
			    settings.directory);
	const bool over = functions_end(&settings, job);

	if (!over && !job_region_any_idle(settings.directory))
		return 0;
	const char *const sweep[] = {settings.command,   "slurm", "sweep", "--directory",
				     settings.directory, NULL};

	if (command_run(sweep, said, sizeof(said)) != 0)
		slurm_error("%s", said);
	return 0;
}
