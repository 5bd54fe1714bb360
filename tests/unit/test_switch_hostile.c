/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers of a region whose switch breaks the protocol: they lose their connection, and we lose nothing. Also a
 * peer whose slot another member takes before all frames to it have left.
 */
#include "fake_core.h"

#include "transport/switch.h"

#define BYTES 100000U

static unsigned char in[BYTES];
static unsigned char out[BYTES];

static struct far_node *victim = &fakes.nodes[0];
static struct far_node *hostile = &fakes.nodes[1];

static void look(void)
{
	for (int round = 0; round < 4; round++) {
		transport_begin_switches(fake_transport(victim));
		transport_begin_switches(fake_transport(hostile));
		fake_settle(&fakes);
	}
}

/* Connected in both directions. */
static int open_world(void **state)
{
	(void)fake_setup(state);
	assert_int_equal(fake_send(victim, fake_neighbour(victim, hostile), "x", 1, 1), 0);
	assert_int_equal(fake_send(hostile, fake_neighbour(hostile, victim), "y", 1, 1), 0);
	fake_settle(&fakes);
	return 0;
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, fake_teardown)

static void go_on(void)
{
	for (int i = 0; i < 200; i++) {
		(void)messenger_progress(victim->node.messenger);
		(void)transport_progress_full(fake_transport(victim));
	}
}

/* The violation is detected, and the region is not used again: see test_failover.c. */
static void assert_left_for_good(const char *what)
{
	go_on();
	if (fake_neighbour(victim, hostile)->peer.failover == FAILOVER_NONE)
		fail_msg("this was accepted: %s", what);
}

/* The violation is detected, and no transport is left. */
static void assert_violation(const char *what)
{
	const struct peer *lost = &fake_neighbour(victim, hostile)->peer;

	go_on();
	if (lost->state != PEER_FAILED || lost->failure != -EPROTO)
		fail_msg("this was accepted: %s", what);
	assert_int_equal(fake_transport(victim)->switches, 0);
}

static void deliver(enum frame_kind kind, uint32_t sequence, const void *rest, size_t length)
{
	unsigned char frame[256];
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.kind = (uint8_t)kind,
		.slots = kind == FRAME_SLOTS,
		.to = fake_transport(victim)->attachments[0].member->nonce,
		.from = fake_transport(hostile)->attachments[0].member->nonce,
		.sequence = sequence,
	};

	memcpy(frame, &header, sizeof(header));
	if (length > 0)
		memcpy(frame + sizeof(header), rest, length);
	assert_true(fake_deliver(victim->end, frame, sizeof(header) + length));
}

static void push(struct far_node *from, const struct far_node *to, uint32_t kind)
{
	struct peer *peer_there = &fake_neighbour(from, to)->peer;

	shared_store_u64(&ring_next(&peer_there->out, 0)->word, 0);
	ring_push(&peer_there->out, control_word(kind, 0, 0), 1);
	transport_wake(peer_there);
}

/* Frames over the network while the ring is still in use. */
static void test_frames_of_one_that_did_not_switch(void **state)
{
	static const struct frame_slot slot = {.control = (uint64_t)WIRE_RECLAIM << 16};

	for (int which = 0; which < 5; which++) {
		if (which > 0) {
			(void)fake_teardown(state);
			(void)open_world(state);
		}
		/* The network knows the peer, but has not switched to it. */
		assert_true(network_attach(fake_transport(victim), &fake_neighbour(victim, hostile)->peer));
		switch (which) {
		case 0:
			deliver(FRAME_SLOTS, 0, &slot, sizeof(slot));
			break;
		case 1:
			deliver(FRAME_LEAVE, 0, NULL, 0);
			break;
		case 2:
			deliver(FRAME_SLOTS, 5, &slot, sizeof(slot)); /* not even held */
			break;
		case 3:
			deliver(FRAME_SWITCHED, 0, NULL, 0);
			break;
		default:
			fake_request_route(hostile, true);
			transport_begin_switches(fake_transport(victim));
			deliver(FRAME_SWITCHED, 0, NULL, 0); /* answers a SWITCH in the region */
			break;
		}
		assert_violation("a frame of a peer that did not switch");
	}
}

