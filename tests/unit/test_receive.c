/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of all kinds: too short, for several messages, peeking, claiming, discarding, cancelled. */
#include "world.h"

#include <stdlib.h>

#define TAG 42U

/* One size of every protocol, and one size that takes several rounds of pieces. */
static const size_t protocols[] = {0, 1, 40, 48, 49, 300, 440, 441, 2048, 4096, 4097, 20000, 65536, 1000000};
#define PROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))
#define LONGEST 1000000U

static struct world world;
static struct node *sender = &world.nodes[0];
static struct node *receiver = &world.nodes[1];
static unsigned char source[LONGEST];

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 2, 4, WORLD_SECTION_BYTES);
	fill_bytes(source, sizeof(source), 1);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	world_close(&world);
	return 0;
}

static void send_bytes(size_t length, uint64_t tag, uint64_t flags)
{
	assert_int_equal(node_send(sender, receiver, source, length, tag, FI_TAGGED | flags, NULL), 0);
}

/* ---- truncation ---- */

static void run_truncated(size_t length, size_t room, bool expected, uint64_t flags)
{
	unsigned char *target = malloc(room > 0 ? room : 1);

	assert_non_null(target);
	if (expected)
		assert_int_equal(node_receive(receiver, NULL, target, room, TAG, FI_TAGGED, target), 0);
	send_bytes(length, TAG, flags);
	if (!expected) {
		world_settle(&world);
		assert_int_equal(node_receive(receiver, NULL, target, room, TAG, FI_TAGGED, target), 0);
	}
	struct completion entry = world_await(&world, &receiver->receives);
	assert_int_equal(entry.error, FI_ETRUNC);
	assert_ptr_equal(entry.context, target);
	assert_int_equal(entry.length, room);
	assert_int_equal(entry.overflow, length - room);
	assert_int_equal(entry.tag, TAG);
	assert_bytes(target, room, 1);
	/* The fault is the receiver's: the sender's completion is a success. */
	(void)world_await_good(&world, &sender->sends);
	/* It does not affect the next message. */
	assert_int_equal(node_receive(receiver, NULL, target, room, TAG, FI_TAGGED, target), 0);
	send_bytes(room, TAG, 0);
	(void)world_await_good(&world, &receiver->receives);
	(void)world_await_good(&world, &sender->sends);
	free(target);
}

static void test_messages_longer_than_their_buffers(void **state)
{
	(void)state;
	for (size_t i = 0; i < PROTOCOLS; i++) {
		const size_t rooms[] = {0, 1, protocols[i] / 2, protocols[i] - 1};
		for (size_t j = 0; protocols[i] > 0 && j < 4; j++)
			for (size_t variant = 0; variant < 4 && rooms[j] < protocols[i]; variant++)
				run_truncated(protocols[i], rooms[j], variant & 1,
					      variant & 2 ? FI_DELIVERY_COMPLETE : 0);
	}
}

/* ---- one buffer for several messages ---- */

static void post_several(unsigned char *buffer, size_t length, uint64_t flags)
{
	assert_int_equal(
		node_receive(receiver, NULL, buffer, length, 0, FI_MSG | FI_MULTI_RECV | flags, buffer), 0);
}

static void send_untagged(size_t length)
{
	assert_int_equal(node_send(sender, receiver, source, length, 0, FI_MSG, NULL), 0);
}

