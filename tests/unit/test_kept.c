/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_kept.c - messages without a posted receive. A peer that sends too many is paused. It costs the peer
 * neither its connection nor the room of other peers, and nothing but messages waits.
 */
#include "world.h"

#define MOST 1024U
#define FLOOD 8000U
/* What a paused peer may have sent before: its ring. */
#define LATE RING_SLOTS_MAX

static struct world world;
static struct node *receiver = &world.nodes[0];
static struct node *flooding = &world.nodes[1];
static struct node *other = &world.nodes[2];
static unsigned char out[8192];
static unsigned char in[8192];
static uint32_t told;

static void notice(const char *text)
{
	assert_non_null(strstr(text, "Post their receives"));
	told++;
}

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 3, 3, WORLD_SECTION_BYTES);
	receiver->messenger->kept.messages_max = MOST;
	receiver->messenger->kept.notice = notice;
	told = 0;
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	world_close(&world);
	return 0;
}

/* INLINE, SHORT and EAGER in turn. */
static size_t length_of(uint32_t tag)
{
	static const size_t lengths[] = {8, 100, 3000};

	return lengths[tag % 3];
}

static bool send_one(struct node *from, uint32_t tag)
{
	fill_bytes(out, length_of(tag), tag);
	ssize_t result = node_send(from, receiver, out, length_of(tag), tag, FI_TAGGED | FI_INJECT, NULL);

	assert_true(result == 0 || result == -EAGAIN);
	return result == 0;
}

/* Send tags from `first` on until the peer has no room. Returns the next tag. */
static uint32_t flood(uint32_t first, uint32_t end, uint32_t step)
{
	uint32_t tag = first;
	uint32_t refused = 0;

	for (; tag < end && refused < 300; refused++) {
		if (send_one(flooding, tag)) {
			tag += step;
			refused = 0;
		}
		world_step(&world);
	}
	world_settle(&world);
	return tag;
}

static void receive_one(const struct node *from, uint32_t tag)
{
	memset(in, 0, sizeof(in));
	assert_int_equal(node_receive(receiver, from, in, sizeof(in), tag, FI_TAGGED, NULL), 0);
	struct completion entry = world_await_good(&world, &receiver->receives);
	assert_int_equal(entry.tag, tag);
	assert_int_equal(entry.length, length_of(tag));
	assert_bytes(in, length_of(tag), tag);
}

static void test_a_flood_is_held_back(void **state)
{
	(void)state;
	/* One size at a time: INLINE, SHORT and EAGER messages are sent without a receive. */
	for (uint32_t kind = 0; kind < 3; kind++) {
		uint32_t sent = flood(kind, FLOOD, 3);
		assert_true(sent < FLOOD);
		/* Half of the room, and what came before the peer knew. The rest is for all others. */
		assert_in_range(world_peer(receiver, flooding)->kept, MOST / 2, MOST / 2 + LATE);
		assert_true(world_peer(flooding, receiver)->paused);
		assert_int_equal(world_peer(receiver, flooding)->peer.state, PEER_PRESENT);
		for (uint32_t tag = kind; tag < 10; tag += 3)
			assert_true(send_one(other, tag));
		world_settle(&world);
		for (uint32_t tag = kind; tag < 10; tag += 3)
			receive_one(other, tag);
		/* All sent messages arrive in order, and refused messages can be sent. */
		for (uint32_t tag = kind; tag < sent; tag += 3)
			receive_one(flooding, tag);
		assert_int_equal(receiver->messenger->kept.messages, 0);
		world_settle(&world);
		assert_false(world_peer(flooding, receiver)->paused);
		for (uint32_t tag = sent; tag < sent + 6; tag += 3) {
			assert_true(send_one(flooding, tag));
			receive_one(flooding, tag);
		}
	}
	assert_int_equal(told, 1);
}

