/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of jobs' nodes under Slurm that do not call Slurm: processes, records of supervisors, lists of
 * nodes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slurm/job_cgroup.h"
#include "slurm/node_list.h"
#include "slurm/process.h"
#include "slurm/supervisor.h"
#include "slurm/supervisor_record.h"

#define JOB 42U

static char directory[] = "/tmp/vicinal-test-nodes-XXXXXX";

static struct process started(void)
{
	struct process found = {.number = fork()};
	char path[32];

	if (found.number == 0) {
		for (;;)
			(void)pause();
	}
	assert_true(found.number > 0);
	(void)snprintf(path, sizeof(path), "/proc/%d", (int)found.number);
	int opened = open(path, O_PATH | O_DIRECTORY);

	found.began = process_began(opened);
	assert_true(found.began > 0);
	assert_false(process_is_ending(opened));
	(void)close(opened);
	return found;
}

static int status_of(const struct process *process)
{
	int status = 0;

	return waitpid(process->number, &status, 0) == process->number ? status : -1;
}

static void test_a_process_is_told_from_a_later_one_of_its_number(void **state)
{
	struct process process = started();
	struct process other = process;

	(void)state;
	other.began++;
	assert_int_equal(process_open(&other), -1);
	assert_int_equal(process_end(&other), 0);
	assert_int_equal(kill(process.number, 0), 0);

	int opened = process_open(&process);

	assert_true(opened >= 0);
	/* The process has ended, although nobody has waited for it yet. */
	assert_int_equal(process_end(&process), 0);
	assert_int_equal(process_began(opened), 0);
	assert_true(process_is_ending(opened));
	assert_true(WIFSIGNALED(status_of(&process)));
	assert_int_equal(process_end(&process), 0);
	(void)close(opened);
}

static void test_processes_are_read(void **state)
{
	struct process process;

	(void)state;
	assert_string_equal(process_read("12 345 rest", &process), " rest");
	assert_int_equal(process.number, 12);
	assert_int_equal(process.began, 345);
	static const char *const wrong[] = {"", "12", "12 ", "x 1", "0 1", "-1 5", "12 0", "99999999999 1"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_null(process_read(wrong[i], &process));
}

static void test_a_supervisor_is_written_down_while_it_runs(void **state)
{
	struct supervisor_record written = {.process = started(), .file = "/home/a b/cluster.yaml"};
	struct supervisor_record found;

	(void)state;
	assert_false(supervisor_record_find(directory, JOB, &found));
	assert_int_equal(supervisor_record_open(directory, JOB, false, 0), -1);
	assert_int_equal(errno, ENOENT);

	int record = supervisor_record_open(directory, JOB, true, 0);

	assert_true(record >= 0);
	supervisor_record_read(record, &found);
	assert_int_equal(found.process.number, 0);
	assert_int_equal(supervisor_record_write(record, &written), 0);
	assert_int_equal(supervisor_record_open(directory, JOB, true, 0), -1);
	assert_int_equal(errno, EWOULDBLOCK);
	assert_true(supervisor_record_find(directory, JOB, &found));
	assert_int_equal(found.process.number, written.process.number);
	assert_string_equal(found.file, written.file);

	/* The record goes with the supervisor, even while a process has the file open. */
	(void)close(record);
	assert_int_equal(supervisor_end(directory, JOB), 0);
	assert_true(WIFSIGNALED(status_of(&written.process)));
	assert_false(supervisor_record_find(directory, JOB, &found));
	assert_int_equal(supervisor_end(directory, JOB), 0);
}

static void write_record(const char *text)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/nodes-%u", directory, JOB);
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	(void)fclose(file);
}

static void test_a_record_from_before_the_host_was_started_anew(void **state)
{
	struct process process = started();
	struct supervisor_record found;
	char text[256];

	(void)state;
	(void)snprintf(text, sizeof(text), "%d %llu 11111111-2222-3333-4444-555555555555 /a.yaml\n",
		       (int)process.number, (unsigned long long)process.began);
	write_record(text);
	assert_false(supervisor_record_find(directory, JOB, &found));
	assert_int_equal(supervisor_end(directory, JOB), 0);
	assert_int_equal(kill(process.number, 0), 0);
	assert_int_equal(process_end(&process), 0);
	(void)status_of(&process);
}