static void run_several(size_t length, bool expected)
{
	size_t count = length == 0 ? 5 : LONGEST * 2 / length < 20 ? 3 : 20;
	size_t room = count * length + 10; /* leaves less than the minimum at the end */
	unsigned char *buffer = malloc(room);
	uint32_t released = 0;

	assert_non_null(buffer);
	if (expected)
		post_several(buffer, room, 0);
	for (size_t i = 0; i < count; i++) {
		send_untagged(length);
		if (expected || i % 2 == 0)
			world_step(&world);
	}
	if (!expected) {
		world_settle(&world);
		post_several(buffer, room, 0);
	}
	for (size_t i = 0; i < count; i++) {
		struct completion entry = world_await_good(&world, &receiver->receives);
		assert_int_equal(entry.length, length);
		assert_ptr_equal(entry.context, buffer);
		/* Parts of large messages may end in another order, but each lies at its offset. */
		size_t offset = (size_t)((unsigned char *)entry.buffer - buffer);
		assert_true(length == 0 || (offset % length == 0 && offset / length < count));
		assert_bytes(entry.buffer, length, 1);
		released += (entry.flags & FI_MULTI_RECV) != 0;
		(void)world_await_good(&world, &sender->sends);
	}
	assert_int_equal(released, length == 0 ? 0 : 1);
	if (length == 0) {
		assert_int_equal(messenger_cancel(receiver->messenger, buffer), 0);
		assert_int_equal(world_await(&world, &receiver->receives).error, FI_ECANCELED);
	}
	free(buffer);
}

static void test_one_buffer_takes_several_messages(void **state)
{
	(void)state;
	/*
	 * The minimum is set below the length of the messages, because shorter messages would release the
	 * buffer early.
	 */
	for (size_t i = 0; i < PROTOCOLS; i++) {
		receiver->messenger->multi_receive_minimum = protocols[i] == 0 ? 1 : 11;
		if (protocols[i] == 1)
			continue;
		run_several(protocols[i], true);
		run_several(protocols[i], false);
	}
}

static void test_a_buffer_goes_back_when_too_little_is_left(void **state)
{
	unsigned char buffer[1000];

	(void)state;
	receiver->messenger->multi_receive_minimum = 200;
	post_several(buffer, sizeof(buffer), 0);
	send_untagged(700);
	struct completion entry = world_await_good(&world, &receiver->receives);
	assert_int_equal(entry.flags & FI_MULTI_RECV, 0);
	send_untagged(101);
	entry = world_await_good(&world, &receiver->receives);
	assert_ptr_equal(entry.buffer, buffer + 700);
	assert_int_equal(entry.flags & FI_MULTI_RECV, FI_MULTI_RECV);
	/* The buffer is no longer posted. */
	send_untagged(10);
	world_settle(&world);
	assert_true(completion_is_empty(&receiver->receives));
}

static void test_the_last_message_may_be_too_long_for_what_is_left(void **state)
{
	unsigned char *buffer = malloc(50000);

	(void)state;
	assert_non_null(buffer);
	post_several(buffer, 50000, 0);
	send_untagged(30000);
	send_untagged(30000);
	(void)world_await_good(&world, &receiver->receives);
	struct completion entry = world_await(&world, &receiver->receives);
	assert_int_equal(entry.error, FI_ETRUNC);
	assert_int_equal(entry.length, 20000);
	assert_int_equal(entry.overflow, 10000);
	assert_int_equal(entry.flags & FI_MULTI_RECV, FI_MULTI_RECV);
	assert_bytes(buffer + 30000, 20000, 1);
	free(buffer);
}

/* ---- peeking before receiving ---- */

static void look(uint64_t tag, uint64_t flags, void *context)
{
	assert_int_equal(node_receive(receiver, NULL, NULL, 0, tag, FI_TAGGED | flags, context), 0);
}

static void test_peeking_finds_what_waits_and_leaves_it(void **state)
{
	unsigned char *target = malloc(LONGEST);
	int context = 0;

	(void)state;
	assert_non_null(target);
	for (size_t i = 0; i < PROTOCOLS; i++) {
		look(TAG, FI_PEEK, &context);
		struct completion entry = world_await(&world, &receiver->receives);
		assert_int_equal(entry.error, FI_ENOMSG);
		assert_ptr_equal(entry.context, &context);
		send_bytes(protocols[i], TAG, FI_REMOTE_CQ_DATA);
		for (int again = 0; again < 2; again++) {
			world_settle(&world);
			look(TAG, FI_PEEK, &context);
			entry = world_await_good(&world, &receiver->receives);
			assert_int_equal(entry.length, protocols[i]);
			assert_int_equal(entry.tag, TAG);
			assert_int_equal(entry.data, ~(uint64_t)TAG);
		}
		assert_int_equal(node_receive(receiver, NULL, target, LONGEST, TAG, FI_TAGGED, NULL), 0);
		assert_int_equal(world_await_good(&world, &receiver->receives).length, protocols[i]);
		assert_bytes(target, protocols[i], 1);
		(void)world_await_good(&world, &sender->sends);
	}
	free(target);
}

