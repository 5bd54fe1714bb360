/* SPDX-License-Identifier: BSD-3-Clause */
/* Profiles: valid and invalid contents, allowed owners, and the choice of the file. */
#include "world.h"

#include "api/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/vicinal-profile-XXXXXX";
static uint32_t warnings;
static char warned[8192];

static void warn(const char *text)
{
	warnings++;
	(void)snprintf(warned, sizeof(warned), "%s", text);
}

static const struct threshold *threshold_named(const char *key)
{
	for (uint32_t i = 0; i < THRESHOLDS; i++)
		if (strcmp(threshold_table[i].key, key) == 0)
			return &threshold_table[i];
	fail_msg("no threshold %s", key);
	return NULL;
}

static void assert_usual(const struct thresholds *thresholds)
{
	struct thresholds usual;

	thresholds_open(&usual);
	assert_memory_equal(thresholds, &usual, sizeof(usual));
}

static void test_ranges_hold_what_is_usual(void **state)
{
	struct thresholds thresholds;

	(void)state;
	thresholds_open(&thresholds);
	for (uint32_t i = 0; i < THRESHOLDS; i++) {
		const struct threshold *each = &threshold_table[i];
		assert_in_range(each->usual, each->least, each->most);
		assert_int_equal(threshold_get(&thresholds, each), each->usual);
	}
	/* Assumptions of these thresholds: see thresholds.c. */
	assert_int_equal(threshold_named("short_bytes")->most, WIRE_SHORT_BYTES);
	assert_true(threshold_named("eager_bytes")->least >= MESSENGER_INJECT_BYTES);
	assert_true(threshold_named("eager_bytes")->most <= CHUNK_LARGE);
	assert_true(threshold_named("piece_bytes")->most <= CHUNK_LARGE);
}

static void test_what_a_profile_says(void **state)
{
	static const char text[] = "# made by hand\n"
				   "\n"
				   "eager_bytes = 16K # 16384\n"
				   "  pieces_in_flight=3\r\n"
				   "\tsingle_copy_bytes\t=\t1M\n"
				   "polls_per_read = 1";
	struct thresholds thresholds;
	struct region_error error;

	(void)state;
	thresholds_open(&thresholds);
	assert_int_equal(profile_parse("p", text, strlen(text), &thresholds, &error), 0);
	assert_int_equal(thresholds.eager_bytes, 16384);
	assert_int_equal(thresholds.pieces_in_flight, 3);
	assert_int_equal(thresholds.single_copy_bytes, 1048576);
	assert_int_equal(thresholds.polls_per_read, 1);
	assert_int_equal(thresholds.short_bytes, WIRE_SHORT_BYTES);
	/* Even beside invalid lines. */
	assert_int_equal(profile_parse("p", "x\neager_bytes = 8K\n", 19, &thresholds, &error), 1);
	assert_int_equal(thresholds.eager_bytes, 8192);
}