/* What is no message does not wait: here the answer to a large message of the receiver's. */
static void test_a_paused_peer_answers(void **state)
{
	static unsigned char large[300000];
	static unsigned char room[sizeof(large)];

	(void)state;
	assert_true(flood(0, FLOOD, 3) < FLOOD);
	assert_true(world_peer(flooding, receiver)->paused);
	fill_bytes(large, sizeof(large), 1);
	assert_int_equal(node_send(receiver, flooding, large, sizeof(large), 1,
				   FI_TAGGED | FI_DELIVERY_COMPLETE, NULL),
			 0);
	world_settle(&world);
	assert_true(completion_is_empty(&receiver->sends));
	assert_int_equal(node_receive(flooding, receiver, room, sizeof(room), 1, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &flooding->receives);
	(void)world_await_good(&world, &receiver->sends);
	assert_bytes(room, sizeof(room), 1);
}

/* The flooding peer goes on when messages of another peer make room, although none of its own is received. */
static void test_room_that_another_peer_leaves(void **state)
{
	(void)state;
	for (uint32_t tag = 0; tag < 3 * MOST / 2; tag += 3) {
		assert_true(send_one(other, tag));
		world_settle(&world);
	}
	uint32_t sent = flood(0, FLOOD, 3);
	assert_in_range(world_peer(receiver, flooding)->kept, MOST / 4, MOST / 4 + LATE);
	assert_true(world_peer(flooding, receiver)->paused);
	for (uint32_t tag = 0; tag < 3 * MOST / 2; tag += 3)
		receive_one(other, tag);
	world_settle(&world);
	assert_false(world_peer(flooding, receiver)->paused);
	assert_true(send_one(flooding, sent));
}

/* A message for which a receive is posted needs no room. */
static void test_messages_that_are_awaited_pass(void **state)
{
	(void)state;
	assert_int_equal(flood(0, 3 * MOST / 2, 3), 3 * MOST / 2);
	assert_int_equal(world_peer(receiver, flooding)->kept, MOST / 2);
	for (uint32_t tag = 0; tag < 8; tag++) {
		assert_int_equal(
			node_receive(receiver, flooding, in, sizeof(in), 1000 + tag, FI_TAGGED, NULL), 0);
		assert_true(send_one(flooding, 1000 + tag));
		(void)world_await_good(&world, &receiver->receives);
		assert_bytes(in, length_of(1000 + tag), 1000 + tag);
	}
	for (uint32_t tag = 0; tag < 3 * MOST / 2; tag += 3)
		receive_one(flooding, tag);
}

/* Otherwise receives from it would wait for ever. */
static void test_one_that_is_held_back_and_dies_is_missed(void **state)
{
	(void)state;
	assert_true(flood(0, FLOOD, 3) < FLOOD);
	assert_int_equal(node_receive(receiver, flooding, in, sizeof(in), 9999, FI_TAGGED, NULL), 0);
	node_die(flooding);
	world_check_peers(&world);
	assert_int_equal(completion_first(&receiver->receives)->error, ECONNRESET);
	receiver->receives.head++;
}

/* When chunks are asked back, their bytes go to private memory only as far as there is room. */
static void test_private_memory_has_a_bound(void **state)
{
	(void)state;
	receiver->messenger->kept.messages_max = KEPT_MESSAGES_MAX;
	receiver->messenger->kept.bytes_max = UINT64_C(20) * 3000;
	uint32_t sent = flood(2, UINT32_MAX - 3, 3);
	assert_in_range(receiver->messenger->kept.bytes, 3000, UINT64_C(20) * 3000);
	assert_int_equal(world_peer(receiver, flooding)->peer.state, PEER_PRESENT);
	for (uint32_t tag = 2; tag < sent; tag += 3)
		receive_one(flooding, tag);
	assert_int_equal(receiver->messenger->kept.bytes, 0);
	assert_true(send_one(flooding, sent));
	receive_one(flooding, sent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_flood_is_held_back, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_a_paused_peer_answers, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_room_that_another_peer_leaves, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_messages_that_are_awaited_pass, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_one_that_is_held_back_and_dies_is_missed, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_private_memory_has_a_bound, open_world, close_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