static void test_a_claimed_message_is_for_its_claimer(void **state)
{
	unsigned char *target = malloc(LONGEST);
	int claimer = 0;
	int other = 0;

	(void)state;
	assert_non_null(target);
	for (size_t i = 0; i < PROTOCOLS; i++) {
		send_bytes(protocols[i], TAG, 0);
		world_settle(&world);
		look(TAG, FI_PEEK | FI_CLAIM, &claimer);
		assert_int_equal(world_await_good(&world, &receiver->receives).length, protocols[i]);
		look(TAG, FI_PEEK, &other);
		assert_int_equal(world_await(&world, &receiver->receives).error, FI_ENOMSG);
		assert_int_equal(node_receive(receiver, NULL, target, LONGEST, TAG, FI_TAGGED | FI_CLAIM,
					      &other),
				 -ENOMSG);
		assert_int_equal(node_receive(receiver, NULL, target, LONGEST, TAG, FI_TAGGED | FI_CLAIM,
					      &claimer),
				 0);
		struct completion entry = world_await_good(&world, &receiver->receives);
		assert_ptr_equal(entry.context, &claimer);
		assert_int_equal(entry.length, protocols[i]);
		assert_bytes(target, protocols[i], 1);
		(void)world_await_good(&world, &sender->sends);
	}
	free(target);
}

static void test_discarded_messages_are_gone_and_their_sends_complete(void **state)
{
	int context = 0;

	(void)state;
	for (size_t i = 0; i < PROTOCOLS; i++)
		for (int claimed = 0; claimed < 2; claimed++) {
			send_bytes(protocols[i], TAG, FI_DELIVERY_COMPLETE);
			world_settle(&world);
			look(TAG, FI_PEEK | (claimed ? FI_CLAIM : FI_DISCARD), &context);
			assert_int_equal(world_await_good(&world, &receiver->receives).length, protocols[i]);
			if (claimed) {
				look(TAG, FI_CLAIM | FI_DISCARD, &context);
				(void)world_await_good(&world, &receiver->receives);
			}
			(void)world_await_good(&world, &sender->sends);
			world_settle(&world);
			assert_true(completion_is_empty(&receiver->receives));
			look(TAG, FI_PEEK, &context);
			assert_int_equal(world_await(&world, &receiver->receives).error, FI_ENOMSG);
		}
}

static void test_claimed_messages_are_freed_with_their_endpoint(void **state)
{
	int contexts[PROTOCOLS];

	(void)state;
	for (size_t i = 0; i < PROTOCOLS; i++) {
		send_bytes(protocols[i], TAG, 0);
		world_settle(&world);
		look(TAG, FI_PEEK | FI_CLAIM, &contexts[i]);
		(void)world_await_good(&world, &receiver->receives);
		send_bytes(protocols[i], TAG, 0); /* and another message that only waits */
	}
	world_settle(&world);
}

/* ---- cancelling ---- */

