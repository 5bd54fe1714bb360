/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching: the order between directed and wildcard receives, ignored bits, and messages that wait. */
#include "world.h"

#include <stdlib.h>

#define SOURCES 4U
#define ANY MATCH_ANY_SOURCE

static struct match_queue queue;

static int open_queue(void **state)
{
	(void)state;
	return match_open(&queue, SOURCES, SOURCES);
}

static int close_queue(void **state)
{
	(void)state;
	match_close(&queue);
	return 0;
}

static void post(struct match_receive *receive, uint32_t source, uint64_t tag, uint64_t ignore)
{
	*receive = (struct match_receive){.key = {tag, source}, .ignore = ignore};
	match_post(&queue, receive);
}

static void keep(struct match_message *message, uint32_t source, uint64_t tag)
{
	*message = (struct match_message){.key = {tag, source}};
	match_keep(&queue, message);
}

/* Withdraw the matched receive, as the messenger does. */
static void assert_taken_by(const struct match_receive *receive, uint32_t source, uint64_t tag)
{
	struct match_receive *found = match_arrival(&queue, source, tag);

	assert_ptr_equal(found, receive);
	if (found != NULL)
		match_withdraw(&queue, found);
}

static void test_receives_match_in_the_order_posted(void **state)
{
	struct match_receive receives[4];

	(void)state;
	for (size_t i = 0; i < 4; i++)
		post(&receives[i], 1, 5, 0);
	for (size_t i = 0; i < 4; i++)
		assert_taken_by(&receives[i], 1, 5);
	assert_taken_by(NULL, 1, 5);
}

/* Directed and wildcard receives are in two lists and keep their common order. */
static void test_directed_and_wildcard_receives_keep_their_order(void **state)
{
	struct match_receive receives[6];

	(void)state;
	post(&receives[0], ANY, 5, 0);
	post(&receives[1], 1, 5, 0);
	post(&receives[2], 1, 5, 0);
	post(&receives[3], ANY, 5, 0);
	post(&receives[4], ANY, 5, 0);
	post(&receives[5], 1, 5, 0);
	for (size_t i = 0; i < 6; i++)
		assert_taken_by(&receives[i], 1, 5);
	assert_taken_by(NULL, 1, 5);
}

static void test_a_directed_receive_takes_from_its_source_alone(void **state)
{
	struct match_receive directed;
	struct match_receive any;

	(void)state;
	post(&directed, 2, 5, 0);
	assert_taken_by(NULL, 1, 5);
	post(&any, ANY, 5, 0);
	assert_taken_by(&any, 3, 5);
	assert_taken_by(NULL, 3, 5);
	assert_taken_by(&directed, 2, 5);
}

static void test_ignored_bits_need_not_agree(void **state)
{
	struct match_receive masked;
	struct match_receive exact;
	struct match_receive all;

	(void)state;
	post(&masked, 1, 0xab00, 0xff);
	post(&exact, 1, 0xab42, 0);
	post(&all, ANY, 0, UINT64_MAX);
	assert_ptr_equal(match_arrival(&queue, 1, 0xab42), &masked);
	assert_ptr_equal(match_arrival(&queue, 1, 0xabff), &masked);
	assert_ptr_equal(match_arrival(&queue, 1, 0xac42), &all);
	match_withdraw(&queue, &masked);
	assert_ptr_equal(match_arrival(&queue, 1, 0xab42), &exact);
	assert_ptr_equal(match_arrival(&queue, 1, 0xab43), &all);
	match_withdraw(&queue, &all);
	assert_ptr_equal(match_arrival(&queue, 1, 0xab43), NULL);
	/* Bits of the receive's own tag that are ignored have no effect. */
	post(&masked, 1, UINT64_MAX, 0xffff);
	assert_ptr_equal(match_arrival(&queue, 1, UINT64_MAX - 0xffff), &masked);
	assert_ptr_equal(match_arrival(&queue, 1, UINT64_MAX - 0x10000), NULL);
}

static void test_messages_wait_in_the_order_they_came(void **state)
{
	struct match_message messages[5];

	(void)state;
	keep(&messages[0], 2, 7);
	keep(&messages[1], 1, 7);
	keep(&messages[2], 1, 8);
	keep(&messages[3], 2, 8);
	keep(&messages[4], 1, 7);
	assert_ptr_equal(match_waiting(&queue, ANY, 7, 0), &messages[0]);
	assert_ptr_equal(match_waiting(&queue, 1, 7, 0), &messages[1]);
	assert_ptr_equal(match_waiting(&queue, ANY, 8, 0), &messages[2]);
	assert_ptr_equal(match_waiting(&queue, 2, 8, 0), &messages[3]);
	assert_ptr_equal(match_waiting(&queue, 2, 0, UINT64_MAX), &messages[0]);
	assert_null(match_waiting(&queue, 3, 0, UINT64_MAX));
	assert_null(match_waiting(&queue, ANY, 9, 0));
	assert_ptr_equal(match_waiting(&queue, ANY, 9, 0xf), &messages[0]);
	match_take(&queue, &messages[0]);
	match_take(&queue, &messages[1]);
	assert_ptr_equal(match_waiting(&queue, ANY, 7, 0), &messages[4]);
	assert_ptr_equal(match_waiting(&queue, 2, 0, UINT64_MAX), &messages[3]);
	match_take(&queue, &messages[4]);
	match_take(&queue, &messages[3]);
	match_take(&queue, &messages[2]);
	assert_null(match_waiting(&queue, ANY, 0, UINT64_MAX));
	assert_null(match_waiting(&queue, 1, 0, UINT64_MAX));
}

