/* SPDX-License-Identifier: BSD-3-Clause */
/* When something runs out (slots of a ring, chunks, room for rings), nothing is lost and nothing hangs. */
#include "world.h"

#include <stdlib.h>
#include <unistd.h>

#define LARGE 2000000U

static struct world world;
static struct node *sender = &world.nodes[0];
static struct node *receiver = &world.nodes[1];

static void open_world(uint32_t nodes, uint32_t members, uint64_t section_bytes)
{
	world_open(&world, nodes, members, section_bytes);
}

/* Send messages of `length` bytes until there is no room. Returns the number of messages sent. */
static uint32_t send_until_full(size_t length)
{
	unsigned char *bytes = malloc(length);
	uint32_t count = 0;

	assert_non_null(bytes);
	for (;;) {
		fill_bytes(bytes, length, count);
		ssize_t result = node_send(sender, receiver, bytes, length, count, FI_TAGGED, NULL);
		if (result == -EAGAIN)
			break;
		assert_int_equal(result, 0);
		assert_true(++count < 100000);
	}
	free(bytes);
	return count;
}

static void receive_one(size_t length, uint32_t tag)
{
	unsigned char *bytes = calloc(1, length);

	assert_non_null(bytes);
	assert_int_equal(node_receive(receiver, NULL, bytes, length, tag, FI_TAGGED, bytes), 0);
	assert_int_equal(world_await_good(&world, &receiver->receives).length, length);
	assert_bytes(bytes, length, tag);
	free(bytes);
}

static void test_a_full_ring_says_so_and_recovers(void **state)
{
	static const size_t lengths[] = {8, 48, 200, 440};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		open_world(2, 4, WORLD_SECTION_BYTES);
		for (int lap = 0; lap < 5; lap++) {
			uint32_t count = send_until_full(lengths[i]);
			assert_true(count > 0);
			world_settle(&world);
			for (uint32_t tag = 0; tag < count; tag++)
				receive_one(lengths[i], tag);
		}
		world_close(&world);
	}
}

/*
 * Many unexpected messages hold chunks. Then a message arrives that is larger than all of them together, and
 * is matched first: it can only go on if the others return their chunks.
 */
static void run_exhausted(size_t length, uint64_t section_bytes, uint64_t flags)
{
	unsigned char *large = malloc(LARGE);
	unsigned char *target = malloc(LARGE);
	enum { UNEXPECTED = 600 };

	assert_non_null(large);
	assert_non_null(target);
	open_world(2, 4, section_bytes);
	fill_bytes(large, LARGE, 5);
	for (uint32_t tag = 0; tag < UNEXPECTED; tag++) {
		unsigned char *bytes = malloc(length);
		assert_non_null(bytes);
		fill_bytes(bytes, length, tag);
		ssize_t result = 0;
		while ((result = node_send(sender, receiver, bytes, length, tag, FI_TAGGED | flags, bytes)) ==
		       -EAGAIN)
			world_step(&world);
		assert_int_equal(result, 0);
		world_step(&world);
	}
	world_settle(&world);
	assert_int_equal(node_receive(receiver, NULL, target, LARGE, UNEXPECTED, FI_TAGGED, target), 0);
	assert_int_equal(node_send(sender, receiver, large, LARGE, UNEXPECTED, FI_TAGGED, large), 0);
	assert_ptr_equal(world_await_good(&world, &receiver->receives).context, target);
	assert_bytes(target, LARGE, 5);
	/* All other messages are still there. */
	for (uint32_t tag = UNEXPECTED; tag-- > 0;)
		receive_one(length, tag);
	for (uint32_t i = 0; i <= UNEXPECTED; i++) {
		struct completion entry = world_await_good(&world, &sender->sends);
		if (entry.context != large)
			free(entry.context);
	}
	world_close(&world);
	free(large);
	free(target);
}

