/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of Slurm's plugin that do not call Slurm: values of --vicinal, the plugin's arguments, its files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region/layout.h"
#include "slurm/command.h"
#include "slurm/job_region.h"
#include "slurm/request.h"
#include "slurm/settings.h"

#define MOST (UINT64_C(4) << 30)

static char fault[512];

static int read_request(const char *value, struct request *request)
{
	fault[0] = '\0';
	return request_read(value, MOST, request, fault, sizeof(fault));
}

static void test_values_that_mean_something(void **state)
{
	static const struct {
		const char *value;
		struct request request;
	} cases[] = {
		{NULL, {0}},
		{"", {0}},
		{"(null)", {0}},
		{"region", {0}},
		{"region,members=64", {.members = 64}},
		{"region,section=4M,members=2", {.members = 2, .section = 4U << 20}},
		{"region,heap=1G", {.heap = 1U << 30}},
		{"region,section=262144", {.section = 262144}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct request request;

		assert_int_equal(read_request(cases[i].value, &request), 0);
		assert_memory_equal(&request, &cases[i].request, sizeof(request));
	}
}

static void test_values_that_are_files(void **state)
{
	static const char *const files[] = {"cluster.yaml", "a.yml",         "./cluster",
					    "/regions/x",   "region/a.yaml", "a b;$(c).yaml"};
	static const char *const none[] = {".yaml", "cluster.yaml2", "a\nb.yaml", "/a\tb", "/\x7f"};
	struct request request;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		assert_int_equal(read_request(files[i], &request), 0);
		assert_string_equal(request.file, files[i]);
	}
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(read_request(none[i], &request), -1);
}

static void test_values_that_mean_nothing(void **state)
{
	static const char *const values[] = {
		"nonsense",
		",",
		"regions",
		"members=4",
		"region,members",
		"region,members=",
		"region,members=0",
		"region,members=-1",
		"region,members=4 ",
		"region,members=1",
		"region,members=513",
		"region,members=9999999999999999999999",
		"region,section=1T",
		"region,section=4MM",
		"region,section=100K",
		"region,section=2G",
		"region,section=300001",
		"region,heap=4097",
		"region,heap=999999999G",
		"region,members=512,heap=33554432G", /* together 2^64 bytes */
		"region,members=512,section=1G",
		"region,heap=3G",
		"region,members=4;rm -rf /",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct request request;

		assert_int_equal(read_request(values[i], &request), -1);
		assert_true(strlen(fault) > 20);
	}
}

static void test_a_long_value_is_refused(void **state)
{
	char value[4096] = "region,";
	struct request request;

	(void)state;
	memset(value + 7, 'x', sizeof(value) - 8);
	value[sizeof(value) - 1] = '\0';
	assert_int_equal(read_request(value, &request), -1);
	assert_non_null(strstr(fault, "too long"));
}

