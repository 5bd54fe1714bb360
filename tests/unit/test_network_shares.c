/* SPDX-License-Identifier: BSD-3-Clause */
/* One peer's share of the resources for all network peers: buffers, frames, reads. */
#include "fake_core.h"

static unsigned char in[8];
static unsigned char out[440];
static struct fake_world world;

static struct far_node *a = &world.nodes[0];
static struct far_node *b = &world.nodes[1];
static struct far_node *c = &world.nodes[2];

static struct network_peer *known(struct far_node *at, const struct far_node *whom)
{
	return fake_peer(at, whom)->peer.network;
}

/* A frame of `from` to b with one slot without meaning, `ahead` frames before its turn, and with `bytes`. */
static void deliver_ahead(struct far_node *from, uint32_t ahead, uint32_t bytes)
{
	static struct {
		struct frame_header header;
		struct frame_slot slot;
		unsigned char bytes[FRAME_CHUNK_MAX];
	} frame;

	frame.header = (struct frame_header){
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = FRAME_SLOTS,
		.slots = 1,
		.to = fake_transport(b)->attachments[0].member->nonce,
		.from = fake_transport(from)->attachments[0].member->nonce,
		.sequence = known(b, from)->expected + ahead,
		.bytes = bytes,
	};
	frame.slot = (struct frame_slot){.control = control_word(WIRE_RECLAIM, 0, 0)};
	assert_true(fake_deliver(b->end, &frame, sizeof(frame.header) + sizeof(frame.slot) + bytes));
	fake_settle(&world);
}

/* The waiting frames of one peer take no buffer that other peers need, and do not wait for ever. */
static void test_waiting_frames_take_no_buffers(void **state)
{
	(void)state;
	fake_open(&world);
	(void)fake_peer(b, a);
	for (uint32_t ahead = 1; ahead <= NETWORK_HELD_MAX; ahead++) {
		deliver_ahead(a, ahead, 0);
		assert_int_equal(b->end->posted_count, NETWORK_BUFFERS);
	}
	assert_int_equal(known(b, a)->peer->state, PEER_PRESENT);
	/* The missing frame does not come during this many checks of the peer. */
	for (uint64_t i = 0; i < fake_transport(b)->timeout / LIVENESS_INTERVAL + 3; i++)
		network_check(fake_transport(b), monotonic_now());
	assert_int_equal(known(b, a)->peer->failure, -EPROTO);
	fake_settle(&world);
	assert_int_equal(fake_transport(b)->network->held_bytes, 0);
	fake_close(&world);
}

/*
 * The waiting frames of all peers together are bounded: the peer with the most of them makes room for another
 * peer's frame.
 */
static void test_room_for_waiting_frames_is_bounded(void **state)
{
	(void)state;
	fake_open(&world);
	(void)fake_peer(b, a);
	(void)fake_peer(b, c);
	for (uint32_t ahead = 1; ahead <= NETWORK_HELD_MAX; ahead++)
		deliver_ahead(a, ahead, FRAME_CHUNK_MAX);
	/* Other peers have used the rest of the room. */
	fake_transport(b)->network->held_bytes = NETWORK_HELD_BYTES_MAX;
	deliver_ahead(c, 1, 8);
	assert_int_equal(known(b, a)->peer->state, PEER_FAILED);
	assert_int_equal(known(b, c)->peer->state, PEER_PRESENT);
	assert_non_null(known(b, c)->held);
	fake_transport(b)->network->held_bytes = known(b, c)->held_bytes;
	fake_close(&world);
}

/* A peer that takes nothing leaves frames and reads for other peers. */
static void test_a_stuck_peer_leaves_room(void **state)
{
	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	struct msg_peer *to_c = fake_peer(a, c);
	uint32_t from_a = fake_peer(c, a)->peer.source;
	fake_talk(&world, a, to_b, b, fake_peer(b, a)->peer.source, 8, 1);
	fake_talk(&world, a, to_c, c, from_a, 8, 1);
	struct network_peer *stuck = to_b->peer.network;
	struct network *network = fake_transport(a)->network;
	a->end->holds_sends = true;
	b->end->sinks = true;
	for (uint32_t i = 0; i < 2 * NETWORK_FRAMES; i++)
		(void)fake_send(a, to_b, out, 440, 1);
	assert_int_equal(stuck->in_flight, NETWORK_FRAMES / 2 + 1);
	/* Even if many other peers took the rest, every peer gets one. */
	network->free_count = 0;
	assert_int_equal(fake_send(a, to_c, out, 440, 2), 0);
	assert_int_equal(to_c->peer.network->in_flight, 1);
	network->free_count = NETWORK_FRAMES - (stuck->in_flight - 1);
	fake_release_sends(a->end);
	fake_settle(&world);
	assert_int_equal(network->free_count, NETWORK_FRAMES);

	/* The same holds for reads. */
	struct network_grant grant = {.address = (uintptr_t)out, .key = sizeof(out)};
	a->end->holds_reads = true;
	uint32_t reads = 0;
	while (network_fetch(&to_b->peer, &grant, 0, in, 8, NULL) == 0)
		reads++;
	assert_int_equal(reads, NETWORK_FETCHES / 2 + 1);
	uint32_t taken = network->fetches_taken;
	network->fetches_taken = NETWORK_FETCHES;
	assert_int_equal(network_fetch(&to_c->peer, &grant, 0, in, 8, NULL), 0);
	assert_int_equal(network_fetch(&to_c->peer, &grant, 0, in, 8, NULL), -EAGAIN);
	network->fetches_taken = taken;
	a->end->head = a->end->tail; /* nobody waits for these reads */
	a->end->held_count = 0;
	fake_close(&world);
}

