/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring the kind of memory of the region by times, with a clock of the test's own. */
#include "world.h"

#include <time.h>

#define MEMBERS 4U
#define SECOND UINT64_C(1000000000)
#define SLOW 20.0

/* A measurement reads the clock before and after each of its passes. Half of the passes are in the region. */
enum { READS = 16, ALL = 1000 };

static uint32_t clock_reads;
static uint32_t slow_measurements; /* this many first measurements are slow */
static uint64_t clock_shows;
static bool clock_is_ours;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	if (!clock_is_ours)
		return __real_clock_gettime(clock, time);
	bool in_region = clock_reads % READS >= READS / 2;
	bool slow = in_region && clock_reads / READS < slow_measurements;
	clock_shows += slow ? 100000 : 1000;
	clock_reads++;
	*time = (struct timespec){(time_t)(clock_shows / SECOND), (long)(clock_shows % SECOND)};
	return 0;
}

static struct region *region;
static struct member *member;

static int join(void **state)
{
	struct region_error error;

	(void)state;
	region = world_region(MEMBERS, REGION_SECTION_MIN);
	return member_join(region, 0, SECOND, &member, &error);
}

static int leave(void **state)
{
	(void)state;
	member_leave(member);
	region_detach(region);
	return 0;
}

static double measure(uint32_t slow)
{
	slow_measurements = slow;
	clock_reads = 0;
	clock_is_ours = true;
	double slower = member_measure(member, SLOW);
	clock_is_ours = false;
	return slower;
}

static void test_usual_memory_is_measured_once(void **state)
{
	(void)state;
	assert_true(measure(0) < SLOW);
	assert_int_equal(clock_reads, READS);
}

static void test_a_busy_machine_does_not_make_memory_slow(void **state)
{
	(void)state;
	assert_true(measure(3) < SLOW);
	assert_int_equal(clock_reads, 4 * READS);
}

static void test_what_is_slow_each_time_is_slow(void **state)
{
	(void)state;
	assert_true(measure(ALL) >= SLOW);
	assert_true(clock_reads > 4 * READS && clock_reads < ALL * READS);
}

static void test_real_memory_is_not_slow(void **state)
{
	(void)state;
	double slower = member_measure(member, SLOW);
	assert_true(slower > 0.0 && slower < SLOW);
}

#define IN_A_REGION(name) cmocka_unit_test_setup_teardown(name, join, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_A_REGION(test_usual_memory_is_measured_once),
		IN_A_REGION(test_a_busy_machine_does_not_make_memory_slow),
		IN_A_REGION(test_what_is_slow_each_time_is_slow),
		IN_A_REGION(test_real_memory_is_not_slow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