static void test_withdrawing_from_any_position(void **state)
{
	(void)state;
	for (size_t gone = 0; gone < 3; gone++) {
		struct match_receive receives[3];
		for (size_t i = 0; i < 3; i++)
			post(&receives[i], i == 1 ? ANY : 3, 1, 0);
		match_withdraw(&queue, &receives[gone]);
		for (size_t i = 0; i < 3; i++)
			if (i != gone)
				assert_taken_by(&receives[i], 3, 1);
		assert_taken_by(NULL, 3, 1);
	}
}

static void test_the_walk_meets_every_receive_once(void **state)
{
	struct match_receive receives[SOURCES * 3 + 2];
	uint32_t met = 0;

	(void)state;
	assert_null(match_each_receive(&queue, NULL));
	for (uint32_t i = 0; i < SOURCES * 3 + 2; i++)
		post(&receives[i], i < SOURCES * 3 ? i % SOURCES : ANY, 0, 0);
	for (struct match_receive *at = match_each_receive(&queue, NULL); at != NULL;
	     at = match_each_receive(&queue, at)) {
		assert_in_range(at - receives, 0, SOURCES * 3 + 1);
		assert_int_equal(met & 1U << (at - receives), 0);
		met |= 1U << (at - receives);
	}
	assert_int_equal(met, (1U << (SOURCES * 3 + 2)) - 1);
}

/* Compared with the simplest matching: one list, searched from its beginning. */
static void test_like_one_list_searched_in_order(void **state)
{
	enum { RECEIVES = 64 };
	struct match_receive receives[RECEIVES];
	uint32_t order[RECEIVES];
	uint32_t posted = 0;
	bool used[RECEIVES] = {false};
	uint64_t seed = 4711;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint32_t free_one = random_below(&seed, RECEIVES);
		if (!used[free_one] && random_below(&seed, 2) == 0) {
			static const uint64_t ignores[] = {0, 0, 1, 6, UINT64_MAX};
			uint32_t source = random_below(&seed, SOURCES + 2);
			post(&receives[free_one], source < SOURCES ? source : ANY, random_below(&seed, 8),
			     ignores[random_below(&seed, 5)]);
			used[free_one] = true;
			order[posted++] = free_one;
			continue;
		}
		uint32_t source = random_below(&seed, SOURCES);
		uint64_t tag = random_below(&seed, 8);
		uint32_t index = 0;
		for (; index < posted; index++) {
			const struct match_receive *receive = &receives[order[index]];
			if ((receive->key.source == ANY || receive->key.source == source) &&
			    ((receive->key.tag ^ tag) & ~receive->ignore) == 0)
				break;
		}
		assert_taken_by(index < posted ? &receives[order[index]] : NULL, source, tag);
		if (index < posted) {
			used[order[index]] = false;
			memmove(&order[index], &order[index + 1], (posted - index - 1) * sizeof(order[0]));
			posted--;
		}
	}
}

/* Many entries go into tables. The last few come back into a list. */
static void test_the_few_that_are_left_of_many_keep_their_order(void **state)
{
	struct match_receive receives[3 * MATCH_STEPS_MAX];
	const size_t count = sizeof(receives) / sizeof(receives[0]);

	(void)state;
	for (size_t i = 0; i < count; i++)
		post(&receives[i], 1, i < MATCH_FEW ? 5 : 100 + i, 0);
	assert_taken_by(NULL, 1, 6);
	assert_true(queue.receives_in_tables);
	for (size_t i = MATCH_FEW; i < count; i++)
		assert_taken_by(&receives[i], 1, 100 + i);
	assert_false(queue.receives_in_tables);
	for (size_t i = 0; i < MATCH_FEW; i++)
		assert_taken_by(&receives[i], 1, 5);
	assert_taken_by(NULL, 1, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_receives_match_in_the_order_posted, open_queue,
						close_queue),
		cmocka_unit_test_setup_teardown(test_directed_and_wildcard_receives_keep_their_order,
						open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_a_directed_receive_takes_from_its_source_alone,
						open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_ignored_bits_need_not_agree, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_messages_wait_in_the_order_they_came, open_queue,
						close_queue),
		cmocka_unit_test_setup_teardown(test_withdrawing_from_any_position, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_the_walk_meets_every_receive_once, open_queue,
						close_queue),
		cmocka_unit_test_setup_teardown(test_like_one_list_searched_in_order, open_queue,
						close_queue),
		cmocka_unit_test_setup_teardown(test_the_few_that_are_left_of_many_keep_their_order,
						open_queue, close_queue),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