static void test_arguments_of_the_plugin(void **state)
{
	char command[] = "command=/usr/bin/vicinal";
	char directory[] = "directory=/run/regions";
	char variables[] = "variables=/etc/slurm/vicinal.variables";
	char most[] = "max_size=8G";
	char relative[] = "directory=run";
	char unknown[] = "colour=red";
	char bad_size[] = "max_size=much";
	char vfs[] = "vfs=vf";
	char no_vfs[] = "vfs=";
	char *good[] = {command, directory, variables, most};
	char port[] = "network=4789";
	char host[] = "network=host";
	char bad_port[] = "network=70000";
	char no_port[] = "network=0";
	char word_port[] = "network=own";
	char vlans[] = "vlans=1000-1999";
	char no_vlans[] = "vlans=";
	char word_vlans[] = "vlans=all";
	char *wrong_ones[] = {relative, unknown,   bad_size, no_vfs,    bad_port,
			      no_port,  word_port, no_vlans, word_vlans};
	struct settings settings;
	const char *wrong = NULL;

	(void)state;
	assert_int_equal(settings_read(4, good, &settings, &wrong), 0);
	assert_string_equal(settings.directory, "/run/regions");
	assert_int_equal(settings.max_size, UINT64_C(8) << 30);
	assert_int_equal(settings_read(3, good, &settings, &wrong), 0);
	assert_int_equal(settings.max_size, MOST);
	assert_int_equal(settings_read(2, good, &settings, &wrong), -1);
	assert_string_equal(wrong, "variables");
	assert_null(settings.vfs);
	assert_null(settings.vlans);
	good[3] = vfs;
	assert_int_equal(settings_read(4, good, &settings, &wrong), 0);
	assert_string_equal(settings.vfs, "vf");
	/* Only root can have this port, unless an administrator chooses another. */
	assert_true(settings.network_port > 0 && settings.network_port < 1024);
	good[3] = vlans;
	assert_int_equal(settings_read(4, good, &settings, &wrong), 0);
	assert_string_equal(settings.vlans, "1000-1999");
	good[3] = port;
	assert_int_equal(settings_read(4, good, &settings, &wrong), 0);
	assert_int_equal(settings.network_port, 4789);
	good[3] = host;
	assert_int_equal(settings_read(4, good, &settings, &wrong), 0);
	assert_int_equal(settings.network_port, 0);
	for (size_t i = 0; i < sizeof(wrong_ones) / sizeof(wrong_ones[0]); i++) {
		good[3] = wrong_ones[i];
		assert_int_equal(settings_read(4, good, &settings, &wrong), -1);
		assert_string_equal(wrong, wrong_ones[i]);
	}
}

static void test_variables_are_read(void **state)
{
	static char text[] = "# a comment\n\nA=1\nB=x=y\nC=\nno variable\n";
	FILE *file = fmemopen(text, sizeof(text) - 1, "r");
	const char *name = NULL;
	const char *value = NULL;
	char line[64];

	(void)state;
	assert_non_null(file);
	assert_int_equal(settings_next_variable(file, line, sizeof(line), &name, &value), 1);
	assert_string_equal(name, "A");
	assert_int_equal(settings_next_variable(file, line, sizeof(line), &name, &value), 1);
	assert_string_equal(value, "x=y");
	assert_int_equal(settings_next_variable(file, line, sizeof(line), &name, &value), 1);
	assert_string_equal(value, "");
	assert_int_equal(settings_next_variable(file, line, sizeof(line), &name, &value), -1);
	(void)fclose(file);
}

/* A file that may be the region of a job. `members` is its number of slots, and slot 1 may have a member. */
static int make_file(const char *directory, const char *name, uint32_t members)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

	assert_true(file >= 0);
	assert_int_equal(pwrite(file, &members, sizeof(members), offsetof(struct region_header, members)),
			 sizeof(members));
	return file;
}

static void test_regions_of_jobs(void **state)
{
	char directory[] = "/tmp/vicinal-test-slurm-XXXXXX";
	char path[PATH_MAX];
	uint32_t members = 0;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(job_region_path(directory, 42, path), 0);
	assert_int_equal(job_region_find(path, geteuid(), &members), JOB_REGION_NONE);
	assert_int_equal(job_region_remove(directory, 42), 0);
	assert_false(job_region_any_idle(directory));

	int file = make_file(directory, "job-42", 7);
	int other = make_file(directory, "job-421", 2);
	int part = make_file(directory, "job-42.99", 2);

	assert_int_equal(job_region_find(path, geteuid(), &members), JOB_REGION_GOOD);
	assert_int_equal(members, 7);
	assert_int_equal(job_region_find(path, geteuid() + 1, &members), JOB_REGION_FOREIGN);

	/*
	 * A lock of another open file description, like a member's. A lock of the same description would not
	 * count as another's.
	 */
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};

	assert_true(job_region_any_idle(directory));
	assert_int_equal(fcntl(file, F_OFD_SETLK, &lock), 0);
	assert_int_equal(fcntl(other, F_OFD_SETLK, &lock), 0);
	assert_int_equal(fcntl(part, F_OFD_SETLK, &lock), 0);
	assert_false(job_region_any_idle(directory));

	assert_int_equal(job_region_remove(directory, 42), 0);
	assert_int_equal(job_region_find(path, geteuid(), &members), JOB_REGION_NONE);
	assert_int_equal(job_region_path(directory, 421, path), 0);
	assert_int_equal(job_region_find(path, geteuid(), &members), JOB_REGION_GOOD);
	assert_int_equal(job_region_remove(directory, 421), 0);
	/* Nothing else was left there. */
	assert_int_equal(rmdir(directory), 0);
	(void)close(file);
	(void)close(other);
	(void)close(part);
}