static void test_a_cancelled_receive_takes_nothing(void **state)
{
	unsigned char first[8];
	unsigned char second[8];

	(void)state;
	assert_int_equal(node_receive(receiver, NULL, first, 8, TAG, FI_TAGGED, first), 0);
	assert_int_equal(node_receive(receiver, sender, second, 8, TAG, FI_TAGGED, second), 0);
	assert_int_equal(messenger_cancel(receiver->messenger, first), 0);
	struct completion entry = world_await(&world, &receiver->receives);
	assert_int_equal(entry.error, FI_ECANCELED);
	assert_ptr_equal(entry.context, first);
	assert_int_equal(messenger_cancel(receiver->messenger, first), -ENOENT);
	send_bytes(8, TAG, 0);
	assert_ptr_equal(world_await_good(&world, &receiver->receives).context, second);
	assert_int_equal(messenger_cancel(receiver->messenger, second), -ENOENT);
}

static void test_a_receive_under_way_is_not_cancelled(void **state)
{
	unsigned char *target = malloc(LONGEST);

	(void)state;
	assert_non_null(target);
	assert_int_equal(node_receive(receiver, NULL, target, LONGEST, TAG, FI_TAGGED, target), 0);
	send_bytes(LONGEST, TAG, 0);
	while (match_is_empty(&receiver->messenger->incoming))
		world_step(&world);
	assert_int_equal(messenger_cancel(receiver->messenger, target), -ENOENT);
	assert_int_equal(world_await_good(&world, &receiver->receives).length, LONGEST);
	assert_bytes(target, LONGEST, 1);
	free(target);
}

/* The buffer is returned when the message in progress into it has ended. */
static void test_a_buffer_for_several_is_cancelled_while_one_is_under_way(void **state)
{
	unsigned char *buffer = malloc(2 * LONGEST);

	(void)state;
	assert_non_null(buffer);
	post_several(buffer, 2 * LONGEST, 0);
	send_untagged(LONGEST);
	while (match_is_empty(&receiver->messenger->incoming))
		world_step(&world);
	assert_int_equal(messenger_cancel(receiver->messenger, buffer), 0);
	struct completion entry = world_await_good(&world, &receiver->receives);
	assert_int_equal(entry.flags & FI_MULTI_RECV, FI_MULTI_RECV);
	assert_bytes(buffer, LONGEST, 1);
	free(buffer);
}

static void test_receives_complete_without_an_entry_if_so_asked(void **state)
{
	unsigned char target[8];
	const struct iovec piece = {target, sizeof(target)};
	const struct receive_request request = {
		.pieces = &piece,
		.count = 1,
		.source = MATCH_ANY_SOURCE,
		.tag = TAG,
		.flags = FI_TAGGED,
	};

	(void)state;
	assert_int_equal(messenger_receive(receiver->messenger, &request), 0);
	send_bytes(8, TAG, 0);
	world_settle(&world);
	assert_true(completion_is_empty(&receiver->receives));
	assert_int_equal(receiver->received.value, 1);
	/* An error is always reported. */
	assert_int_equal(messenger_receive(receiver->messenger, &request), 0);
	send_bytes(9, TAG, 0);
	assert_int_equal(world_await(&world, &receiver->receives).error, FI_ETRUNC);
	assert_int_equal(receiver->received.value, 1);
	assert_int_equal(receiver->received.errors, 1);
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_messages_longer_than_their_buffers),
		WITH_WORLD(test_one_buffer_takes_several_messages),
		WITH_WORLD(test_a_buffer_goes_back_when_too_little_is_left),
		WITH_WORLD(test_the_last_message_may_be_too_long_for_what_is_left),
		WITH_WORLD(test_peeking_finds_what_waits_and_leaves_it),
		WITH_WORLD(test_a_claimed_message_is_for_its_claimer),
		WITH_WORLD(test_discarded_messages_are_gone_and_their_sends_complete),
		WITH_WORLD(test_claimed_messages_are_freed_with_their_endpoint),
		WITH_WORLD(test_a_cancelled_receive_takes_nothing),
		WITH_WORLD(test_a_receive_under_way_is_not_cancelled),
		WITH_WORLD(test_a_buffer_for_several_is_cancelled_while_one_is_under_way),
		WITH_WORLD(test_receives_complete_without_an_entry_if_so_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
