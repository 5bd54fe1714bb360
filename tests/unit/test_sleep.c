/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping over rings: no wake is lost, unreliable wakes are reported, and no sleeper is woken twice. */
#include "world.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define ROUNDS 20000U
#define SEED 20262U
/* A sleep of this length was not ended by its message. Sleeps have no other limit here. */
#define LOST_NANOSECONDS UINT64_C(60000000000)

/* ---- two members that sleep in turn ---- */

struct side {
	struct node node;
	const struct side *other;
	uint64_t random;
	pthread_t thread;
	uint32_t sleeps;
	const char *failure;
	bool begins;
};

/* Poll, and then sleep until the next message is there. Returns false if a wake was lost. */
static bool await_message(struct side *side)
{
	struct transport *transport = side->node.messenger->transport;
	struct completion_queue *queue = &side->node.receives;

	while (completion_is_empty(queue)) {
		struct sleep_watch watch;
		/* Vary the time before the message. */
		for (uint32_t looks = random_below(&side->random, 200); looks > 0; looks--)
			(void)messenger_progress(side->node.messenger);
		if (!completion_is_empty(queue))
			break;
		transport_sleep_begin(transport);
		transport_progress_full(transport);
		if (messenger_progress(side->node.messenger) == 0 && completion_is_empty(queue)) {
			sleep_watch_open(&watch);
			if (!transport_sleep_watch(transport, &watch)) {
				side->failure = "a sleep is uncertain";
				return false;
			}
			side->sleeps++;
			if (sleep_until(&watch, monotonic_now() + LOST_NANOSECONDS) == SLEEP_ELAPSED) {
				side->failure = "a wake was lost";
				return false;
			}
		}
		transport_sleep_end(transport);
	}
	queue->head++;
	return true;
}

static void *play(void *argument)
{
	struct side *side = argument;
	char byte = 0;

	for (uint32_t round = 0; round < ROUNDS && side->failure == NULL; round++) {
		if (side->begins &&
		    node_send(&side->node, &side->other->node, &byte, 1, 0, FI_MSG, NULL) != 0)
			side->failure = "a send failed";
		if (node_receive(&side->node, NULL, &byte, 1, 0, FI_MSG | FI_COMPLETION, NULL) != 0)
			side->failure = "a receive failed";
		if (side->failure != NULL || !await_message(side))
			break;
		/* Like a rank that computes: the other is asleep by then. */
		if (random_below(&side->random, 64) == 0)
			(void)usleep(random_below(&side->random, 100));
		if (!side->begins &&
		    node_send(&side->node, &side->other->node, &byte, 1, 0, FI_MSG, NULL) != 0)
			side->failure = "a send failed";
	}
	return NULL;
}

static void test_no_wake_is_lost(void **state)
{
	struct region *region = world_region(4, WORLD_SECTION_BYTES);
	struct side sides[2] = {{.random = SEED, .begins = true}, {.random = SEED + 1}};

	(void)state;
	if (!sleep_is_ordered() || !sleep_waits_on_many()) {
		region_detach(region);
		print_message("skipped: this kernel has no membarrier() or no futex_waitv()\n");
		skip();
	}
	for (int i = 0; i < 2; i++) {
		sides[i].other = &sides[1 - i];
		node_open(&sides[i].node, region);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&sides[i].thread, NULL, play, &sides[i]), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(sides[i].thread, NULL), 0);
	for (int i = 0; i < 2; i++) {
		if (sides[i].failure != NULL)
			fail_msg("seed %u, side %d: %s", SEED, i, sides[i].failure);
		/* Otherwise nothing was tested. */
		assert_true(sides[i].sleeps > ROUNDS / 100);
	}
	for (int i = 0; i < 2; i++)
		node_close(&sides[i].node);
	region_detach(region);
}

/* ---- published words ---- */

static uint32_t published(const struct node *node)
{
	const struct transport *transport = node->messenger->transport;

	return shared_load_u32(
		&section_header(transport->attachments[0].region, transport->attachments[0].member->slot)
			 ->sleeping);
}

static uint64_t active(const struct node *node)
{
	const struct transport *transport = node->messenger->transport;

	return shared_load_u64(
		&section_header(transport->attachments[0].region, transport->attachments[0].member->slot)
			 ->active[0]);
}

static uint32_t rung(const struct node *at, const struct node *by)
{
	return shared_load_u32(section_doorbell(at->messenger->transport->attachments[0].region,
						node_slot(at), node_slot(by)));
}

/* A pair that is connected from 0 to 1. */
static void open_pair(struct world *world)
{
	char byte = 0;

	world_open(world, 2, 4, WORLD_SECTION_BYTES);
	assert_int_equal(node_send(&world->nodes[0], &world->nodes[1], &byte, 1, 0, FI_MSG, NULL), 0);
	assert_int_equal(node_receive(&world->nodes[1], NULL, &byte, 1, 0, FI_MSG | FI_COMPLETION, NULL), 0);
	(void)world_await_good(world, &world->nodes[1].receives);
}

/* If a poll hears a doorbell after it read the ring, it has not found the ring empty. */
static void test_a_poll_that_hears_a_doorbell_is_not_the_last(void **state)
{
	struct world world;
	struct msg_peer *to = NULL;

	(void)state;
	open_pair(&world);
	struct messenger *sleeper = world.nodes[1].messenger;
	to = world_peer(&world.nodes[0], &world.nodes[1]);
	while (messenger_progress(sleeper) != 0 || (sleeper->transport->polls & 63) != 63)
		;
	transport_ring(&to->peer);
	assert_int_not_equal(messenger_progress(sleeper), 0);
	assert_int_equal(messenger_progress(sleeper), 0);
	world_close(&world);
}