/* The peer confirms a last frame: a wrong one, or twice. */
static void test_switched_that_cannot_be(void **state)
{
	for (int which = 0; which < 3; which++) {
		if (which > 0) {
			(void)fake_teardown(state);
			(void)open_world(state);
		}
		fake_request_route(hostile, true);
		look();
		struct peer *switching = &fake_neighbour(victim, hostile)->peer;
		assert_non_null(switching->network);
		if (which > 0) {
			fake_request_route(hostile, false);
			transport_begin_switches(fake_transport(victim));
			assert_true(switching->switching);
		}
		deliver(FRAME_SWITCHED, switching->beyond->sequence - (which == 1), NULL, 0);
		if (which == 2)
			deliver(FRAME_SWITCHED, switching->beyond->sequence, NULL, 0);
		assert_violation("a last frame that was not sent");
	}
}

/* Slots behind a SWITCH in the ring are not read, and the ring is not accepted again. */
static void test_a_ring_that_was_left(void **state)
{
	(void)state;
	assert_true(network_attach(fake_transport(victim), &fake_neighbour(victim, hostile)->peer));
	assert_int_equal(fake_receive(victim, MATCH_ANY_SOURCE, in, 1, 1), 0); /* takes what is there */
	push(hostile, victim, WIRE_SWITCH);
	push(hostile, victim, WIRE_SWITCH);
	assert_int_equal(fake_send(hostile, fake_neighbour(hostile, victim), "z", 1, 2), 0);
	assert_int_equal(fake_receive(victim, MATCH_ANY_SOURCE, in, 1, 2), 0);
	go_on();
	(void)fake_next(&victim->node.receives);
	assert_true(completion_is_empty(&victim->node.receives));
	assert_true(fake_neighbour(victim, hostile)->peer.framed);
	assert_int_equal(fake_neighbour(victim, hostile)->peer.state, PEER_PRESENT);
	/* A doorbell without an offer has no effect. Another ring is invalid. */
	transport_ring(&fake_neighbour(hostile, victim)->peer);
	go_on();
	assert_int_equal(fake_neighbour(victim, hostile)->peer.state, PEER_PRESENT);
	struct connection_line *line =
		section_connection(hostile->region, fake_transport(hostile)->attachments[0].member->slot,
				   fake_transport(victim)->attachments[0].member->slot);
	shared_store_u32(&line->id, shared_load_u32(&line->id) + 2);
	transport_ring(&fake_neighbour(hostile, victim)->peer);
	assert_left_for_good("a ring of a peer that is in the network");
}

/* Over the network a SWITCH ends a frame. From a peer that has no other transport it is invalid. */
static void test_switches_in_frames(void **state)
{
	struct frame_slot slots[2] = {{.control = (uint64_t)WIRE_SWITCH << 16},
				      {.control = (uint64_t)WIRE_RECLAIM << 16}};
	unsigned char frame[sizeof(struct frame_header) + sizeof(slots)];

	for (int which = 0; which < 2; which++) {
		if (which > 0) {
			(void)fake_teardown(state);
			(void)open_world(state);
		}
		fake_request_route(hostile, true);
		look();
		struct network_peer *beyond = fake_neighbour(victim, hostile)->peer.beyond;
		struct frame_header header = {
			.magic = FRAME_MAGIC,
			.version = FRAME_VERSION,
			.kind = FRAME_SLOTS,
			.slots = which == 0 ? 2 : 1,
			.to = fake_transport(victim)->attachments[0].member->nonce,
			.from = fake_transport(hostile)->attachments[0].member->nonce,
			.sequence = beyond->expected + 1,
		};
		memcpy(frame, &header, sizeof(header));
		memcpy(frame + sizeof(header), slots, sizeof(slots));
		size_t length = sizeof(header) + header.slots * sizeof(slots[0]);
		if (which == 1) /* a frame that came too early follows it */
			assert_true(fake_deliver(victim->end, frame, length));
		header.sequence--;
		memcpy(frame, &header, sizeof(header));
		assert_true(fake_deliver(victim->end, frame, length));
		assert_violation("a SWITCH that is not the last slot");
	}
	fake_close(&fakes);
	fake_open(&fakes);
	struct msg_peer *to = fake_peer(hostile, victim);
	uint32_t source = fake_peer(victim, hostile)->peer.source;
	assert_int_equal(fake_send(hostile, to, "x", 1, 1), 0);
	shared_store_u64(&ring_next(&to->peer.out, 0)->word, 0);
	ring_push(&to->peer.out, control_word(WIRE_SWITCH, 0, 0), 1);
	transport_wake(&to->peer);
	go_on();
	assert_int_equal(fake_transport(victim)->peers[source]->failure, -EPROTO);
}