static void test_a_large_message_passes_many_unexpected_ones(void **state)
{
	(void)state;
	run_exhausted(1000, WORLD_SECTION_BYTES, 0);
	run_exhausted(4096, WORLD_SECTION_BYTES, 0);
	run_exhausted(30000, WORLD_SECTION_BYTES, 0);
	run_exhausted(2000, REGION_SECTION_MIN, 0);
	run_exhausted(2000, WORLD_SECTION_BYTES, FI_DELIVERY_COMPLETE);
	run_exhausted(100000, REGION_SECTION_MIN, FI_DELIVERY_COMPLETE);
}

/*
 * Injected messages that nobody receives hold chunks. When no chunk is left, sends are refused. They go on
 * when the receiver has returned the chunks that it is asked for.
 */
static void inject_many(struct node *to)
{
	enum { MANY = 600 };
	unsigned char bytes[MESSENGER_INJECT_BYTES];
	uint32_t refused = 0;

	open_world(2, 4, WORLD_SECTION_BYTES);
	for (uint32_t tag = 0; tag < MANY; tag++) {
		fill_bytes(bytes, sizeof(bytes), tag);
		ssize_t result = 0;
		while ((result = node_send(sender, to, bytes, sizeof(bytes), tag, FI_TAGGED | FI_INJECT,
					   NULL)) == -EAGAIN) {
			world_step(&world);
			assert_true(++refused < 100000);
		}
		assert_int_equal(result, 0);
	}
	assert_true(refused > 0);
	fill_bytes(bytes, sizeof(bytes), MANY); /* the application may use the buffer again at once */
	for (uint32_t tag = MANY; tag-- > 0;) {
		assert_int_equal(node_receive(to, NULL, bytes, sizeof(bytes), tag, FI_TAGGED, NULL), 0);
		assert_int_equal(world_await_good(&world, &to->receives).length, sizeof(bytes));
		assert_bytes(bytes, sizeof(bytes), tag);
	}
	world_close(&world);
}

static void test_injected_messages_wait_for_chunks(void **state)
{
	(void)state;
	inject_many(receiver);
	inject_many(sender);
}