static void test_senders_ring_one_that_sleeps(void **state)
{
	struct world world;
	struct sleep_watch watch;
	char byte = 0;

	(void)state;
	open_pair(&world);
	struct node *sender = &world.nodes[0];
	struct node *sleeper = &world.nodes[1];
	uint64_t before = active(sleeper);
	assert_int_not_equal(before, 0);
	uint32_t rings = rung(sleeper, sender);
	assert_int_equal(node_send(sender, sleeper, &byte, 1, 0, FI_MSG, NULL), 0);
	assert_int_equal(rung(sleeper, sender), rings);

	transport_sleep_begin(sleeper->messenger->transport);
	assert_int_equal(active(sleeper), 0);
	assert_int_not_equal(published(sleeper), 0);
	transport_progress_full(sleeper->messenger->transport);
	sleep_watch_open(&watch);
	(void)transport_sleep_watch(sleeper->messenger->transport, &watch);
	uint32_t first = published(sleeper);
	assert_int_equal(node_send(sender, sleeper, &byte, 1, 0, FI_MSG, NULL), 0);
	assert_int_equal(rung(sleeper, sender), rings + 1);
	/* So the member does not fall asleep any more. */
	if (sleep_waits_on_many())
		assert_int_equal(sleep_until(&watch, monotonic_now() + LOST_NANOSECONDS), SLEEP_RUNG);
	/* The next sleep is independent, and ends soon if nothing comes. */
	transport_progress_full(sleeper->messenger->transport);
	sleep_watch_open(&watch);
	(void)transport_sleep_watch(sleeper->messenger->transport, &watch);
	assert_int_not_equal(published(sleeper), first);
	assert_int_equal(sleep_until(&watch, monotonic_now() + 1000000), SLEEP_ELAPSED);

	/* Two sleeps: the end of the first does not end the other. */
	transport_sleep_begin(sleeper->messenger->transport);
	transport_sleep_end(sleeper->messenger->transport);
	assert_int_equal(active(sleeper), 0);
	transport_sleep_end(sleeper->messenger->transport);
	assert_int_equal(active(sleeper), before);
	assert_int_equal(published(sleeper), 0);
	world_close(&world);
}

static void test_what_cannot_be_relied_on_is_said(void **state)
{
	struct world world;
	struct sleep_watch watch;

	(void)state;
	open_pair(&world);
	struct transport *transport = world.nodes[1].messenger->transport;
	shared_u32 *membarrier = &section_header(world.region, node_slot(&world.nodes[0]))->membarrier;
	bool possible = sleep_is_ordered() && sleep_waits_on_many();
	atomic_uint word = 0;

	transport_sleep_begin(transport);
	sleep_watch_open(&watch);
	assert_int_equal(transport_sleep_watch(transport, &watch), possible);
	/* A peer that our barriers do not reach. */
	assert_int_equal(shared_load_u32(membarrier), sleep_is_ordered());
	shared_store_u32(membarrier, 0);
	sleep_watch_open(&watch);
	assert_false(transport_sleep_watch(transport, &watch));
	shared_store_u32(membarrier, sleep_is_ordered());
	/* Room: no peer is sure to ring for it. */
	transport->short_of_room = true;
	sleep_watch_open(&watch);
	assert_false(transport_sleep_watch(transport, &watch));
	assert_true((published(&world.nodes[1]) & SLEEPING_FOR_ROOM) != 0);
	/* Now it is reliable again. */
	sleep_watch_open(&watch);
	assert_int_equal(transport_sleep_watch(transport, &watch), possible);
	/* More words than one call can wait for. */
	sleep_watch_open(&watch);
	for (uint32_t i = 0; i < SLEEP_WORDS_MAX - 2; i++)
		sleep_on_private(&watch, &word, 0);
	assert_false(transport_sleep_watch(transport, &watch));
	transport_sleep_end(transport);
	world_close(&world);
}

/* The receiver returns credit in batches. A sender that sleeps until it gets credit gets it at once. */
static void test_who_waits_for_room_is_rung(void **state)
{
	struct world world;
	struct sleep_watch watch;
	char bytes[16] = "";
	ssize_t result = 0;

	(void)state;
	open_pair(&world);
	struct node *sender = &world.nodes[0];
	struct node *receiver = &world.nodes[1];
	/* Connect both directions: the receiver reads the sender's word only if it polls its ring. */
	for (int i = 0; i < 10000 && result == 0; i++)
		result = node_send(sender, receiver, bytes, sizeof(bytes), 0, FI_MSG, NULL);
	assert_int_equal(result, -EAGAIN);
	assert_true(sender->messenger->transport->short_of_room);
	transport_sleep_begin(sender->messenger->transport);
	transport_progress_full(sender->messenger->transport);
	sleep_watch_open(&watch);
	(void)transport_sleep_watch(sender->messenger->transport, &watch);
	uint32_t rings = rung(sender, receiver);
	for (int i = 0; i < 64; i++)
		(void)messenger_progress(receiver->messenger);
	assert_true(rung(sender, receiver) > rings);
	assert_int_equal(sleep_until(&watch, monotonic_now() + LOST_NANOSECONDS), SLEEP_RUNG);
	transport_sleep_end(sender->messenger->transport);
	assert_int_equal(node_send(sender, receiver, bytes, sizeof(bytes), 0, FI_MSG, NULL), 0);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_wake_is_lost),
		cmocka_unit_test(test_a_poll_that_hears_a_doorbell_is_not_the_last),
		cmocka_unit_test(test_senders_ring_one_that_sleeps),
		cmocka_unit_test(test_what_cannot_be_relied_on_is_said),
		cmocka_unit_test(test_who_waits_for_room_is_rung),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
