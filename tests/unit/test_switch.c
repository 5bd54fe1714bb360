/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of one region that switch to the network and back: when, in which steps, and which peers cannot. */
#include "fake_core.h"

#include "transport/switch.h"

#include <stdlib.h>

#define BYTES ((size_t)1 << 20)

static unsigned char in[BYTES];
static unsigned char out[BYTES];

static struct far_node *a = &fakes.nodes[0];
static struct far_node *b = &fakes.nodes[1];
static struct far_node *c = &fakes.nodes[2];

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

/* All check their peers now, as they do by the clock. */
static void look(void)
{
	for (int round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < FAKE_ENDS; i++)
			if (fakes.nodes[i].node.messenger != NULL)
				transport_begin_switches(fake_transport(&fakes.nodes[i]));
		fake_settle(&fakes);
	}
}

static enum connection_route route(const struct far_node *from, const struct far_node *to)
{
	transport_publish_route(fake_transport(from), &fake_neighbour(from, to)->peer);
	return shared_load_u32(&section_connection(from->region,
						   fake_transport(from)->attachments[0].member->slot,
						   fake_transport(to)->attachments[0].member->slot)
					->route);
}

static void talk(struct far_node *from, struct far_node *to, size_t length, uint64_t seed)
{
	fake_talk(&fakes, from, fake_neighbour(from, to), to,
		  fake_transport(from)->attachments[0].member->slot, length, seed);
}

static void talk_all(uint64_t seed)
{
	static const size_t sizes[] = {0, 8, 300, 4096, 20000, 70000, BYTES};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		talk(a, b, sizes[i], seed + i);
		talk(b, a, sizes[i], seed + 100 + i);
		talk(c, b, sizes[i], seed + 200 + i);
	}
}

/* To the network and back several times. The other members of the region stay there. */
static void test_there_and_back(void **state)
{
	(void)state;
	talk_all(0);
	for (uint64_t round = 1; round < 4; round++) {
		uint32_t frames = a->end->frames;
		fake_request_route(a, true);
		look();
		assert_int_equal(route(a, b), CONNECTION_BY_NETWORK);
		assert_int_equal(route(b, a), CONNECTION_BY_NETWORK);
		assert_int_equal(route(c, b), CONNECTION_BY_REGION);
		talk_all(1000 * round);
		assert_true(a->end->frames > frames + 10);
		fake_request_route(a, false);
		look();
		assert_int_equal(route(a, b), CONNECTION_BY_REGION);
		assert_int_equal(route(b, a), CONNECTION_BY_REGION);
		frames = a->end->frames;
		talk_all(1000 * round + 500);
		assert_int_equal(a->end->frames, frames);
	}
	assert_int_equal(fake_transport(a)->switches, 0);
	const struct network *network = fake_transport(a)->network;
	assert_int_equal(fake_transport(a)->attention, network->busy + fake_transport(a)->sparse);
}

/* Before the first message: the route is found at the first message. */
static void test_before_the_first_message(void **state)
{
	(void)state;
	fake_request_route(b, true);
	look();
	talk(a, b, 8, 1);
	look();
	talk_all(2);
	look();
	assert_int_equal(route(a, b), CONNECTION_BY_NETWORK);
	assert_int_equal(route(c, b), CONNECTION_BY_NETWORK);
}

/* Messages that wait for a receive keep their order, whatever their transport. Nothing stays in chunks. */
static void test_unexpected_messages_keep_their_order(void **state)
{
	static const size_t sizes[] = {8, 4000, 300, 200000, 0, 60000};
	enum { COUNT = 6 };

	(void)state;
	talk(a, b, 8, 1);
	for (uint64_t i = 0; i < 3 * COUNT; i++) {
		if (i % COUNT == 3) {
			fake_request_route(a, i / COUNT % 2 == 0);
			look();
		}
		fill_bytes(out, sizes[i % COUNT], i);
		unsigned char *copy = malloc(sizes[i % COUNT] + 1); /* lives until it was received */
		assert_non_null(copy);
		memcpy(copy, out, sizes[i % COUNT]);
		struct iovec piece = {copy, sizes[i % COUNT]};
		assert_int_equal(messenger_send(a->node.messenger,
						&(struct send_request){
							.pieces = &piece,
							.count = 1,
							.length = sizes[i % COUNT],
							.to = fake_neighbour(a, b),
							.tag = i,
							.context = copy,
							.flags = FI_TAGGED | FI_COMPLETION,
						}),
				 0);
		fake_settle(&fakes);
	}
	assert_null(fake_neighbour(b, a)
			    ->holding); /* the last messages through the region came before the last switch */
	for (uint64_t i = 0; i < 3 * COUNT; i++) {
		struct iovec piece = {in, BYTES};
		assert_int_equal(messenger_receive(b->node.messenger,
						   &(struct receive_request){
							   .pieces = &piece,
							   .count = 1,
							   .source = MATCH_ANY_SOURCE,
							   .ignore = UINT64_MAX,
							   .flags = FI_TAGGED | FI_COMPLETION,
						   }),
				 0);
		fake_settle(&fakes);
		struct completion got = fake_next(&b->node.receives);
		assert_int_equal(got.tag, i);
		assert_int_equal(got.length, sizes[i % COUNT]);
		assert_bytes(in, got.length, i);
	}
	for (uint64_t i = 0; i < 3 * COUNT; i++)
		free(fake_next(&a->node.sends).context);
}

