/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_network_window.c - how far a sender runs ahead over the network: a window of frames, and a pause when
 * too many messages wait for receives.
 */
#include "fake_core.h"

#define MOST 256U
#define FLOOD 40000U
/* Several windows. */
#define MANY 1500U

static struct fake_world world;
static struct far_node *a = &world.nodes[0];
static struct far_node *b = &world.nodes[1];
static struct far_node *c = &world.nodes[2];
static struct msg_peer *to_b;
static uint32_t from_a;
static uint64_t out;
static unsigned char in[8];

static int open_world(void **state)
{
	(void)state;
	fake_open(&world);
	to_b = fake_peer(a, b);
	from_a = fake_peer(b, a)->peer.source;
	fake_talk(&world, a, to_b, b, from_a, 8, 1);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	fake_close(&world);
	return 0;
}

static uint32_t unread(const struct network_peer *to)
{
	return to->sequence - to->taken;
}

/* Sends numbers from `first` on until nothing goes out any more. Returns the next number. */
static uint64_t flood(uint64_t first, uint64_t end)
{
	uint64_t number = first;

	for (uint32_t refused = 0; number < end && refused < 3; refused++) {
		for (; number < end; number++) {
			out = number;
			if (fake_send(a, to_b, &out, 8, 1) != 0)
				break;
			refused = 0;
		}
		fake_settle(&world);
	}
	return number;
}

static void receive_numbers(uint64_t first, uint64_t end)
{
	for (uint64_t i = first; i < end; i++) {
		assert_int_equal(fake_receive(b, from_a, in, 8, 1), 0);
		while (completion_is_empty(&b->node.receives))
			fake_settle(&world);
		assert_int_equal(fake_next(&b->node.receives).error, 0);
		assert_memory_equal(in, &i, 8);
	}
	fake_settle(&world);
}

/* A peer that takes no frames gets no more than a window of them. */
static void test_a_window_is_not_exceeded(void **state)
{
	const struct network_peer *to = to_b->peer.network;

	(void)state;
	b->end->sinks = true;
	(void)flood(0, MANY);
	assert_int_equal(unread(to), NETWORK_WINDOW);
	/* What a peer says of frames that were never sent changes nothing. */
	struct frame_header taken = {
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = FRAME_TAKEN,
		.to = fake_transport(a)->attachments[0].member->nonce,
		.from = fake_transport(b)->attachments[0].member->nonce,
		.sequence = to->sequence + 1,
	};
	assert_true(fake_deliver(a->end, &taken, sizeof(taken)));
	fake_settle(&world);
	assert_int_equal(unread(to), NETWORK_WINDOW);
	taken.sequence = to->taken - 1;
	assert_true(fake_deliver(a->end, &taken, sizeof(taken)));
	fake_settle(&world);
	assert_int_equal(unread(to), NETWORK_WINDOW);
	uint32_t sequence = to->sequence;
	taken.sequence = sequence;
	assert_true(fake_deliver(a->end, &taken, sizeof(taken)));
	fake_settle(&world);
	assert_int_not_equal(to->sequence, sequence);
	assert_int_equal(to_b->peer.state, PEER_PRESENT);
}

/* A TAKEN for which there was no room is sent again, although no further frame comes. */
static void test_a_receipt_without_room_is_sent_later(void **state)
{
	const struct network_peer *to = to_b->peer.network;

	(void)state;
	b->end->refusals = UINT32_MAX;
	uint64_t sent = flood(0, MANY);
	assert_true(sent < MANY);
	assert_int_equal(unread(to), NETWORK_WINDOW);
	b->end->refusals = 0;
	network_check(fake_transport(b), monotonic_now());
	fake_settle(&world);
	assert_in_range(unread(to), 0, NETWORK_WINDOW / 2);
	assert_int_equal(flood(sent, MANY), MANY);
	receive_numbers(0, MANY);
}

/* Nobody receives: the sender is paused, and loses neither a message nor its connection. */
static void test_a_flood_is_paused(void **state)
{
	(void)state;
	b->node.messenger->kept.messages_max = MOST;
	uint64_t sent = flood(0, FLOOD);
	assert_true(sent < FLOOD);
	assert_true(to_b->paused);
	/* Others still get messages through. */
	fake_talk(&world, c, fake_peer(c, b), b, fake_peer(b, c)->peer.source, 8, 2);
	receive_numbers(0, sent);
	assert_false(to_b->paused);
	assert_int_equal(flood(sent, sent + MOST / 4), sent + MOST / 4);
	receive_numbers(sent, sent + MOST / 4);
	assert_int_equal(to_b->peer.state, PEER_PRESENT);
}

/* A sender that goes on nevertheless is one that breaks the protocol. */
static void test_one_that_ignores_the_pause_is_lost(void **state)
{
	(void)state;
	b->node.messenger->kept.messages_max = MOST;
	for (uint32_t i = 0; i < FLOOD && to_b->peer.state == PEER_PRESENT; i++) {
		if (fake_send(a, to_b, &out, 8, 1) == 0)
			continue;
		fake_settle(&world);
		to_b->paused = false;
		to_b->peer.waits = false;
	}
	assert_int_equal(fake_transport(b)->peers[from_a]->failure, -ENOMEM);
	assert_in_range(b->node.messenger->kept.messages, MOST / 2, FLOOD / 2);
}

/* Bytes that cannot stay in a frame are bounded in the same way. */
static void test_a_flood_of_bytes_is_paused(void **state)
{
	static unsigned char bytes[4000];
	uint32_t sent = 0;

	(void)state;
	b->node.messenger->kept.bytes_max = UINT64_C(100) * sizeof(bytes);
	while (!to_b->paused && sent < FLOOD) {
		sent += fake_send(a, to_b, bytes, sizeof(bytes), 1) == 0;
		fake_settle(&world);
	}
	/* Half of the room: the rest is for other peers. */
	assert_in_range(sent, 50, 50 + NETWORK_WINDOW);
	assert_int_equal(to_b->peer.state, PEER_PRESENT);
	for (uint32_t i = 0; i < sent; i++) {
		assert_int_equal(fake_receive(b, from_a, bytes, sizeof(bytes), 1), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&b->node.receives).length, sizeof(bytes));
	}
	assert_false(to_b->paused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_window_is_not_exceeded, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_a_receipt_without_room_is_sent_later, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_a_flood_is_paused, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_one_that_ignores_the_pause_is_lost, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_a_flood_of_bytes_is_paused, open_world, close_world),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
