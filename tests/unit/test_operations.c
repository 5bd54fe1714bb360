/* SPDX-License-Identifier: BSD-3-Clause */
/* Operation ids: an id that was given out is found, and no other. */
#include "world.h"

#include <stdlib.h>

#define MANY 1000U

static void test_ids_find_their_operations(void **state)
{
	struct operation_table table;
	static int operations[MANY];
	uint64_t ids[MANY];

	(void)state;
	operations_open(&table);
	assert_null(operations_find(&table, 0));
	assert_null(operations_find(&table, OPERATION_NO_ID));
	for (uint32_t i = 0; i < MANY; i++) {
		ids[i] = operations_add(&table, &operations[i]);
		assert_int_not_equal(ids[i], OPERATION_NO_ID);
	}
	for (uint32_t i = 0; i < MANY; i++)
		assert_ptr_equal(operations_find(&table, ids[i]), &operations[i]);
	operations_close(&table);
}

/* A peer may answer with an old id whose table entry was used again. */
static void test_an_ended_id_finds_nothing(void **state)
{
	struct operation_table table;
	int first = 0;
	int second = 0;

	(void)state;
	operations_open(&table);
	uint64_t before = operations_add(&table, &first);
	operations_remove(&table, before);
	assert_null(operations_find(&table, before));
	uint64_t after = operations_add(&table, &second);
	assert_int_equal((uint32_t)before, (uint32_t)after);
	assert_int_not_equal(before, after);
	assert_null(operations_find(&table, before));
	assert_ptr_equal(operations_find(&table, after), &second);
	operations_close(&table);
}

static void test_numbers_that_were_not_given_out_find_nothing(void **state)
{
	struct operation_table table;
	int operation = 0;
	uint64_t seed = 99;

	(void)state;
	operations_open(&table);
	uint64_t id = operations_add(&table, &operation);
	assert_null(operations_find(&table, id ^ 1));
	assert_null(operations_find(&table, id ^ UINT64_C(1) << 32));
	assert_null(operations_find(&table, id ^ UINT64_C(1) << 63));
	assert_null(operations_find(&table, (id & ~UINT64_C(0xffffffff)) | 63));
	assert_null(operations_find(&table, (id & ~UINT64_C(0xffffffff)) | 64));
	for (int i = 0; i < 100000; i++) {
		uint64_t guess = next_random(&seed);
		if (guess != id)
			assert_null(operations_find(&table, guess));
	}
	operations_close(&table);
}

static void test_ids_like_a_map(void **state)
{
	struct operation_table table;
	static int operations[64];
	uint64_t ids[64] = {0};
	bool live[64] = {false};
	uint64_t seed = 12;

	(void)state;
	operations_open(&table);
	for (int i = 0; i < 100000; i++) {
		uint32_t at = random_below(&seed, 64);
		if (live[at]) {
			assert_ptr_equal(operations_find(&table, ids[at]), &operations[at]);
			operations_remove(&table, ids[at]);
		} else {
			ids[at] = operations_add(&table, &operations[at]);
		}
		live[at] = !live[at];
		uint32_t other = random_below(&seed, 64);
		if (ids[other] != 0)
			assert_ptr_equal(operations_find(&table, ids[other]),
					 live[other] ? &operations[other] : NULL);
	}
	assert_int_equal(table.capacity, 64); /* entries are used again: the table does not grow */
	operations_close(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ids_find_their_operations),
		cmocka_unit_test(test_an_ended_id_finds_nothing),
		cmocka_unit_test(test_numbers_that_were_not_given_out_find_nothing),
		cmocka_unit_test(test_ids_like_a_map),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