/* One receiver holds every chunk. A large message to another peer must get through nevertheless. */
static void test_chunks_come_back_from_one_peer_for_another(void **state)
{
	unsigned char *large = malloc(LARGE);
	unsigned char *target = malloc(LARGE);
	struct node *third = &world.nodes[2];
	static unsigned char bytes[4096];

	(void)state;
	assert_non_null(large);
	assert_non_null(target);
	open_world(3, 4, WORLD_SECTION_BYTES);
	fill_bytes(large, LARGE, 5);
	for (uint32_t tag = 0; tag < 400; tag++) {
		while (node_send(sender, receiver, bytes, sizeof(bytes), tag, FI_TAGGED, NULL) == -EAGAIN)
			world_step(&world);
	}
	world_settle(&world);
	assert_int_equal(node_receive(third, NULL, target, LARGE, 1, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(sender, third, large, LARGE, 1, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &third->receives);
	assert_bytes(target, LARGE, 5);
	world_close(&world);
	free(large);
	free(target);
}

/* More large messages at once than chunks, in both directions. */
static void test_many_large_messages_at_once(void **state)
{
	enum { COUNT = 60, BYTES = 150000 };
	unsigned char *bytes = malloc(BYTES);
	unsigned char *targets[2] = {malloc((size_t)COUNT * BYTES), malloc((size_t)COUNT * BYTES)};

	(void)state;
	assert_non_null(bytes);
	fill_bytes(bytes, BYTES, 9);
	open_world(2, 4, REGION_SECTION_MIN);
	for (uint32_t i = 0; i < COUNT; i++)
		for (uint32_t from = 0; from < 2; from++) {
			assert_non_null(targets[from]);
			if (i % 2 == 0)
				assert_int_equal(node_receive(&world.nodes[1 - from], NULL,
							      targets[from] + (size_t)i * BYTES, BYTES, i,
							      FI_TAGGED, NULL),
						 0);
			while (node_send(&world.nodes[from], &world.nodes[1 - from], bytes, BYTES, i,
					 FI_TAGGED, NULL) == -EAGAIN)
				world_step(&world);
		}
	world_settle(&world);
	for (uint32_t i = 1; i < COUNT; i += 2)
		for (uint32_t from = 0; from < 2; from++)
			assert_int_equal(node_receive(&world.nodes[1 - from], NULL,
						      targets[from] + (size_t)i * BYTES, BYTES, i, FI_TAGGED,
						      NULL),
					 0);
	for (uint32_t i = 0; i < COUNT; i++)
		for (uint32_t from = 0; from < 2; from++) {
			(void)world_await_good(&world, &world.nodes[1 - from].receives);
			(void)world_await_good(&world, &world.nodes[from].sends);
		}
	for (uint32_t i = 0; i < COUNT; i++)
		for (uint32_t from = 0; from < 2; from++)
			assert_bytes(targets[from] + (size_t)i * BYTES, BYTES, 9);
	world_close(&world);
	free(bytes);
	free(targets[0]);
	free(targets[1]);
}

/* `count` messages arrive, and all their answers wait, because the ring to the sender is full. */
static void let_answers_wait(uint32_t count)
{
	static unsigned char target[8];
	uint32_t sent = 0;

	open_world(2, 4, WORLD_SECTION_BYTES);
	while (node_send(receiver, sender, "12345678", 8, 1000, FI_TAGGED, NULL) == 0)
		sent++;
	assert_true(sent > 0);
	/* The sender does not read. The receiver has an answer for each message. */
	for (sent = 0; sent < count;) {
		if (node_send(sender, receiver, "abcdefgh", 8, sent, FI_TAGGED | FI_DELIVERY_COMPLETE,
			      NULL) == 0) {
			assert_int_equal(node_receive(receiver, NULL, target, 8, sent, FI_TAGGED, NULL), 0);
			sent++;
		}
		(void)messenger_progress(receiver->messenger);
	}
	for (uint32_t i = 0; i < count * 64; i++)
		(void)messenger_progress(receiver->messenger);
	assert_int_equal(receiver->received.value, count);
	assert_int_equal(receiver->messenger->waiting_controls, count);
	assert_true(completion_is_empty(&sender->sends));
}

static void test_answers_wait_for_room(void **state)
{
	enum { COUNT = 300 };

	(void)state;
	let_answers_wait(COUNT);
	for (uint32_t i = 0; i < COUNT; i++)
		(void)world_await_good(&world, &sender->sends);
	assert_int_equal(receiver->messenger->waiting_controls, 0);
	world_close(&world);
}

static void test_answers_to_the_dead_are_dropped(void **state)
{
	(void)state;
	let_answers_wait(100);
	node_die(sender);
	world_check_peers(&world);
	assert_int_equal(receiver->messenger->waiting_controls, 0);
	world_close(&world);
}

enum { CROWD_MAX = 64 };

/* A region of `members` members, one of which sends to all others. */
static void reach_all(uint32_t members, uint64_t section_bytes)
{
	struct node *nodes[CROWD_MAX];
	struct region *region = world_region(members, section_bytes);

	for (uint32_t i = 0; i < members; i++) {
		nodes[i] = malloc(sizeof(*nodes[i]));
		assert_non_null(nodes[i]);
		node_open(nodes[i], region);
	}
	for (uint32_t to = 0; to < members; to++)
		assert_int_equal(node_send(nodes[0], nodes[to], &to, sizeof(to), to, FI_TAGGED, NULL), 0);
	for (uint32_t at = 0; at < members; at++) {
		uint32_t value = UINT32_MAX;
		assert_int_equal(
			node_receive(nodes[at], nodes[0], &value, sizeof(value), at, FI_TAGGED, NULL), 0);
		for (uint32_t round = 0; completion_is_empty(&nodes[at]->receives); round++) {
			assert_true(round < WORLD_PATIENCE);
			(void)messenger_progress(nodes[at]->messenger);
		}
		assert_int_equal(completion_first(&nodes[at]->receives)->error, 0);
		assert_int_equal(value, at);
	}
	for (uint32_t i = 0; i < members; i++) {
		node_die(nodes[i]); /* nothing is in progress: avoids waiting for credit */
		free(nodes[i]);
	}
	region_detach(region);
}

/* Small sections and many members: the rings get smaller, and every member still reaches every other. */
static void test_rings_for_as_many_as_there_are(void **state)
{
	(void)state;
	reach_all(CROWD_MAX, WORLD_SECTION_BYTES);
	/* The smallest sections, with numbers of members whose rings do not fill whole pages. */
	for (uint32_t members = CROWD_MAX - 3; members < CROWD_MAX; members++)
		reach_all(members, REGION_SECTION_MIN);
}

enum { COLD_PEERS = 24 };

/* More peers than each poll reads, all of which have sent a message. */
struct crowd {
	struct region *region;
	struct node hub;
	struct node peers[COLD_PEERS];
};

static struct crowd crowd;
static unsigned char unheard;

static void hear(uint32_t from, uint32_t number, uint32_t most, useconds_t between)
{
	uint32_t value = 0;

	assert_int_equal(node_receive(&crowd.hub, NULL, &value, sizeof(value), number, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(&crowd.peers[from], &crowd.hub, &number, sizeof(number), number, FI_TAGGED,
				   NULL),
			 0);
	for (uint32_t poll = 0; completion_is_empty(&crowd.hub.receives); poll++) {
		assert_true(poll < most);
		if (between > 0)
			usleep(between);
		(void)messenger_progress(crowd.hub.messenger);
	}
	crowd.hub.receives.head++;
	assert_int_equal(value, number);
}

static void open_crowd(void)
{
	crowd.region = world_region(32, WORLD_SECTION_BYTES);
	node_open(&crowd.hub, crowd.region);
	for (uint32_t i = 0; i < COLD_PEERS; i++)
		node_open(&crowd.peers[i], crowd.region);
	for (uint32_t i = 0; i < COLD_PEERS; i++)
		hear(i, i, 200, 0);
}

static void close_crowd(void)
{
	node_die(&crowd.hub);
	for (uint32_t i = 0; i < COLD_PEERS; i++)
		node_die(&crowd.peers[i]);
	region_detach(crowd.region);
}

static void idle(uint32_t polls, useconds_t between)
{
	for (uint32_t i = 0; i < polls; i++) {
		if (between > 0)
			usleep(between);
		(void)messenger_progress(crowd.hub.messenger);
	}
}

/* A peer whose ring is cold. */
static uint32_t find_cold(void)
{
	for (uint32_t at = 0; at < COLD_PEERS; at++) {
		const struct msg_peer *peer = world_peer(&crowd.hub, &crowd.peers[at]);
		if (peer->peer.receiving && peer->peer.hot_index == 0)
			return at;
	}
	fail_msg("no ring is cold");
	return COLD_PEERS;
}

/* The peer sends, and its doorbell gets lost. */
static void send_unheard(uint32_t at, uint64_t tag)
{
	struct attachment *attachment = &crowd.hub.messenger->transport->attachments[0];
	uint32_t slot = node_slot(&crowd.peers[at]);

	assert_int_equal(node_send(&crowd.peers[at], &crowd.hub, "x", 1, tag, FI_TAGGED, NULL), 0);
	shared_store_u32(section_doorbell(crowd.region, node_slot(&crowd.hub), slot),
			 attachment->doorbells_seen[slot]);
	assert_int_equal(node_receive(&crowd.hub, NULL, &unheard, 1, tag, FI_TAGGED, NULL), 0);
}

/* Rings go cold, and doorbells wake them. */
static void test_cold_rings_are_woken(void **state)
{
	uint64_t seed = 5;

	(void)state;
	open_crowd();
	for (uint32_t round = 0; round < 200; round++) {
		/* Now and then a long idle time, in which all but a few rings go cold. */
		if (round % 10 == 0)
			idle(6000, 0);
		if (round % 10 == 0 && round > 50)
			assert_true(crowd.hub.messenger->transport->hot_count <= 9);
		/* A doorbell, not the sweep, finds the message. */
		hear(random_below(&seed, COLD_PEERS), 1000 + round, 200, 0);
	}
	/* If its doorbell is lost, the sweep finds the message in the end. */
	idle(20000, 0);
	send_unheard(find_cold(), 9999);
	for (uint32_t poll = 0; completion_is_empty(&crowd.hub.receives); poll++) {
		assert_true(poll < 20000);
		(void)messenger_progress(crowd.hub.messenger);
	}
	close_crowd();
}

/* For a process that works between polls, the time between polls counts, not the number of polls. */
static void test_seldom_polls_hear_cold_rings(void **state)
{
	enum { FAR_MICROSECONDS = 20, LEARNING = 512, MOST = 3, SWEEP_POLLS = 3000 };

	(void)state;
	open_crowd();
	for (uint32_t round = 0; round < 5; round++) {
		idle(20000, 0);
		uint32_t cold = find_cold();
		idle(LEARNING, FAR_MICROSECONDS);
		hear(cold, 2000 + round, MOST, FAR_MICROSECONDS);
	}
	/* If the doorbell is lost, the next check for dead peers finds the message. */
	idle(20000, 0);
	idle(LEARNING, FAR_MICROSECONDS);
	send_unheard(find_cold(), 9999);
	for (uint32_t poll = 0; completion_is_empty(&crowd.hub.receives); poll++) {
		assert_true(poll < SWEEP_POLLS);
		usleep(FAR_MICROSECONDS);
		(void)messenger_progress(crowd.hub.messenger);
	}
	close_crowd();
}

/* A peer that finds us in the region as soon as we join may ring before our first poll. */
static void test_who_rings_before_the_first_look_is_heard(void **state)
{
	struct node early;
	struct node node;
	struct region *region = world_region(2, WORLD_SECTION_BYTES);
	char byte = 0;

	(void)state;
	node_open(&early, region);
	node_open(&node, region);
	assert_int_equal(node_send(&early, &node, "x", 1, 7, FI_TAGGED, NULL), 0);
	/* The same words, offered to the next occupant of the slot, which finds all of them. */
	struct connection_line *line = section_connection(region, node_slot(&early), node_slot(&node));
	shared_store_u32(&line->receiver_epoch, node.messenger->transport->attachments[0].member->epoch + 1);
	node_die(&node);
	node_open(&node, region);
	assert_int_equal(node_receive(&node, NULL, &byte, 1, 7, FI_TAGGED, NULL), 0);
	for (uint32_t poll = 0; completion_is_empty(&node.receives); poll++) {
		assert_true(poll < 20000);
		(void)messenger_progress(node.messenger);
	}
	assert_int_equal(byte, 'x');
	/* A ring that was offered to a former occupant is not for its successor. */
	node_die(&node);
	node_open(&node, region);
	assert_null(node.messenger->transport->peers[node_slot(&early)]);
	node_die(&node);
	node_die(&early);
	region_detach(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_full_ring_says_so_and_recovers),
		cmocka_unit_test(test_a_large_message_passes_many_unexpected_ones),
		cmocka_unit_test(test_injected_messages_wait_for_chunks),
		cmocka_unit_test(test_chunks_come_back_from_one_peer_for_another),
		cmocka_unit_test(test_many_large_messages_at_once),
		cmocka_unit_test(test_answers_wait_for_room),
		cmocka_unit_test(test_answers_to_the_dead_are_dropped),
		cmocka_unit_test(test_rings_for_as_many_as_there_are),
		cmocka_unit_test(test_cold_rings_are_woken),
		cmocka_unit_test(test_seldom_polls_hear_cold_rings),
		cmocka_unit_test(test_who_rings_before_the_first_look_is_heard),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