static void count_record(uint32_t job, void *data)
{
	uint32_t *sum = data;

	*sum += job;
}

static void test_records_are_listed(void **state)
{
	static const char *const names[] = {"nodes-1", "nodes-20", "nodes-x", "nodes-", "nodes-4.5", "job-7"};
	uint32_t sum = 0;
	char path[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		(void)close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	supervisor_record_list(directory, count_record, &sum);
	assert_int_equal(sum, 21);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		assert_int_equal(unlink(path), 0);
	}
}

/*
 * The node that a task finds in a list of this text. `directory` stands for the supervisor's directory in
 * /proc.
 */
static int read_list(const char *text, uint32_t task, uint32_t tasks, struct node_list *list)
{
	char path[PATH_MAX];
	int supervisor = open(directory, O_PATH | O_DIRECTORY);

	(void)snprintf(path, sizeof(path), "%s/root/nodes", directory);
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	(void)fclose(file);
	int result = node_list_read(supervisor, "", task, tasks, list);

	(void)close(supervisor);
	return result;
}

static void test_tasks_are_spread_over_nodes_in_a_row(void **state)
{
	static const char text[] =
		"region file:/run/vicinal/region 16\nidentity 7 70\nnode a container 1 10\n"
		"node b-1 container 2 20\nnode c exec\n";
	static const char *const names[] = {"a", "a", "b-1", "b-1", "c", "c"};
	struct node_list list;

	(void)state;
	for (uint32_t task = 0; task < 6; task++) {
		assert_int_equal(read_list(text, task, 6, &list), 0);
		assert_int_equal(list.count, 3);
		assert_string_equal(list.node.name, names[task]);
	}
	assert_false(list.node.is_container);
	assert_string_equal(list.region, "file:/run/vicinal/region");
	assert_int_equal(list.members, 16);
	assert_int_equal(list.identity.number, 7);
	/* Fewer tasks than nodes are spread, too. */
	assert_int_equal(read_list(text, 1, 2, &list), 0);
	assert_string_equal(list.node.name, "b-1");
	assert_true(list.node.is_container);
	assert_int_equal(list.node.process.began, 20);
}

static void test_tasks_are_told_of_their_node_s_vfs(void **state)
{
	static const char text[] = "interface eth1\nnode a container 1 10\nvfs 0000:01:08.0 eth1 -\n"
				   "node b container 2 20\nvfs 0000:01:08.1,0000:02:08.0 eth1 mlx5_1\n"
				   "node c container 3 30\n";
	struct node_list list;

	(void)state;
	assert_int_equal(read_list(text, 1, 3, &list), 0);
	assert_string_equal(list.interface, "eth1");
	assert_string_equal(list.vfs[0], "0000:01:08.1,0000:02:08.0");
	assert_string_equal(list.vfs[1], "eth1");
	assert_string_equal(list.vfs[2], "mlx5_1");
	assert_int_equal(read_list(text, 0, 3, &list), 0);
	assert_string_equal(list.vfs[2], "-");
	assert_int_equal(read_list(text, 2, 3, &list), 0);
	assert_string_equal(list.vfs[0], "");
}

static void test_lists_that_are_none(void **state)
{
	static const char *const texts[] = {
		"",
		"region file:/r 16\n",
		"node a container 1 10",
		"node a container 1\n",
		"node a container 1 10 2\n",
		"node a machine\n",
		"node  exec\n",
		"node exec\n",
		"nodes a exec\n",
		"node a exec\nidentity 0 0\n",
		"node a exec\nregion file:/r\n",
		"node a exec\nregion file:/r many\n",
		"node a exec\nvfs 0000:01:08.0 eth1\n",
		"node a exec\nvfs 0000:01:08.0 eth1 - -\n",
		"node a exec\nvfs  eth1 -\n",
		"node a exec\ninterface \n",
		"node aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa exec\n",
	};
	struct node_list list;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(read_list(texts[i], 0, 1, &list), -1);
}

static void test_a_name_has_room_for_its_end(void **state)
{
	char text[2 * NODE_NAME_MAX];
	char name[NODE_NAME_MAX + 1];
	struct node_list list;

	(void)state;
	memset(name, 'a', NODE_NAME_MAX);
	name[NODE_NAME_MAX] = '\0';
	(void)snprintf(text, sizeof(text), "node %s exec\n", name);
	assert_int_equal(read_list(text, 0, 1, &list), -1);
	(void)snprintf(text, sizeof(text), "node %s exec\n", name + 1);
	assert_int_equal(read_list(text, 0, 1, &list), 0);
	assert_string_equal(list.node.name, name + 1);
}

