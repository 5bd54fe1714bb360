/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings that are too short grow, and shrink when they are no longer used so much. Messages keep their order,
 * peers keep their room, and the memory is used again.
 */
#include "world.h"

#include "transport/region_transport.h"

#define USUAL 128U
#define LONG 512U
/* More messages than a usual ring holds. */
#define BURST 1000U

static struct world world;
static struct node *sender = &world.nodes[0];
static struct node *receiver = &world.nodes[1];
static uint64_t sent[WORLD_NODES];
static uint64_t received[WORLD_NODES];

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 3, 4, WORLD_SECTION_BYTES);
	for (uint32_t i = 0; i < WORLD_NODES; i++)
		sent[i] = received[i] = 0;
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	world_close(&world);
	return 0;
}

static uint32_t length_to(const struct node *to)
{
	return world_peer(sender, to)->peer.out.mask + 1;
}

/* A new period begins at a time that no test can foresee: it may only delay what is awaited. */
static void burst(const struct node *to, uint32_t count)
{
	uint64_t *next = &sent[to - world.nodes];

	for (uint32_t i = 0; i < count; i++) {
		uint64_t number = *next;
		ssize_t result = node_send(sender, to, &number, sizeof(number), 0, FI_MSG | FI_INJECT, NULL);
		if (result == -EAGAIN)
			return;
		assert_int_equal(result, 0);
		++*next;
	}
}

static void receive_all(struct node *at)
{
	uint64_t *next = &received[at - world.nodes];

	for (; *next < sent[at - world.nodes]; ++*next) {
		uint64_t number = 0;
		assert_int_equal(node_receive(at, sender, &number, sizeof(number), 0, FI_MSG, NULL), 0);
		(void)world_await_good(&world, &at->receives);
		assert_int_equal(number, *next);
	}
	world_settle(&world);
}

static void grow(struct node *to, uint32_t length)
{
	for (int round = 0; round < 100 && (round == 0 || length_to(to) < length); round++) {
		burst(to, BURST);
		receive_all(to);
	}
	assert_int_equal(length_to(to), length);
}

/* As many checks without a full ring as it takes, and the receiver reads the RESIZE. */
static void rest(void)
{
	for (int check = 0; check < 8; check++) {
		transport_shorten_rings(sender->messenger->transport);
		world_settle(&world);
	}
}

static void test_grows_when_it_is_full_and_shrinks_at_rest(void **state)
{
	struct transport *transport = sender->messenger->transport;
	struct attachment *attachment = &transport->attachments[0];

	(void)state;
	burst(receiver, 1);
	receive_all(receiver);
	assert_int_equal(length_to(receiver), USUAL);
	uint32_t used = attachment->ring_next;
	grow(receiver, LONG);
	assert_int_equal(attachment->ring_next, used + LONG * sizeof(struct ring_slot));
	assert_int_equal(world_peer(receiver, sender)->peer.in.mask + 1, LONG);
	rest();
	assert_int_equal(length_to(receiver), USUAL);
	assert_int_equal(world_peer(receiver, sender)->peer.in.mask + 1, USUAL);
	assert_int_equal(transport->long_rings, 0);
	assert_int_equal(attachment->spare_count, 1);
	/* Another peer gets the memory, and then the first one takes other memory. */
	grow(&world.nodes[2], LONG);
	assert_int_equal(attachment->spare_count, 0);
	used = attachment->ring_next;
	grow(receiver, LONG);
	assert_true(attachment->ring_next > used);
	for (int round = 0; round < 20; round++) {
		burst(receiver, BURST);
		burst(&world.nodes[2], BURST);
		receive_all(&world.nodes[2]);
		receive_all(receiver);
		if (round % 5 == 4)
			rest();
	}
}