/* The receiver takes nothing for a while: the sender finds no room, and goes on later. */
static void test_a_receiver_that_does_not_look(void **state)
{
	uint64_t sent = 0;

	(void)state;
	talk(a, b, 8, 1);
	fake_request_route(a, true);
	look();
	fake_request_route(a, false);
	/* Only a polls: its last slot over the network was sent. */
	transport_begin_switches(fake_transport(a));
	assert_int_equal(route(a, b), CONNECTION_SWITCHING);
	assert_int_equal(fake_send(a, fake_neighbour(a, b), &sent, 8, 5), -EAGAIN);
	for (int i = 0; i < 1000; i++)
		(void)messenger_progress(a->node.messenger);
	assert_int_equal(fake_send(a, fake_neighbour(a, b), &sent, 8, 5), -EAGAIN);
	look();
	assert_int_equal(route(a, b), CONNECTION_BY_REGION);
	talk(a, b, 8, 7);
}

/* The core has no room during the switch, in each direction. */
static void test_a_core_without_room(void **state)
{
	(void)state;
	talk(a, b, 8, 1);
	talk(b, a, 8, 2);
	for (int round = 0; round < 4; round++) {
		a->end->refusals = 3;
		b->end->refusals = 2;
		fake_request_route(b, round % 2 == 0);
		look();
		look();
		talk(a, b, 100000, 3);
		talk(b, a, 3000, 4);
		assert_int_equal(route(a, b), round % 2 == 0 ? CONNECTION_BY_NETWORK : CONNECTION_BY_REGION);
		assert_int_equal(route(b, a), round % 2 == 0 ? CONNECTION_BY_NETWORK : CONNECTION_BY_REGION);
	}
}

/* No peer switches to a network that does not answer, or to which there is no route. */
static void test_who_cannot_be_reached_stays(void **state)
{
	(void)state;
	talk(a, b, 8, 1);
	a->end->refusals = UINT32_MAX;
	fake_request_route(a, true);
	look();
	assert_int_equal(route(a, b), CONNECTION_SWITCHING); /* it may still succeed */
	talk(a, b, 8, 2);
	fake_neighbour(a, b)->peer.beyond->asking -= UINT64_C(4000000000);
	assert_int_equal(route(a, b), CONNECTION_STAYS);
	talk(a, b, 100000, 3);

	/* A peer with an invalid network name, and a peer with none. */
	struct section_header *header =
		section_header(c->region, fake_transport(c)->attachments[0].member->slot);
	shared_store_u32(&header->core, 8 | 1 << 16);
	talk(a, c, 8, 4);
	look();
	assert_int_equal(route(a, c), CONNECTION_STAYS);
	shared_store_u32(&header->core, 7 | 200 << 16);
	look();
	assert_int_equal(route(a, c), CONNECTION_STAYS);
	shared_store_u32(&header->core, 0);
	look();
	assert_int_equal(route(a, c), CONNECTION_STAYS);
	talk(a, c, 100000, 5);
	fake_request_route(a, false);
	look();
	assert_int_equal(route(a, c), CONNECTION_BY_REGION);
}

/* An error of the core during the question harms no peer. */
static void test_a_ping_that_fails(void **state)
{
	(void)state;
	talk(a, b, 8, 1);
	a->end->send_error = ECONNREFUSED;
	fake_request_route(a, true);
	look();
	assert_int_equal(fake_neighbour(a, b)->peer.state, PEER_PRESENT);
	talk(a, b, 100000, 2);
	a->end->send_error = 0;
	look();
	assert_int_equal(route(a, b), CONNECTION_BY_NETWORK);
	talk(a, b, 100000, 3);
}

