/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues and pools grow without losing or mixing up entries. */
#include "world.h"

#include <stdlib.h>

static void add(struct completion_queue *queue, uint64_t tag)
{
	struct completion *entry = completion_add(queue);

	assert_non_null(entry);
	*entry = (struct completion){.tag = tag, .context = (void *)(uintptr_t)(tag + 1)};
}

static void assert_first(struct completion_queue *queue, uint64_t tag)
{
	assert_false(completion_is_empty(queue));
	assert_int_equal(completion_first(queue)->tag, tag);
	assert_ptr_equal(completion_first(queue)->context, (void *)(uintptr_t)(tag + 1));
	queue->head++;
}

static void test_a_queue_keeps_order_while_it_grows(void **state)
{
	(void)state;
	for (uint32_t offset = 0; offset < 2048; offset += 511) {
		struct completion_queue queue;
		uint64_t next = 0;
		assert_int_equal(completion_open(&queue, 1), 0);
		/* Head and tail have moved through the queue before it is full. */
		for (uint32_t i = 0; i < offset; i++) {
			add(&queue, i);
			assert_first(&queue, i);
		}
		for (uint64_t tag = 0; tag < 10000; tag++) {
			add(&queue, tag);
			if (tag % 5 == 0)
				assert_first(&queue, next++);
		}
		while (next < 10000)
			assert_first(&queue, next++);
		assert_true(completion_is_empty(&queue));
		assert_int_equal(queue.lost, 0);
		completion_close(&queue);
	}
}

static void test_positions_may_pass_the_end_of_their_integers(void **state)
{
	struct completion_queue queue;

	(void)state;
	assert_int_equal(completion_open(&queue, 1), 0);
	queue.head = UINT32_MAX - 100;
	queue.tail = queue.head;
	for (uint64_t tag = 0; tag < 3000; tag++)
		add(&queue, tag);
	for (uint64_t tag = 0; tag < 3000; tag++)
		assert_first(&queue, tag);
	assert_true(completion_is_empty(&queue));
	completion_close(&queue);
}

static void test_a_queue_has_the_room_asked_for(void **state)
{
	(void)state;
	for (size_t size = 0; size <= 65536; size = size * 4 + 3) {
		struct completion_queue queue;
		assert_int_equal(completion_open(&queue, size), 0);
		assert_true((size_t)queue.mask + 1 >= size);
		assert_int_equal((queue.mask + 1) & queue.mask, 0);
		completion_close(&queue);
	}
}

static void test_pool_objects_are_apart_and_used_again(void **state)
{
	enum { OBJECTS = 300, BYTES = 200 };
	struct pool pool;
	unsigned char *objects[OBJECTS];

	(void)state;
	pool_open(&pool, BYTES);
	for (int lap = 0; lap < 3; lap++) {
		for (int i = 0; i < OBJECTS; i++) {
			objects[i] = pool_take(&pool);
			assert_non_null(objects[i]);
			assert_int_equal((uintptr_t)objects[i] % 64, 0);
			memset(objects[i], i, BYTES);
		}
		for (int i = 0; i < OBJECTS; i++)
			for (int j = 0; j < BYTES; j++)
				assert_int_equal(objects[i][j], (unsigned char)i);
		for (int i = 0; i < OBJECTS; i++)
			pool_give(&pool, objects[(i * 7 + lap) % OBJECTS]);
	}
	uint32_t blocks = 0;
	for (const struct pool_node *block = pool.blocks; block != NULL; block = block->next)
		blocks++;
	assert_int_equal(blocks, (OBJECTS + 63) / 64);
	pool_close(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_queue_keeps_order_while_it_grows),
		cmocka_unit_test(test_positions_may_pass_the_end_of_their_integers),
		cmocka_unit_test(test_a_queue_has_the_room_asked_for),
		cmocka_unit_test(test_pool_objects_are_apart_and_used_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