/* However often the sender asks for room in a full ring, the ring grows as soon as a slot of it is free. */
static void test_grows_at_the_second_time(void **state)
{
	struct transport *transport = sender->messenger->transport;
	struct peer *to = NULL;

	(void)state;
	transport->next_check = UINT64_MAX; /* no period ends meanwhile */
	burst(receiver, 1);
	receive_all(receiver);
	to = &world_peer(sender, receiver)->peer;
	for (int time = 0; time < 2; time++) {
		assert_int_equal(length_to(receiver), USUAL);
		while (transport_room(transport, to, 1))
			burst(receiver, 1);
		for (int i = 0; i < 5; i++)
			assert_false(transport_refresh(transport, to, 1));
		for (int i = 0; i < 100; i++)
			(void)messenger_progress(receiver->messenger);
		assert_true(transport_refresh(transport, to, 1));
	}
	assert_int_equal(length_to(receiver), LONG);
	receive_all(receiver);
}

/* A ring that holds what is sent never grows, and no ring grows because its receiver does not read. */
static void test_stays_as_it_is(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		burst(receiver, USUAL - USUAL / 4);
		receive_all(receiver);
	}
	assert_int_equal(length_to(receiver), USUAL);
	burst(&world.nodes[2], BURST);
	for (int round = 0; round < 1000; round++)
		(void)messenger_progress(sender->messenger);
	assert_int_equal(length_to(&world.nodes[2]), USUAL);
	receive_all(&world.nodes[2]);
}

/* While the receiver has not read the last RESIZE, no memory is written that it may still read. */
static void test_waits_for_the_receiver_before_it_moves_again(void **state)
{
	struct transport *transport = sender->messenger->transport;

	(void)state;
	grow(receiver, LONG);
	for (int check = 0; check < 8; check++)
		transport_shorten_rings(transport);
	assert_int_equal(length_to(receiver), USUAL);
	assert_int_equal(transport->long_rings, 1);
	burst(receiver, BURST);
	for (int check = 0; check < 8; check++) {
		transport_note_full(transport, &world_peer(sender, receiver)->peer);
		world_peer(sender, receiver)->peer.fulls = 100;
		(void)messenger_progress(sender->messenger);
		assert_int_equal(length_to(receiver), USUAL);
	}
	receive_all(receiver);
	grow(receiver, LONG);
}

/* A member that comes later still gets a ring, and the memory of one that dies is used again. */
static void test_leaves_room_for_others(void **state)
{
	enum { MEMBERS = 10 };
	struct transport *transport = NULL;
	struct node others[MEMBERS - 3];
	char byte = 1;

	world_close(&world);
	world_open(&world, 3, MEMBERS, WORLD_SECTION_BYTES);
	(void)state;
	transport = sender->messenger->transport;
	for (int round = 0; round < 100; round++) {
		burst(receiver, BURST);
		burst(&world.nodes[2], BURST);
		receive_all(receiver);
		receive_all(&world.nodes[2]);
	}
	assert_true(transport->long_rings >= 1);
	for (uint32_t i = 0; i < MEMBERS - 3; i++) {
		node_open(&others[i], world.region);
		assert_int_equal(node_send(sender, &others[i], &byte, 1, 0, FI_MSG | FI_INJECT, NULL), 0);
		assert_true(length_to(&others[i]) >= 64);
	}
	uint32_t used = transport->attachments[0].ring_next;
	uint32_t spare = transport->attachments[0].spare_count;
	uint32_t grown = length_to(receiver) > USUAL;
	node_die(receiver);
	world_check_peers(&world);
	assert_int_equal(transport->attachments[0].spare_count, spare + grown);
	for (uint32_t i = 0; i < MEMBERS - 3; i++) {
		(void)messenger_progress(others[i].messenger);
		node_close(&others[i]);
	}
	assert_int_equal(transport->attachments[0].ring_next, used);
	node_open(receiver, world.region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_grows_when_it_is_full_and_shrinks_at_rest, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_grows_at_the_second_time, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_stays_as_it_is, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_waits_for_the_receiver_before_it_moves_again, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_leaves_room_for_others, open_world, close_world),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