/* The peer dies in the middle of a switch: its operations end, and other peers go on. */
static void test_a_peer_that_dies_while_it_switches(void **state)
{
	for (int back = 0; back < 2; back++) {
		if (back) {
			(void)fake_teardown(state);
			(void)fake_setup(state);
		}
		talk(a, b, 8, 1);
		talk(b, a, 8, 1);
		talk(c, a, 8, 1);
		fake_request_route(b, true);
		look();
		fake_request_route(b, !back);
		if (back) {
			transport_begin_switches(fake_transport(a));
			assert_int_equal(route(a, b), CONNECTION_SWITCHING);
		}
		struct peer *dying = &fake_neighbour(a, b)->peer;
		assert_int_equal(fake_receive(a, dying->source, in, 8, 9), 0);
		node_die(&b->node);
		/* Messages that may be on their way over the network are awaited. */
		transport_check_peers(fake_transport(a));
		assert_true(dying->framed);
		assert_int_equal(dying->state, PEER_PRESENT);
		dying->gone -= UINT64_C(1100000000);
		transport_check_peers(fake_transport(a));
		(void)transport_progress_full(fake_transport(a));
		assert_int_equal(fake_next(&a->node.receives).error, FI_ECONNRESET);
		assert_int_equal(fake_transport(a)->switches, 0);
		(void)messenger_progress(a->node.messenger);
		assert_int_equal(fake_send(a, fake_neighbour(a, c), "12345678", 8, 2), 0);
	}
}

/* A single copy that was accepted goes on during the switch, which ends when the copy ends. */
static void test_a_copy_goes_on(void **state)
{
	enum { LONG = 4 << 20 };

	(void)state;
	fake_open_shared(&fakes, UINT64_C(16) << 20);
	assert_int_equal(single_copy_open(a->node.messenger, SINGLE_COPY_ON), 0);
	assert_int_equal(single_copy_open(b->node.messenger, SINGLE_COPY_ON), 0);
	unsigned char *from = heap_allocate(fake_transport(a)->heap, LONG, 1, true);
	unsigned char *to = heap_allocate(fake_transport(b)->heap, LONG, 1, true);
	fill_bytes(from, LONG, 9);
	talk(a, b, 8, 1);
	talk(b, a, 8, 2);
	struct peer *at_a = &fake_neighbour(a, b)->peer;
	struct peer *at_b = &fake_neighbour(b, a)->peer;
	/* Each answers only a peer that it asks itself. */
	for (bool proved = false; !proved;) {
		proved = network_prove(fake_transport(a), at_a);
		proved = network_prove(fake_transport(b), at_b) && proved;
		if (!proved)
			fake_settle(&fakes);
	}
	assert_int_equal(fake_receive(b, at_b->source, to, LONG, 9), 0);
	assert_int_equal(fake_send(a, fake_neighbour(a, b), from, LONG, 9), 0);
	for (int i = 0; i < 10 && !fake_transport(b)->user->reaches(b->node.messenger, at_b); i++)
		(void)messenger_progress(b->node.messenger);
	fake_request_route(a, true);
	transport_begin_switches(fake_transport(a));
	transport_begin_switches(fake_transport(b));
	assert_true(at_a->switching && at_b->switching);
	for (int i = 0; i < 10 && (at_a->network == NULL || at_b->network == NULL); i++) {
		(void)messenger_progress(b->node.messenger);
		(void)messenger_progress(a->node.messenger);
	}
	assert_non_null(at_a->network);
	assert_non_null(at_b->network);
	assert_true(fake_transport(a)->user->reaches(a->node.messenger, at_a));
	assert_int_equal(route(a, b), CONNECTION_SWITCHING);
	assert_true(completion_is_empty(&b->node.receives));
	fake_settle(&fakes);
	assert_int_equal(fake_next(&a->node.sends).error, 0);
	assert_int_equal(fake_next(&b->node.receives).length, LONG);
	assert_bytes(to, LONG, 9);
	assert_int_equal(route(a, b), CONNECTION_BY_NETWORK);
	/* From here on no copy is offered or accepted. */
	assert_false(at_a->mapped || at_b->mapped);
	talk(a, b, BYTES, 10);
	(void)heap_release(from);
	(void)heap_release(to);
	fake_close(&fakes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_there_and_back),
		WITH_WORLD(test_before_the_first_message),
		WITH_WORLD(test_unexpected_messages_keep_their_order),
		WITH_WORLD(test_a_receiver_that_does_not_look),
		WITH_WORLD(test_a_core_without_room),
		WITH_WORLD(test_who_cannot_be_reached_stays),
		WITH_WORLD(test_a_ping_that_fails),
		WITH_WORLD(test_a_peer_that_dies_while_it_switches),
		cmocka_unit_test(test_a_copy_goes_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
