/* SPDX-License-Identifier: BSD-3-Clause */
/* The indices of an address vector. The tests count the steps of each call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "api/av_table.h"

#define MANY 40000U
/* The maximum number of steps of one insertion or removal. */
#define STEPS_MAX 3U

static size_t insert(struct av_table *table, uint32_t source, uint32_t epoch)
{
	assert_true(av_table_grow(table, 1));
	assert_true(av_table_reach(table, source));
	size_t index = av_table_take(table, false);
	av_table_link(table, index, source, epoch);
	return index;
}

static void drop(struct av_table *table, size_t index)
{
	av_table_unlink(table, index);
	av_table_give(table, index);
}

/* One peer inserted many times, or many peers, removed from either end, repeatedly. */
static void test_work_does_not_grow_with_entries(void **state)
{
	static size_t indices[MANY];
	struct av_table table = {0};

	(void)state;
	for (uint32_t round = 0; round < 4; round++) {
		av_steps = 0;
		for (uint32_t i = 0; i < MANY; i++)
			indices[i] = insert(&table, round < 2 ? 7 : i, 1);
		assert_true(av_steps <= (uint64_t)MANY * STEPS_MAX);
		av_steps = 0;
		for (uint32_t i = 0; i < MANY; i++)
			drop(&table, indices[round % 2 == 0 ? i : MANY - 1 - i]);
		assert_true(av_steps <= (uint64_t)MANY * STEPS_MAX);
		/* Each round gets the same indices as the first round. */
		assert_int_equal(table.count, MANY);
		assert_int_equal(av_table_find(&table, 7, 1), AV_NO_ENTRY);
	}
	av_table_close(&table);
}

/* The newest entry names a peer, even if entries between were removed and their indices used again. */
static void test_the_newest_entry_names_a_peer(void **state)
{
	struct av_table table = {0};

	(void)state;
	size_t first = insert(&table, 3, 1);
	size_t second = insert(&table, 3, 1);
	size_t third = insert(&table, 3, 1);
	assert_int_equal(av_table_find(&table, 3, 1), third);
	drop(&table, first);
	assert_int_equal(av_table_find(&table, 3, 1), third);
	/* It has the lowest index, and is the newest entry. */
	size_t again = insert(&table, 3, 1);
	assert_int_equal(again, first);
	assert_int_equal(av_table_find(&table, 3, 1), again);
	drop(&table, third);
	drop(&table, again);
	assert_int_equal(av_table_find(&table, 3, 1), second);
	/* The slot's next occupant has another epoch. */
	size_t successor = insert(&table, 3, 2);
	assert_int_equal(av_table_find(&table, 3, 1), second);
	assert_int_equal(av_table_find(&table, 3, 2), successor);
	assert_int_equal(av_table_find(&table, 4, 1), AV_NO_ENTRY);
	assert_int_equal(av_table_find(&table, 1000000, 1), AV_NO_ENTRY);
	av_table_close(&table);
}

/* An entry that moves to another number keeps its age there. */
static void test_an_entry_that_follows_keeps_its_age(void **state)
{
	struct av_table table = {0};

	(void)state;
	size_t old = insert(&table, 1, 1);
	size_t between = insert(&table, 2, 1);
	size_t new = insert(&table, 2, 1);
	av_table_unlink(&table, old);
	av_table_link(&table, old, 2, 1);
	assert_int_equal(av_table_find(&table, 2, 1), new);
	drop(&table, new);
	assert_int_equal(av_table_find(&table, 2, 1), between);
	drop(&table, between);
	assert_int_equal(av_table_find(&table, 2, 1), old);
	assert_int_equal(av_table_find(&table, 1, 1), AV_NO_ENTRY);
	av_table_close(&table);
}

/* A caller that counts indices itself gets consecutive indices. */
static void test_indices_in_order(void **state)
{
	struct av_table table = {0};

	(void)state;
	size_t first = insert(&table, 1, 1);
	size_t second = insert(&table, 2, 1);
	drop(&table, first);
	assert_true(av_table_grow(&table, 1));
	assert_int_equal(av_table_take(&table, true), second + 1);
	assert_int_equal(insert(&table, 3, 1), first);
	assert_false(av_table_reach(&table, AV_REMOVED));
	assert_false(av_table_grow(&table, SIZE_MAX));
	av_table_close(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_work_does_not_grow_with_entries),
		cmocka_unit_test(test_the_newest_entry_names_a_peer),
		cmocka_unit_test(test_an_entry_that_follows_keeps_its_age),
		cmocka_unit_test(test_indices_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
