/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of the VFs of Slurm's jobs that do not call Slurm: the words for GRES, and the files on a
 * host.
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

#include "slurm/job_vfs.h"
#include "slurm/node_vfs.h"

static char directory[64];

static int make_directory(void **state)
{
	(void)state;
	(void)snprintf(directory, sizeof(directory), "/tmp/vicinal-slurm-vfs-XXXXXX");
	return mkdtemp(directory) != NULL ? 0 : -1;
}

static int remove_directory(void **state)
{
	(void)state;
	return rmdir(directory);
}

static void put(const char *name, const char *text)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static void take_away(const char *name)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	assert_int_equal(unlink(path), 0);
}

static void test_words_that_name_it(void **state)
{
	static const char *const good[] = {"vf(CNT:1)", "vf:ib0(CNT:1)", "gpu:a100(IDX:0-1),vf:ib0(CNT:2)",
					   "gpu(IDX:0,2),vf:2(IDX:1)"};
	static const char *const bad[] = {"",       "gpu(CNT:1)",    "vfx(CNT:1)",    "xvf(CNT:1)",
					  "gpu:vf", "gpu:vf(CNT:1)", "gpu(CNT:1),vf", "gpu,vfx:y,v",
					  ","};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(job_vfs_are_named(good[i], "vf"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(job_vfs_are_named(bad[i], "vf"));
}

static void test_what_is_known_of_a_job(void **state)
{
	char path[PATH_MAX];

	(void)state;
	assert_int_equal(job_vfs_path(directory, 42, path), 0);
	assert_int_equal(job_vfs_find(path), JOB_VFS_UNKNOWN);
	assert_false(job_vfs_remain(directory, 42));

	job_vfs_note_none(directory, path);
	assert_int_equal(job_vfs_find(path), JOB_VFS_NONE);
	assert_false(job_vfs_remain(directory, 42));
	assert_int_equal(job_vfs_find(path), JOB_VFS_UNKNOWN);

	put("vfs-42", "A=1\n");
	assert_int_equal(job_vfs_find(path), JOB_VFS_GIVEN);
	job_vfs_note_none(directory, path); /* must not forget the VFs */
	assert_true(job_vfs_remain(directory, 42));
	assert_int_equal(job_vfs_find(path), JOB_VFS_GIVEN);
	assert_false(job_vfs_remain(directory, 4));
	take_away("vfs-42");

	put("vfs-42.lock", ""); /* a command was killed before it wrote more */
	assert_true(job_vfs_remain(directory, 42));
	take_away("vfs-42.lock");
}

static void test_a_directory_that_is_not_there(void **state)
{
	char path[PATH_MAX];

	(void)state;
	assert_int_equal(rmdir(directory), 0);
	assert_false(job_vfs_remain(directory, 42));
	assert_false(job_vfs_any(directory, NULL));
	assert_int_equal(job_vfs_path(directory, 42, path), 0);
	job_vfs_note_none(directory, path);
	assert_int_equal(job_vfs_find(path), JOB_VFS_NONE);
	assert_false(job_vfs_remain(directory, 42));
}

static void test_what_others_may_write_is_not_believed(void **state)
{
	char path[PATH_MAX];
	char other[PATH_MAX];

	(void)state;
	assert_int_equal(job_vfs_path(directory, 5, path), 0);
	(void)snprintf(other, sizeof(other), "%s/other", directory);
	put("other", "LD_PRELOAD=/tmp/x.so\n");
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(job_vfs_find(path), JOB_VFS_FOREIGN);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(link(other, path), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(job_vfs_find(path), JOB_VFS_FOREIGN);
	assert_int_equal(unlink(path), 0);
	take_away("other");
}

static uint32_t seen;
static uint32_t meant;

static bool is_meant(uint32_t job)
{
	seen++;
	return job == meant;
}

static void test_jobs_that_have_some(void **state)
{
	(void)state;
	put("vfs-7", "A=1\n");
	put("vfs-8.lock", "");
	put("vfs-9", ""); /* has none */
	put("vfs-x", "A=1\n");
	put("vfs-99999999999", "A=1\n");
	put("job-10", "A=1\n");
	for (meant = 7; meant <= 10; meant++) {
		seen = 0;
		assert_int_equal(job_vfs_any(directory, is_meant), meant <= 8);
		assert_true(seen >= 1 && seen <= 2);
	}
	take_away("vfs-7");
	take_away("vfs-8.lock");
	take_away("vfs-9");
	take_away("vfs-x");
	take_away("vfs-99999999999");
	take_away("job-10");
}

static void test_vfs_that_are_for_nodes(void **state)
{
	static struct node_vfs found;
	static char many[128 * (NODE_VFS_MAX + 1)];
	static char line[NODE_VF_LINE_MAX + 8];
	char said[256];

	(void)state;
	assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_NONE);
	put("vfs-7.nodes", "ffff:01:08.0 ethernet ib0 - -\nffff:02:08.0 infiniband ib0 a b\n");
	assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_GIVEN);
	assert_int_equal(found.count, 2);
	assert_string_equal(found.lines[1], "ffff:02:08.0 infiniband ib0 a b");
	/*
	 * Refused: a VF whose interface stays the host's, a VF that does not exist, and the same
	 * VF twice.
	 */
	found.granted[0] = true;
	for (uint32_t number = 0; number < 4; number++) {
		assert_int_equal(node_vfs_grant(&found, number, -1, said, sizeof(said)), -1);
		assert_string_equal(said,
				    "vicinal: the nodes request an SR-IOV VF that the job does not have");
	}
	/*
	 * A VF that a container has is not given to machines. A VF that machines have is given to
	 * nobody else.
	 */
	const struct settings settings = {.command = "/bin/true", .directory = directory};

	assert_int_equal(node_vfs_grant_to_vms(&found, &settings, 7, 1, said, sizeof(said)), -1);
	found.granted[0] = false;
	assert_int_equal(node_vfs_grant_to_vms(&found, &settings, 7, 1, said, sizeof(said)), 0);
	assert_int_equal(node_vfs_grant_to_vms(&found, &settings, 7, 1, said, sizeof(said)), -1);
	assert_int_equal(node_vfs_grant(&found, 0, -1, said, sizeof(said)), -1);
	for (size_t i = 0, used = 0; i < NODE_VFS_MAX + 1; i++)
		used += (size_t)snprintf(many + used, sizeof(many) - used, "ffff:01:08.0 ethernet a - -\n");
	memset(line, 'x', sizeof(line) - 1);
	const char *const bad[] = {"", "ffff:01:08.0 ethernet a - -", many, line};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put("vfs-7.nodes", bad[i]);
		assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_WRONG);
	}
	put("vfs-7.nodes", "ffff:01:08.0 ethernet ib0 - -\n");
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/vfs-7.nodes", directory);
	assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_GIVEN);
	assert_int_equal(chmod(path, 0664), 0);
	assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_WRONG);
	assert_int_equal(chmod(path, 0646), 0);
	assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_WRONG);
	take_away("vfs-7.nodes");
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(node_vfs_read(directory, 7, &found), NODE_VFS_WRONG);
	take_away("vfs-7.nodes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_that_name_it),
		cmocka_unit_test_setup_teardown(test_what_is_known_of_a_job, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(test_a_directory_that_is_not_there, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(test_what_others_may_write_is_not_believed, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(test_vfs_that_are_for_nodes, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(test_jobs_that_have_some, make_directory, remove_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
