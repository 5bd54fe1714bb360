/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The successor of a dead receiver gets no memory from its heap while a sender may still write there for the
 * dead receiver: region/late_writers.h.
 */
#include "world.h"

#define SECTION_BYTES (6U * 1024U * 1024U)
#define HEAP_BYTES (4U * 1024U * 1024U)
#define LENGTH 1000001U

static struct world world;
static struct node *left = &world.nodes[0];
static struct node *right = &world.nodes[1];

/* A message from `left` is in progress into the heap of `right`. Returns the sender's line. */
static struct transfer_line *begin_into_heap(unsigned char *source)
{
	world = (struct world){.count = 2, .region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES)};
	node_open(left, world.region);
	node_open(right, world.region);
	assert_int_equal(single_copy_open(left->messenger, SINGLE_COPY_AUTO), 0);
	assert_int_equal(single_copy_open(right->messenger, SINGLE_COPY_AUTO), 0);
	assert_int_equal(node_receive(right, left, right->messenger->transport->heap->base, LENGTH, 5,
				      FI_TAGGED, NULL),
			 0);
	assert_int_equal(node_send(left, right, source, LENGTH, 5, FI_TAGGED, NULL), 0);
	while (match_is_empty(&left->messenger->pumping)) {
		(void)messenger_progress(right->messenger);
		(void)messenger_progress(left->messenger);
	}
	const struct send *send = (const struct send *)(void *)left->messenger->pumping.next;
	assert_non_null(send->copy);
	assert_true(send->copy->method == WIRE_BY_REGION && send->copy->copies);
	return section_transfer(world.region, node_slot(left), transfer_index(send->copy->own));
}

static struct heap *heap_of(const struct node *node)
{
	return node->messenger->transport->heap;
}

static void *allocate(struct node *node)
{
	/* The heap may have checked just before. */
	heap_of(node)->next_check = 0;
	return heap_allocate(heap_of(node), LENGTH, 1, false);
}

static void check_open(void)
{
	void *block = allocate(right);

	assert_non_null(block);
	assert_true(heap_release(block));
}

static void test_a_heap_stays_closed_while_somebody_writes_for_a_predecessor(void **state)
{
	static unsigned char source[LENGTH];

	(void)state;
	for (int how = 0; how < 3; how++) {
		struct transfer_line *line = begin_into_heap(source);
		/* The sender between its claim and the end of its copy. */
		uint64_t done = shared_load_u64(&line->done);
		shared_store_u64(&line->claimed, done - 4096);
		node_die(right);
		node_open(right, world.region);
		assert_int_equal(node_slot(right), 1);
		assert_null(allocate(right));
		assert_null(allocate(right));
		/* Messages need no heap. */
		char byte = 0;
		assert_int_equal(node_send(right, right, "x", 1, 0, FI_TAGGED, NULL), 0);
		assert_int_equal(node_receive(right, right, &byte, 1, 0, FI_TAGGED, NULL), 0);
		for (int i = 0; i < 200; i++)
			(void)messenger_progress(right->messenger);
		assert_false(completion_is_empty(&right->receives));
		right->receives.head++;
		assert_null(allocate(right));
		if (how == 0) /* goes on, and finishes what it claimed */
			shared_store_u64(&line->done, done - 4096);
		else if (how == 1) /* finds that the receiver is gone */
			world_check_peers(&world);
		else /* dies as well */
			node_die(left);
		void *block = allocate(right);
		assert_non_null(block);
		/* Once open, the heap stays open, whatever a peer writes. */
		shared_store_u64(&line->done, UINT64_MAX);
		assert_true(heap_release(block));
		check_open();
		world_check_peers(&world);
		world_close(&world);
	}
}

/* Claims for other members, and for this very occupant, have no effect. */
static void test_other_claims_leave_a_heap_open(void **state)
{
	static unsigned char source[LENGTH];

	(void)state;
	for (int which = 0; which < 4; which++) {
		struct transfer_line *line = begin_into_heap(source);
		uint64_t peer = shared_load_u64(&line->peer);
		assert_int_equal(
			peer, (uint64_t)right->messenger->transport->attachments[0].member->epoch << 32 | 1);
		shared_store_u64(&line->claimed, 0);
		node_die(right);
		node_open(right, world.region);
		if (which == 0)
			shared_store_u64(&line->peer, peer & ~UINT64_C(0xffffffff)); /* another slot */
		else if (which == 1)
			shared_store_u64(&line->peer, peer + (UINT64_C(1) << 32)); /* this occupant */
		else if (which == 2)
			shared_store_u64(&line->id, 0); /* closed */
		else
			shared_store_u64(&line->claimed, UINT64_MAX); /* nothing claimed */
		check_open();
		world_check_peers(&world);
		world_close(&world);
	}
}

/* A sender that was paused while the slot changed hands writes nothing into it. */
static void test_a_sender_that_was_away_does_not_write(void **state)
{
	static unsigned char source[LENGTH];

	(void)state;
	(void)begin_into_heap(source);
	const struct single_copy *copy = ((const struct send *)(void *)left->messenger->pumping.next)->copy;
	const uint32_t other = copy->other;
	const struct transfer_words words = {.claimed = copy->first};
	node_die(right);
	node_open(right, world.region);
	/* The successor counts its transfers from the beginning: open one with the same id. */
	transfer_open(section_transfer(world.region, 1, transfer_index(other)), other, &words);
	memset(heap_of(right)->base, 0x55, LENGTH);
	for (int i = 0; i < 100; i++)
		(void)messenger_progress(left->messenger);
	for (size_t i = 0; i < LENGTH; i++)
		if (heap_of(right)->base[i] != 0x55)
			fail_msg("byte %zu is not the successor's", i);
	world_check_peers(&world);
	assert_int_equal(world_await(&world, &left->sends).error, ECONNRESET);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_heap_stays_closed_while_somebody_writes_for_a_predecessor),
		cmocka_unit_test(test_other_claims_leave_a_heap_open),
		cmocka_unit_test(test_a_sender_that_was_away_does_not_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