/*
 * Frames that the core copies cost its memory, of which it reports nothing: a peer that takes nothing gets no
 * more.
 */
static void test_the_core_copies_few_frames_of_a_peer(void **state)
{
	enum { MANY = 8 * NETWORK_COPIED_MAX };

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	fake_talk(&world, a, to_b, b, fake_peer(b, a)->peer.source, 8, 1);
	uint32_t before = a->end->frames;
	a->end->holds_sends = true;
	b->end->sinks = true;
	for (uint32_t i = 0; i < MANY; i++) {
		(void)fake_send(a, to_b, out, 8, 1);
		fake_settle(&world);
	}
	assert_in_range(a->end->frames - before, NETWORK_COPIED_MAX / 2, NETWORK_COPIED_MAX + NETWORK_FRAMES);
	/* Once they are sent, more go out. */
	before = a->end->frames;
	fake_release_sends(a->end);
	to_b->peer.network->taken = to_b->peer.network->sequence;
	fake_settle(&world);
	for (uint32_t i = 0; i < MANY; i++) {
		to_b->peer.network->taken = to_b->peer.network->sequence; /* as if the peer had said so */
		assert_int_equal(fake_send(a, to_b, out, 8, 1), 0);
		fake_settle(&world);
	}
	assert_true(a->end->frames - before > MANY / 2);
	fake_close(&world);
}

/* Each poll sends few waiting frames, of all peers in turn. */
static void test_what_waits_takes_turns(void **state)
{
	enum { EACH = 3 * NETWORK_FRAMES_PER_POLL };
	static unsigned char large[4000];

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	struct msg_peer *to_c = fake_peer(a, c);
	fake_talk(&world, a, to_b, b, fake_peer(b, a)->peer.source, 8, 1);
	fake_talk(&world, a, to_c, c, fake_peer(c, a)->peer.source, 8, 1);
	a->end->refusals = UINT32_MAX;
	for (uint32_t i = 0; i < EACH; i++) {
		assert_int_equal(fake_send(a, to_b, large, sizeof(large), i), 0);
		assert_int_equal(fake_send(a, to_c, large, sizeof(large), i), 0);
	}
	a->end->refusals = 0;
	a->end->holds_sends = true;
	uint32_t before = a->end->frames;
	for (uint32_t look = 1; look <= 2; look++) {
		assert_int_equal(network_poll(fake_transport(a)->network), NETWORK_FRAMES_PER_POLL);
		assert_int_equal(a->end->frames - before, look * NETWORK_FRAMES_PER_POLL);
	}
	/* Both had a turn. */
	assert_int_equal(to_b->peer.network->in_flight, NETWORK_FRAMES_PER_POLL);
	assert_int_equal(to_c->peer.network->in_flight, NETWORK_FRAMES_PER_POLL);
	fake_release_sends(a->end);
	fake_settle(&world);
	assert_int_equal(a->end->frames - before, 2 * EACH);
	assert_int_equal(fake_transport(a)->network->backlog_count, 0);
	fake_close(&world);
}

/* Messages that waited for a peer at the sender go in few frames. */
static void test_what_waited_goes_in_few_frames(void **state)
{
	enum { MANY = 1000 };
	static uint64_t numbers[MANY];

	(void)state;
	fake_open(&world);
	struct msg_peer *to_b = fake_peer(a, b);
	uint32_t from_a = fake_peer(b, a)->peer.source;
	fake_talk(&world, a, to_b, b, from_a, 8, 1);
	a->node.messenger->send_queues.most = SEND_QUEUE_BYTES;
	a->end->refusals = UINT32_MAX;
	for (uint64_t i = 0; i < MANY; i++) {
		numbers[i] = i;
		assert_int_equal(fake_send(a, to_b, &numbers[i], 8, 1), 0);
	}
	a->end->refusals = 0;
	uint32_t before = a->end->frames;
	for (uint64_t i = 0; i < MANY; i++) {
		assert_int_equal(fake_receive(b, from_a, in, 8, 1), 0);
		while (completion_is_empty(&b->node.receives))
			fake_settle(&world);
		assert_int_equal(fake_next(&b->node.receives).error, 0);
		assert_memory_equal(in, &i, 8);
	}
	assert_true(a->end->frames - before < MANY / 8);
	fake_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waiting_frames_take_no_buffers),
		cmocka_unit_test(test_room_for_waiting_frames_is_bounded),
		cmocka_unit_test(test_a_stuck_peer_leaves_room),
		cmocka_unit_test(test_the_core_copies_few_frames_of_a_peer),
		cmocka_unit_test(test_what_waits_takes_turns),
		cmocka_unit_test(test_what_waited_goes_in_few_frames),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