static void test_no_link_is_taken_for_a_list(void **state)
{
	char path[PATH_MAX];
	char target[PATH_MAX];
	struct node_list list;
	int supervisor = open(directory, O_PATH | O_DIRECTORY);

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/root/nodes", directory);
	(void)snprintf(target, sizeof(target), "%s/root/there", directory);
	assert_int_equal(read_list("node a exec\n", 0, 1, &list), 0);
	assert_int_equal(rename(path, target), 0);
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(node_list_read(supervisor, "", 0, 1, &list), -1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(node_list_read(supervisor, "", 0, 1, &list), -1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(target), 0);
	(void)close(supervisor);
}

static void test_groups_of_a_job(void **state)
{
	static const struct {
		const char *groups;
		const char *path; /* NULL: not a group of job 7 */
		bool is_of_extern;
	} cases[] = {
		/* Version 1: the step's slurmstepd, and a process of its own. */
		{"5:memory:/slurm/uid_1/job_7/step_extern\n3:freezer:/slurm/uid_1/job_7/step_extern/slurm\n",
		 "/slurm/uid_1/job_7", false},
		{"5:memory:/slurm/uid_1/job_7/step_extern/task_0\n1:name=systemd:/\n"
		 "3:freezer:/slurm/uid_1/job_7/step_extern\n0::/\n",
		 "/slurm/uid_1/job_7", true},
		{"5:memory:/slurm/uid_1/job_7/step_extern\n3:freezer:/slurm/uid_1/job_7/step_0\n",
		 "/slurm/uid_1/job_7", false},
		/* Version 2. */
		{"0::/system.slice/slurmstepd.scope/job_7/step_extern/slurm\n",
		 "/system.slice/slurmstepd.scope/job_7", false},
		{"0::/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special\n",
		 "/system.slice/slurmstepd.scope/job_7", true},
		{"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
		 "/system.slice/slurmstepd.scope/job_7", false},
		/* No group, and groups of other jobs. */
		{"0::/system.slice/slurmstepd.scope/job_70/step_extern/user/task_special\n", NULL, false},
		{"0::/system.slice/slurmd.service\n", NULL, false},
		{"5:memory:/\n0::/\n", NULL, false},
		{"", NULL, false},
		{"0:", NULL, false},
	};
	char path[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(job_cgroup_find(cases[i].groups, 7, path), cases[i].path != NULL);
		if (cases[i].path == NULL)
			continue;
		assert_string_equal(path, cases[i].path);
		assert_int_equal(job_cgroup_is_of_extern(cases[i].groups, path), cases[i].is_of_extern);
	}
	/* A group of another process with the same name is not the job's. */
	assert_false(job_cgroup_is_of_extern("0::/user.slice/job_7/step_extern/user/task_special\n",
					     "/system.slice/slurmstepd.scope/job_7"));
}

static int make_directory(void **state)
{
	char path[PATH_MAX];

	(void)state;
	if (mkdtemp(directory) == NULL)
		return -1;
	(void)snprintf(path, sizeof(path), "%s/root", directory);
	return mkdir(path, 0700);
}

static int remove_directory(void **state)
{
	char path[PATH_MAX];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/root", directory);
	/* Nothing else was left there. */
	return rmdir(path) == 0 && rmdir(directory) == 0 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_process_is_told_from_a_later_one_of_its_number),
		cmocka_unit_test(test_processes_are_read),
		cmocka_unit_test(test_a_supervisor_is_written_down_while_it_runs),
		cmocka_unit_test(test_a_record_from_before_the_host_was_started_anew),
		cmocka_unit_test(test_records_are_listed),
		cmocka_unit_test(test_tasks_are_spread_over_nodes_in_a_row),
		cmocka_unit_test(test_tasks_are_told_of_their_node_s_vfs),
		cmocka_unit_test(test_lists_that_are_none),
		cmocka_unit_test(test_a_name_has_room_for_its_end),
		cmocka_unit_test(test_no_link_is_taken_for_a_list),
		cmocka_unit_test(test_groups_of_a_job),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
