/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces through the cache or past it: copies past the cache are copies, whatever their
 * alignment; and the way that costs less is found, kept, and found again when it changes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "proto/bypass.h"
#include "region/chunks.h"
#include "region/copy.h"

/* A machine on which a piece costs so many ticks through the cache, and past it. */
struct machine {
	uint64_t through;
	uint64_t past;
};

static const struct machine shared_cache = {2400, 3500};
static const struct machine separate_caches = {10000, 3300};

/* Copy `pieces`; returns how many of them went past the cache. */
static unsigned copy_pieces(struct bypass *bypass, struct machine machine, unsigned pieces)
{
	unsigned past = 0;

	for (unsigned i = 0; i < pieces; i++) {
		past += bypass->past;
		bypass_count(bypass, bypass->past ? machine.past : machine.through, CHUNK_LARGE);
	}
	return past;
}

static void test_copies_of_every_alignment(void **state)
{
	static unsigned char from[1024];
	static unsigned char to[1024];
	static const size_t lengths[] = {0, 1, 63, 64, 65, 127, 128, 200, 500, 640};

	(void)state;
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + 1);
	for (size_t source = 0; source < 130; source++)
		for (size_t target = 1; target < 130; target++) {
			size_t length = lengths[(source + target) % 10];
			memset(to, 0, sizeof(to));
			copy_past_cache_out((shared_bytes *)(void *)(to + target), from + source, length);
			assert_int_equal(to[target - 1], 0);
			assert_memory_equal(to + target, from + source, length);
			assert_int_equal(to[target + length], 0);
		}
}

static void test_a_shared_cache_is_used(void **state)
{
	struct bypass bypass = {0};

	(void)state;
	assert_false(bypass.past);
	(void)copy_pieces(&bypass, shared_cache, 2000);
	/* The other way is tried less and less: in the long run, it costs next to nothing. */
	assert_in_range(copy_pieces(&bypass, shared_cache, 100000), 1, 1000);
}

static void test_separate_caches_are_bypassed(void **state)
{
	struct bypass bypass = {0};
	unsigned past = copy_pieces(&bypass, separate_caches, 100);

	(void)state;
	assert_in_range(past, 30, 100);
	(void)copy_pieces(&bypass, separate_caches, 2000);
	assert_in_range(copy_pieces(&bypass, separate_caches, 100000), 99000, 99999);
}

static void test_a_change_is_noticed(void **state)
{
	struct bypass bypass = {0};

	(void)state;
	for (int round = 0; round < 3; round++) {
		(void)copy_pieces(&bypass, shared_cache, 50000);
		/* So long it takes at most until it is tried. Then it is kept, but for a few tries. */
		(void)copy_pieces(&bypass, separate_caches, 12 * 514);
		assert_in_range(copy_pieces(&bypass, separate_caches, 400), 300, 400);
		(void)copy_pieces(&bypass, separate_caches, 50000);
		(void)copy_pieces(&bypass, shared_cache, 12 * 514);
		assert_in_range(copy_pieces(&bypass, shared_cache, 400), 0, 100);
	}
}

static void test_equal_costs_change_nothing(void **state)
{
	struct bypass bypass = {0};

	(void)state;
	assert_in_range(copy_pieces(&bypass, (struct machine){3000, 2900}, 100000), 1, 1000);
}

/* We were taken off the CPU, or the clock jumped back: not a measure of anything. */
static void test_interruptions_do_not_count(void **state)
{
	struct bypass bypass = {0};

	(void)state;
	(void)copy_pieces(&bypass, shared_cache, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		bypass_count(&bypass, UINT64_C(1) << 40, CHUNK_LARGE);
		bypass_count(&bypass, (uint64_t)0 - 5, CHUNK_LARGE);
	}
	assert_in_range(copy_pieces(&bypass, shared_cache, 100000), 1, 1500);
}

/* Without a clock both ways cost nothing, and the cache is used. */
static void test_without_a_clock(void **state)
{
	struct bypass bypass = {0};

	(void)state;
	assert_in_range(copy_pieces(&bypass, (struct machine){0, 0}, 100000), 1, 1500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_of_every_alignment),
		cmocka_unit_test(test_a_shared_cache_is_used),
		cmocka_unit_test(test_separate_caches_are_bypassed),
		cmocka_unit_test(test_a_change_is_noticed),
		cmocka_unit_test(test_equal_costs_change_nothing),
		cmocka_unit_test(test_interruptions_do_not_count),
		cmocka_unit_test(test_without_a_clock),
	};

	return cmocka_run_group_tests_name("bypass", tests, NULL, NULL);
}