/* The peer confirms everything, and keeps some of our chunks. */
static void test_chunks_that_do_not_come_back(void **state)
{
	(void)state;
	assert_int_equal(fake_send(victim, fake_neighbour(victim, hostile), out, 4000, 1), 0);
	fake_request_route(hostile, true);
	/* Only we poll, so that the test writes the other's answers. */
	for (int i = 0; i < 100 && !fake_neighbour(victim, hostile)->peer.switching; i++) {
		transport_begin_switches(fake_transport(victim));
		transport_begin_switches(fake_transport(hostile));
		(void)transport_progress_full(fake_transport(victim));
		(void)network_progress_full(fake_transport(hostile));
	}
	struct peer *switching = &fake_neighbour(victim, hostile)->peer;
	assert_true(switching->switching);
	shared_store_u64(&section_credit(victim->region, switching->slot,
					 fake_transport(victim)->attachments[0].member->slot)
				  ->consumed,
			 (uint64_t)switching->out.connection << 32 | switching->out.position);
	assert_left_for_good("a chunk that is not returned");
}

/* A newcomer takes the slot while frames to the former occupant are still being sent. */
static void test_a_successor_of_one_that_switched(void **state)
{
	static struct node others[FAKE_MEMBERS - FAKE_ENDS]; /* there is no other free slot */
	struct node before;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		node_open(&others[i], victim->region);
	fake_request_route(hostile, true);
	look();
	struct peer *old = &fake_neighbour(victim, hostile)->peer;
	struct network_peer *beyond = old->beyond;
	uint32_t slot = old->slot;
	assert_non_null(old->network);
	assert_int_equal(fake_receive(victim, slot, in, 8, 9), 0);
	assert_int_equal(fake_send(victim, fake_neighbour(victim, hostile), out, 10000, 5), 0);
	assert_int_equal(beyond->in_flight, 2); /* its HELLO, and the message */
	before = hostile->node;
	node_die(&before);
	node_open(&hostile->node, hostile->region);
	assert_int_equal(fake_transport(hostile)->attachments[0].member->slot, slot);
	/* The newcomer is met as a new peer, in the same struct peer. */
	struct msg_peer *now = fake_neighbour(victim, hostile);
	assert_ptr_equal(&now->peer, old);
	assert_null(now->peer.beyond);
	assert_int_equal(beyond->peer->state, PEER_FAILED);
	assert_int_equal(fake_next(&victim->node.receives).error, FI_ECONNRESET);
	assert_int_equal(fake_receive(&fakes.nodes[1], MATCH_ANY_SOURCE, in, 4000, 6), 0);
	fill_bytes(out, 4000, 6);
	assert_int_equal(fake_send(victim, now, out, 4000, 6), 0);
	fake_settle(&fakes);
	assert_int_equal(fake_next(&hostile->node.receives).length, 4000);
	assert_bytes(in, 4000, 6);
	assert_int_equal(beyond->in_flight, 0);
	const struct chunk_pool *pool = &fake_transport(victim)->network->chunks;
	uint32_t back = 0;
	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		back += pool->classes[i].free_count;
	assert_int_equal(back, pool->count);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		node_close(&others[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_frames_of_one_that_did_not_switch),
		WITH_WORLD(test_switched_that_cannot_be),
		WITH_WORLD(test_a_ring_that_was_left),
		WITH_WORLD(test_switches_in_frames),
		WITH_WORLD(test_chunks_that_do_not_come_back),
		WITH_WORLD(test_a_successor_of_one_that_switched),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