static void test_lines_that_say_nothing(void **state)
{
	static const struct {
		const char *text;
		size_t length; /* 0: all of it */
		const char *says;
	} bad[] = {
		{"eager_bytes", 0, "line 1: it is not key = value"},
		{"\n\neager = 4096", 0, "line 3: there is no threshold eager:"},
		{"= 4096", 0, "line 1: there is no threshold :"},
		{"=", 0, "line 1"},
		{"eager_bytes =", 0, "eager_bytes cannot be , only 4096 to 65536"},
		{"eager_bytes = -1", 0, "cannot be -1"},
		{"eager_bytes = +8192", 0, "cannot be +8192"},
		{"eager_bytes = 0x2000", 0, "cannot be 0x2000"},
		{"eager_bytes = 4095", 0, "cannot be 4095"},
		{"eager_bytes = 65537", 0, "cannot be 65537"},
		{"eager_bytes = 8192.0", 0, "cannot be 8192.0"},
		{"eager_bytes = 8 192", 0, "cannot be 8?192"},
		{"eager_bytes = 18446744073709559808", 0, "cannot be"}, /* 2^64 + 8192 */
		{"eager_bytes = 4294975488", 0, "cannot be"},           /* 2^32 + 8192 */
		{"eager_bytes = 18014398509481985K", 0, "cannot be"},   /* 2^64 + 1024 */
		{"eager_bytes = 8KB", 0, "cannot be 8KB"},
		{"eager_bytes = \x1b[31m8192", 0, "cannot be ?[31m8192"},
		{"eager_bytes\0 = 8192", 19, "there is no threshold eager_bytes?"},
		{"eager_bytes = 8192\0", 19, "cannot be 8192?"},
		{"Eager_Bytes = 8192", 0, "no threshold Eager_Bytes"},
		{"eager_bytes = 4096\neager_bytes = 16384", 0, "line 2: eager_bytes is set twice"},
		{"x = 1\n\ny\n", 0, "line 1: there is no threshold x (invalid lines after it: 1)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		size_t length = bad[i].length > 0 ? bad[i].length : strlen(bad[i].text);
		/* A block of exactly this length, so that a sanitizer sees a byte beside. */
		char *text = malloc(length);
		struct thresholds thresholds;
		struct region_error error;

		assert_non_null(text);
		memcpy(text, bad[i].text, length);
		thresholds_open(&thresholds);
		assert_true(profile_parse("/a/profile", text, length, &thresholds, &error) > 0);
		if (strstr(error.text, bad[i].says) == NULL || strstr(error.text, "/a/profile") == NULL ||
		    strstr(error.text, "correct or delete") == NULL)
			fail_msg("%s: %s", bad[i].says, error.text);
		assert_usual(&thresholds);
		free(text);
	}
}

static void test_a_line_without_end(void **state)
{
	char *text = malloc(PROFILE_BYTES_MAX);
	struct thresholds thresholds;
	struct region_error error;

	(void)state;
	assert_non_null(text);
	thresholds_open(&thresholds);
	memset(text, 'a', PROFILE_BYTES_MAX);
	assert_int_equal(profile_parse("p", text, PROFILE_BYTES_MAX, &thresholds, &error), 1);
	memset(text, '\n', PROFILE_BYTES_MAX);
	assert_int_equal(profile_parse("p", text, PROFILE_BYTES_MAX, &thresholds, &error), 0);
	memset(text, '=', PROFILE_BYTES_MAX);
	assert_int_equal(profile_parse("p", text, PROFILE_BYTES_MAX, &thresholds, &error), 1);
	assert_usual(&thresholds);
	free(text);
}

/* ---- files ---- */

static const char *path_in(const char *name)
{
	static char paths[4][256];
	static uint32_t next;
	char *path = paths[next++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static const char *write_file(const char *name, const char *text)
{
	const char *path = path_in(name);
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0644), 0);
	return path;
}

static uint32_t eager_of(const struct profile_locations *locations)
{
	struct thresholds thresholds;

	warnings = 0;
	thresholds_open(&thresholds);
	profile_load(locations, &thresholds, warn);
	return thresholds.eager_bytes;
}

static int make_directory(void **state)
{
	(void)state;
	if (mkdtemp(directory) == NULL || mkdir(path_in("config"), 0700) != 0 ||
	    mkdir(path_in("config/vicinal"), 0700) != 0 || mkdir(path_in("home"), 0700) != 0 ||
	    mkdir(path_in("home/.config"), 0700) != 0 || mkdir(path_in("home/.config/vicinal"), 0700) != 0)
		return -1;
	(void)write_file("named", "eager_bytes = 8K\n");
	(void)write_file("config/vicinal/profile", "eager_bytes = 12K\n");
	(void)write_file("home/.config/vicinal/profile", "eager_bytes = 16K\n");
	(void)write_file("system", "eager_bytes = 20K\n");
	return 0;
}

static int remove_directory(void **state)
{
	static const char *const names[] = {"named",
					    "config/vicinal/profile",
					    "home/.config/vicinal/profile",
					    "system",
					    "bad",
					    "config/vicinal",
					    "config",
					    "home/.config/vicinal",
					    "home/.config",
					    "home"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)remove(path_in(names[i]));
	return rmdir(directory);
}

static void test_which_file_counts(void **state)
{
	struct profile_locations locations = {
		.named = path_in("named"),
		.config = path_in("config"),
		.home = path_in("home"),
		.system = path_in("system"),
	};

	(void)state;
	assert_int_equal(eager_of(&locations), 8192);
	locations.named = "";
	assert_int_equal(eager_of(&locations), EAGER_BYTES);
	locations.named = NULL;
	assert_int_equal(eager_of(&locations), 12288);
	locations.config = "relative";
	assert_int_equal(eager_of(&locations), 16384);
	locations.home = "/nonexistent";
	assert_int_equal(eager_of(&locations), 20480);
	locations.home = NULL;
	assert_int_equal(eager_of(&locations), 20480);
	locations.system = "/nonexistent/profile";
	assert_int_equal(eager_of(&locations), EAGER_BYTES);
	assert_int_equal(warnings, 0);
}

static void test_with_more_rights_than_its_user(void **state)
{
	char config[256];
	char system[256];
	struct profile_locations locations = {.secure = true};

	(void)state;
	(void)snprintf(config, sizeof(config), "%s", path_in("config"));
	(void)snprintf(system, sizeof(system), "%s", path_in("system"));
	locations.config = config;
	locations.system = system;
	assert_int_equal(eager_of(&locations), 20480);
	assert_int_equal(warnings, 0);
	locations.named = path_in("named");
	assert_int_equal(eager_of(&locations), 20480);
	assert_int_equal(warnings, 1);
	assert_non_null(strstr(warned, "VICINAL_PROFILE is ignored"));
}

static void assert_refused(const char *path, const char *says)
{
	const struct profile_locations locations = {.named = path, .system = "/nonexistent"};

	assert_int_equal(eager_of(&locations), EAGER_BYTES);
	assert_int_equal(warnings, 1);
	if (strstr(warned, says) == NULL || strstr(warned, path) == NULL)
		fail_msg("%s: %s", says, warned);
}

static void test_files_that_are_not_used(void **state)
{
	(void)state;
	assert_refused("/nonexistent/profile", "does not exist: correct or unset");
	assert_refused(directory, "is not a file");
	assert_refused("/dev/zero", "is not a file");
	assert_refused(write_file("bad", "what is this?\n"), "line 1: it is not key = value");

	char *long_text = malloc(PROFILE_BYTES_MAX + 1);
	assert_non_null(long_text);
	memset(long_text, '\n', PROFILE_BYTES_MAX);
	long_text[PROFILE_BYTES_MAX] = '\0';
	assert_refused(write_file("bad", long_text), "no profile is so long");
	free(long_text);

	const char *path = write_file("bad", "eager_bytes = 8192\n");
	assert_int_equal(chmod(path, 0664), 0);
	assert_refused(path, "can be written by others (mode 664), and is not used: chmod go-w it");
	assert_int_equal(chmod(path, 0646), 0);
	assert_refused(path, "can be written by others (mode 646)");
	(void)unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_refused(path, "is not a file");
	(void)unlink(path);
	if (geteuid() != 0) {
		(void)write_file("bad", "eager_bytes = 8192\n");
		assert_int_equal(chmod(path, 0), 0);
		assert_refused(path, "cannot be opened");
		return;
	}
	(void)write_file("bad", "eager_bytes = 8192\n");
	assert_int_equal(chown(path, 12345, 12345), 0);
	assert_refused(path, "belongs to user 12345, and is not used: make a copy of your own");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges_hold_what_is_usual),
		cmocka_unit_test(test_what_a_profile_says),
		cmocka_unit_test(test_lines_that_say_nothing),
		cmocka_unit_test(test_a_line_without_end),
		cmocka_unit_test(test_which_file_counts),
		cmocka_unit_test(test_with_more_rights_than_its_user),
		cmocka_unit_test(test_files_that_are_not_used),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