static void test_links_are_not_followed(void **state)
{
	char directory[] = "/tmp/vicinal-test-slurm-XXXXXX";
	char path[PATH_MAX];
	uint32_t members = 0;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(job_region_path(directory, 5, path), 0);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(job_region_find(path, 0, &members), JOB_REGION_FOREIGN);
	assert_int_equal(job_region_remove(directory, 5), 0);
	assert_int_equal(access("/etc/passwd", F_OK), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(job_region_find(path, geteuid(), &members), JOB_REGION_FOREIGN);
	assert_int_equal(job_region_remove(directory, 5), 0);
	assert_int_equal(rmdir(directory), 0);
}

static void test_what_a_program_says_last_is_kept(void **state)
{
	static const char *const good[] = {"/bin/sh", "-c", "echo all is well >&2", NULL};
	static const char *const bad[] = {"/bin/sh", "-c", "echo first >&2; echo last >&2; exit 3", NULL};
	static const char *const silent[] = {"/bin/sh", "-c", "kill -9 $$", NULL};
	static const char *const missing[] = {"/nowhere/vicinal", NULL};
	static const char *const loud[] = {"/bin/sh", "-c", "yes | head -c 100000 >&2", NULL};
	static const char *const curious[] = {"/bin/sh", "-c", "test -z \"$SECRET\"", NULL};
	char said[256];

	(void)state;
	assert_int_equal(command_run(good, said, sizeof(said)), 0);
	assert_int_equal(command_run(bad, said, sizeof(said)), -1);
	assert_string_equal(said, "last");
	assert_int_equal(command_run(silent, said, sizeof(said)), -1);
	assert_non_null(strstr(said, "without a message"));
	assert_int_equal(command_run(missing, said, sizeof(said)), -1);
	assert_non_null(strstr(said, "cannot run /nowhere/vicinal"));
	assert_int_equal(command_run(loud, said, sizeof(said)), 0);
	assert_int_equal(setenv("SECRET", "a user's", 1), 0);
	assert_int_equal(command_run(curious, said, sizeof(said)), 0);
}

static void test_a_job_s_program_that_is_killed_is_told_from_one_that_fails(void **state)
{
	static const char *const killed[] = {"/bin/sh", "-c", "kill -9 $$", NULL};
	static const char *const ended[] = {"/bin/sh", "-c", "kill -15 $$", NULL};
	static const char *const first[] = {"/bin/sh", "-c", "test $(cat /proc/self/oom_score_adj) = 1000",
					    NULL};
	struct command_of_job of = {.job = 7};
	char said[256];

	(void)state;
	assert_int_equal(command_run_of_job(killed, &of, said, sizeof(said)), -1);
	assert_true(of.was_killed);
	assert_true(of.process > 0);
	assert_int_equal(command_run_of_job(ended, &of, said, sizeof(said)), -1);
	assert_false(of.was_killed);
	assert_int_equal(command_run_of_job(first, &of, said, sizeof(said)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_that_mean_something),
		cmocka_unit_test(test_values_that_are_files),
		cmocka_unit_test(test_values_that_mean_nothing),
		cmocka_unit_test(test_a_long_value_is_refused),
		cmocka_unit_test(test_arguments_of_the_plugin),
		cmocka_unit_test(test_variables_are_read),
		cmocka_unit_test(test_regions_of_jobs),
		cmocka_unit_test(test_links_are_not_followed),
		cmocka_unit_test(test_what_a_program_says_last_is_kept),
		cmocka_unit_test(test_a_job_s_program_that_is_killed_is_told_from_one_that_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
