/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces copied through the cache or past it. Copies past the cache are correct at every alignment. The
 * cheaper method is found, kept, and found again after a change.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "proto/copy_method.h"
#include "region/chunks.h"
#include "region/copy.h"

/*
 * The ticks that a piece costs with each method: to copy in, and to take out. In proportion to measured
 * costs.
 */
struct machine {
	uint64_t copying[COPY_METHODS];
	uint64_t taking[COPY_METHODS];
};

static const struct machine shared_cache = {{9000, 12000, 8300}, {5300, 5300, 11600}};
static const struct machine shared_core = {{4500, 3700, 10000}, {4500, 3700, 11000}};
static const struct machine separate_caches = {{32000, 32000, 9800}, {14000, 14000, 9900}};
static const struct machine no_difference = {{9000, 9000, 8900}, {5000, 5000, 5000}};
static const struct machine no_clock = {{0, 0, 0}, {0, 0, 0}};

/* The number of pieces between a measurement by the peer and its arrival here. */
#define PIECES_PER_MESSAGE 16U

/* The sender copies pieces, and the receiver takes them. */
static struct copy_methods sender;
static struct copy_methods receiver;

static int reset(void **state)
{
	(void)state;
	memset(&sender, 0, sizeof(sender));
	memset(&receiver, 0, sizeof(receiver));
	return 0;
}

/* Copy `pieces`. Returns the number of pieces that used `method`. */
static unsigned copy_pieces(struct machine machine, unsigned pieces, enum copy_method method)
{
	unsigned count = 0;

	for (unsigned i = 0; i < pieces; i++) {
		enum copy_method now = copy_method_of_flags(copy_method_wire_flags(sender.method));
		if (i % PIECES_PER_MESSAGE == 0) {
			struct wire_taking taking = copy_methods_own_costs(&receiver);
			copy_methods_peer_costs(&sender, &taking);
		}
		copy_methods_copied(&sender, machine.copying[now], CHUNK_LARGE);
		copy_methods_taken(&receiver, now, machine.taking[now], CHUNK_LARGE);
		count += now == method;
	}
	return count;
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
			memset(to, 0, sizeof(to));
			copy_linewise_in(to + target, (shared_bytes *)(void *)(from + source), length);
			assert_int_equal(to[target - 1], 0);
			assert_memory_equal(to + target, from + source, length);
			assert_int_equal(to[target + length], 0);
		}
}

/* Check the beginning, and the long run, in which the other methods are tried less and less. */
static void assert_settles(struct machine machine, enum copy_method method)
{
	assert_in_range(copy_pieces(machine, 200, method), 60, 200);
	(void)copy_pieces(machine, 2000, method);
	assert_in_range(copy_pieces(machine, 100000, method), 98500, 99999);
}

static void test_the_best_method_is_found(void **state)
{
	assert_settles(shared_cache, COPY_LINEWISE);
	(void)reset(state);
	assert_settles(shared_core, COPY_STRING);
	(void)reset(state);
	assert_settles(separate_caches, COPY_PAST_CACHE);
}

/*
 * A sender whose messages are never cleared gets no costs from the peer, and uses the costs of its own
 * copies.
 */
static void test_without_a_word_from_the_peer(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2000; i++)
		copy_methods_copied(&sender, separate_caches.copying[sender.method],
				    COPY_METHODS_MEASURED_BYTES);
	assert_int_equal(sender.best, COPY_PAST_CACHE);
}

static void test_a_change_is_noticed(void **state)
{
	static const struct {
		const struct machine *machine;
		enum copy_method method;
	} states[] = {
		{&shared_cache, COPY_LINEWISE}, {&separate_caches, COPY_PAST_CACHE},
		{&shared_core, COPY_STRING},    {&separate_caches, COPY_PAST_CACHE},
		{&shared_cache, COPY_LINEWISE}, {&shared_core, COPY_STRING},
	};

	(void)state;
	for (size_t i = 0; i < 12; i++) {
		struct machine machine = *states[i % 6].machine;
		enum copy_method method = states[i % 6].method;
		/* The maximum number of pieces until each of the two other methods was tried twice. */
		(void)copy_pieces(machine, 4U * 12U * 514U, method);
		assert_in_range(copy_pieces(machine, 10000, method), 8500, 10000);
		(void)copy_pieces(machine, 50000, method);
	}
}

static void test_equal_costs_change_nothing(void **state)
{
	(void)state;
	assert_in_range(copy_pieces(no_difference, 100000, COPY_LINEWISE), 98500, 99999);
}

/* We were taken off the CPU, or the clock jumped back: neither is a measurement. */
static void test_interruptions_do_not_count(void **state)
{
	(void)state;
	(void)copy_pieces(shared_cache, 1000, COPY_LINEWISE);
	struct copy_methods before = sender;
	for (unsigned i = 0; i < 1000; i++) {
		copy_methods_copied(&sender, UINT64_C(1) << 40, CHUNK_LARGE);
		copy_methods_copied(&sender, (uint64_t)0 - 5, CHUNK_LARGE);
		copy_methods_taken(&sender, i % COPY_METHODS, (uint64_t)0 - 5, CHUNK_LARGE);
	}
	assert_memory_equal(&before, &sender, sizeof(before));
}

/* Without a clock all methods cost nothing, and the first method is kept. */
static void test_without_a_clock(void **state)
{
	(void)state;
	assert_in_range(copy_pieces(no_clock, 100000, COPY_LINEWISE), 98000, 99999);
}

/* Whatever a peer reports, each piece uses one of the methods. */
static void test_a_peer_that_lies(void **state)
{
	static const struct wire_taking lies[] = {
		{{0, UINT16_MAX, 0, 7}},
		{{UINT16_MAX, 0, 1, UINT16_MAX}},
		{{1, 1, 1, 1}},
		{{UINT16_MAX, UINT16_MAX, UINT16_MAX, UINT16_MAX}},
	};

	for (unsigned i = 0; i < 100000; i++) {
		copy_methods_peer_costs(&sender, &lies[i / 7 % 4]);
		copy_methods_copied(&sender, shared_cache.copying[sender.method], CHUNK_LARGE);
		assert_true(sender.method < COPY_METHODS && sender.best < COPY_METHODS);
	}
	(void)reset(state);
	copy_methods_peer_costs(&sender, &lies[1]);
	for (unsigned i = 0; i < 1000; i++)
		copy_methods_copied(&sender, shared_cache.copying[sender.method], CHUNK_LARGE);
	assert_int_equal(sender.best, COPY_PAST_CACHE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_of_every_alignment),
		cmocka_unit_test_setup(test_the_best_method_is_found, reset),
		cmocka_unit_test_setup(test_a_change_is_noticed, reset),
		cmocka_unit_test_setup(test_equal_costs_change_nothing, reset),
		cmocka_unit_test_setup(test_interruptions_do_not_count, reset),
		cmocka_unit_test_setup(test_without_a_word_from_the_peer, reset),
		cmocka_unit_test_setup(test_without_a_clock, reset),
		cmocka_unit_test_setup(test_a_peer_that_lies, reset),
	};

	return cmocka_run_group_tests_name("methods", tests, NULL, NULL);
}
