/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations stepped by hand: without room, without chunks, with answers that wait, with peers that
 * die.
 */
#include <stdlib.h>

#include "world.h"

#define KEY 77
#define REACHABLE 400000U

static struct world world;
static struct node *initiator = &world.nodes[0];
static struct node *target = &world.nodes[1];
static unsigned char memory[REACHABLE];
static struct registration registration;
static struct registration_table table;

static void open_table(void)
{
	registration = (struct registration){
		.key = KEY,
		.base = memory,
		.length = sizeof(memory),
		.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
		.enabled = true,
	};
	registrations_open(&table);
	assert_int_equal(registrations_add(&table, &registration), 0);
	target->messenger->registrations = &table;
}

static uint32_t count_completions(struct node *node, int error)
{
	uint32_t found = 0;

	for (; !completion_is_empty(&node->sends); node->sends.head++)
		found += completion_first(&node->sends)->error == error;
	return found;
}

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 2, 4, WORLD_SECTION_BYTES);
	open_table();
	memset(memory, 0, sizeof(memory));
	/* Connect the rings, so that no test waits for a doorbell. */
	assert_int_equal(node_send(initiator, target, "x", 1, 0, FI_MSG, NULL), 0);
	assert_int_equal(node_send(target, initiator, "y", 1, 0, FI_MSG, NULL), 0);
	world_settle(&world);
	(void)count_completions(initiator, 0);
	(void)count_completions(target, 0);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	world_close(&world);
	registrations_close(&table);
	return 0;
}

static ssize_t begin(enum remote_kind kind, void *bytes, size_t length, uint64_t address, uint64_t flags,
		     void *context)
{
	const struct iovec piece = {bytes, length};
	const struct fi_rma_iov range = {address, length, KEY};

	return messenger_remote(initiator->messenger, &(struct remote_request){
							      .kind = kind,
							      .pieces = &piece,
							      .count = 1,
							      .length = length,
							      .ranges = &range,
							      .range_count = 1,
							      .to = world_peer(initiator, target),
							      .context = context,
							      .flags = flags | FI_COMPLETION,
						      });
}

static ssize_t fetch_add(uint64_t *operand, uint64_t *result, uint64_t address, void *context)
{
	const struct iovec piece = {operand, 8};
	const struct iovec before = {result, 8};
	const struct fi_rma_iov range = {address, 8, KEY};

	return messenger_remote(initiator->messenger, &(struct remote_request){
							      .kind = REMOTE_ATOMIC,
							      .pieces = &piece,
							      .count = 1,
							      .length = 8,
							      .ranges = &range,
							      .range_count = 1,
							      .to = world_peer(initiator, target),
							      .context = context,
							      .flags = FI_COMPLETION,
							      .datatype = FI_UINT64,
							      .operation = FI_SUM,
							      .form = ATOMIC_FETCH,
							      .results = &before,
							      .result_count = 1,
						      });
}

/* Only the target makes progress, and its answers are not read. */
static void step_target(uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		(void)messenger_progress(target->messenger);
}

/* A request to a full ring is refused, and accepted requests arrive. */
static void test_a_full_ring_refuses_and_loses_nothing(void **state)
{
	uint64_t sent = 0;

	(void)state;
	for (int round = 0; round < 20; round++) {
		for (;;) {
			uint64_t value = sent + 1;
			ssize_t result = begin(REMOTE_WRITE, &value, 8, sent % 1000 * 8, FI_INJECT, NULL);
			if (result != 0) {
				assert_int_equal(result, -EAGAIN);
				break;
			}
			sent++;
		}
		world_settle(&world);
		for (uint64_t i = sent > 1000 ? sent - 1000 : 0; i < sent; i++)
			assert_int_equal(((uint64_t *)(void *)memory)[i % 1000], i + 1);
	}
	assert_true(sent > 1000);
	assert_int_equal(count_completions(initiator, 0), sent);
}

/* The number of unanswered requests is bounded. One DONE answers many. */
static void test_unanswered_requests_are_bounded(void **state)
{
	uint64_t value = 5;
	uint32_t sent = 0;

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		if (begin(REMOTE_WRITE, &value, 8, 0, 0, NULL) == 0)
			sent++;
		if (i % 16 == 0) /* goes on reading; its answers are not read */
			step_target(1);
	}
	assert_int_equal(sent, WIRE_REQUESTS_MAX);
	assert_true(completion_is_empty(&initiator->sends));
	world_settle(&world);
	assert_int_equal(count_completions(initiator, 0), sent);
	/* Reads wait for their bytes as well. */
	unsigned char bytes[64];
	uint32_t reads = 0;
	while (begin(REMOTE_READ, bytes, 48, 0, 0, NULL) == 0)
		reads++;
	assert_int_equal(reads, WIRE_REPLIES_MAX);
	world_settle(&world);
	assert_int_equal(count_completions(initiator, 0), reads);
	assert_int_equal(begin(REMOTE_READ, bytes, 48, 0, 0, NULL), 0);
	world_settle(&world);
}

/* Answers that find the ring full wait in order. Their values were read when the request was carried out. */
static void test_answers_wait_for_room_in_order(void **state)
{
	enum { TIMES = 60 };
	static unsigned char read[TIMES][4096];
	uint64_t one = 1;
	uint64_t before[TIMES];
	uint32_t filled = 0;

	(void)state;
	/* The target's ring to the initiator is full of messages that the initiator does not read. */
	while (node_send(target, initiator, "x", 1, 0, FI_TAGGED, NULL) == 0)
		filled++;
	for (int i = 0; i < TIMES; i++) {
		if (i % 2 == 0)
			assert_int_equal(begin(REMOTE_READ, read[i], 4096, 0, 0, read[i]), 0);
		else
			assert_int_equal(fetch_add(&one, &before[i], 8, &before[i]), 0);
		step_target(1);
	}
	assert_int_equal(world_peer(target, initiator)->remote.owed_count, TIMES);
	assert_int_equal(((uint64_t *)(void *)memory)[1], TIMES / 2);
	for (int i = 0; i < TIMES; i++) {
		struct completion entry = world_await_good(&world, &initiator->sends);
		assert_ptr_equal(entry.context, i % 2 == 0 ? (void *)read[i] : (void *)&before[i]);
		uint64_t seen = 0;
		memcpy(&seen, i % 2 == 0 ? read[i] + 8 : (unsigned char *)&before[i], 8);
		assert_int_equal(seen, i / 2);
	}
	assert_int_equal(world_peer(target, initiator)->remote.owed_count, 0);
	world_settle(&world);
	assert_true(filled > 0);
}

/* A long read copies its bytes when there is room. By then its registration may be gone. */
static void test_a_read_that_waited_finds_its_memory_gone(void **state)
{
	static unsigned char bytes[60000];

	(void)state;
	while (node_send(target, initiator, "x", 1, 0, FI_TAGGED, NULL) == 0)
		;
	assert_int_equal(begin(REMOTE_READ, bytes, sizeof(bytes), 0, 0, NULL), 0);
	step_target(4);
	assert_true(world_peer(target, initiator)->remote.owed_count > 0);
	registrations_remove(&table, &registration);
	assert_int_equal(world_await(&world, &initiator->sends).error, FI_EKEYREJECTED);
	world_settle(&world);
	assert_true(completion_is_empty(&initiator->sends));
	assert_int_equal(world_peer(initiator, target)->peer.state, PEER_PRESENT);
	assert_int_equal(registrations_add(&table, &registration), 0);
	assert_int_equal(begin(REMOTE_READ, bytes, sizeof(bytes), 0, 0, NULL), 0);
	assert_int_equal(world_await(&world, &initiator->sends).error, 0);
}

/* Messages that nobody receives hold all chunks: they are asked back. */
static void test_chunks_are_asked_back(void **state)
{
	static unsigned char bytes[100000];
	static unsigned char back[100000];

	(void)state;
	fill_bytes(bytes, sizeof(bytes), 3);
	for (int side = 0; side < 2; side++) { /* the initiator's, then the target's */
		struct node *from = side == 0 ? initiator : target;
		struct node *to = side == 0 ? target : initiator;
		const struct chunk_class *large =
			&from->messenger->transport->attachments[0].chunks.classes[2];
		while (node_send(from, to, bytes, 4000, 9, FI_TAGGED, NULL) == 0 &&
		       large->free_count > large->reserve)
			world_step(&world);
		while (transport_chunk(from->messenger->transport, &world_peer(from, to)->peer, 1) !=
			       CHUNK_NONE &&
		       world_peer(from, to)->peer.account.outstanding < 3)
			;
	}
	world_settle(&world);
	(void)count_completions(initiator, 0);
	(void)count_completions(target, 0);
	ssize_t result = 0;
	for (int i = 0; (result = begin(REMOTE_WRITE, bytes, 4096, 0, 0, NULL)) == -EAGAIN; i++) {
		assert_true(i < 100000);
		world_step(&world);
	}
	assert_int_equal(result, 0);
	assert_int_equal(begin(REMOTE_WRITE, bytes, sizeof(bytes), 4096, 0, NULL), 0);
	assert_int_equal(world_await(&world, &initiator->sends).error, 0);
	assert_int_equal(world_await(&world, &initiator->sends).error, 0);
	assert_bytes(memory + 4096, sizeof(bytes), 3);
	assert_int_equal(begin(REMOTE_READ, back, sizeof(back), 4096, 0, NULL), 0);
	assert_int_equal(world_await(&world, &initiator->sends).error, 0);
	assert_bytes(back, sizeof(back), 3);
}

/* A small message does not wait behind a long write or read. */
static void test_messages_pass_long_operations(void **state)
{
	static unsigned char bytes[REACHABLE];
	unsigned char small = 0;

	(void)state;
	for (enum remote_kind kind = REMOTE_WRITE; kind <= REMOTE_READ; kind++) {
		assert_int_equal(begin(kind, bytes, sizeof(bytes), 0, 0, NULL), 0);
		assert_int_equal(node_send(initiator, target, "s", 1, 5, FI_TAGGED, NULL), 0);
		assert_int_equal(node_receive(target, NULL, &small, 1, 5, FI_TAGGED, NULL), 0);
		(void)world_await_good(&world, &target->receives);
		/* The write is not over: only the message is complete. */
		assert_int_equal(count_completions(initiator, 0), 1);
		assert_int_equal(world_await(&world, &initiator->sends).error, 0);
	}
}

/* A long write goes in many pieces and is counted once, because programs wait for a number of writes. */
static void test_a_write_is_counted_once_however_long_it_is(void **state)
{
	static const size_t lengths[] = {8, WIRE_SHORT_BYTES, REACHABLE};
	static unsigned char bytes[REACHABLE];
	static struct completion_counter at_target;
	static struct completion_counter of_memory;

	(void)state;
	at_target = of_memory = (struct completion_counter){0};
	target->messenger->remote_write_counter = &at_target;
	registration.counter = &of_memory;
	for (uint64_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		assert_int_equal(begin(REMOTE_WRITE, bytes, lengths[i], 0, 0, NULL), 0);
		(void)world_await_good(&world, &initiator->sends);
		assert_int_equal(at_target.value, i + 1);
		assert_int_equal(of_memory.value, i + 1);
	}
}

/* Every operation in progress with a peer that dies ends with an error, once. */
static void test_operations_with_the_dead_end(void **state)
{
	static unsigned char bytes[REACHABLE];
	uint64_t one = 1;
	uint64_t before = 0;

	for (uint32_t steps = 0; steps < 12; steps++) {
		if (steps > 0) {
			(void)close_world(state);
			(void)open_world(state);
		}
		assert_int_equal(begin(REMOTE_WRITE, bytes, 8, 0, 0, NULL), 0);
		assert_int_equal(begin(REMOTE_READ, bytes, 8, 0, 0, NULL), 0);
		assert_int_equal(begin(REMOTE_WRITE, bytes, sizeof(bytes), 0, 0, NULL), 0);
		assert_int_equal(begin(REMOTE_READ, bytes, sizeof(bytes), 0, 0, NULL), 0);
		assert_int_equal(fetch_add(&one, &before, 0, NULL), 0);
		for (uint32_t i = 0; i < steps; i++)
			world_step(&world);
		node_die(target);
		world_check_peers(&world);
		uint32_t ended = 0;
		uint32_t failed = 0;
		for (; !completion_is_empty(&initiator->sends); initiator->sends.head++, ended++)
			failed += completion_first(&initiator->sends)->error == ECONNRESET;
		assert_int_equal(ended, 5);
		assert_true(failed > 0 || steps > 0);
		assert_int_equal(initiator->messenger->remote_pending, 0);
		const struct chunk_pool *pool = &initiator->messenger->transport->attachments[0].chunks;
		for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
			assert_int_equal(pool->classes[i].free_count, pool->classes[i].count);
		node_open(target, world.region);
		target->messenger->registrations = &table;
		/* With its successor everything begins anew. */
		assert_int_equal(begin(REMOTE_READ, bytes, 8, 0, 0, NULL), 0);
		assert_int_equal(world_await(&world, &initiator->sends).error, 0);
	}
}

/* The target's side: answers to a dead initiator are dropped. */
static void test_answers_to_the_dead_are_given_up(void **state)
{
	static unsigned char bytes[REACHABLE];

	(void)state;
	while (node_send(target, initiator, "x", 1, 0, FI_TAGGED, NULL) == 0)
		;
	for (int i = 0; i < 40; i++)
		assert_int_equal(begin(REMOTE_READ, bytes, 4096, 0, 0, NULL), 0);
	step_target(10);
	assert_true(world_peer(target, initiator)->remote.owed_count > 0);
	node_die(initiator);
	world_check_peers(&world);
	assert_int_equal(target->messenger->remote_pending, 0);
	node_open(initiator, world.region);
}

/* Random operations compared with a model: ordered operations are carried out in order. */
static void test_a_random_sequence_is_carried_out_in_order(void **state)
{
	enum { BYTES = 20000, TIMES = 4000 };
	static unsigned char model[BYTES];
	static unsigned char source[8192];
	static unsigned char read[64][4096];
	static unsigned char wanted[64][4096];
	uint64_t seed = 0x1234567;
	uint32_t reads = 0;

	(void)state;
	for (int i = 0; i < TIMES; i++) {
		static const uint32_t lengths[] = {1, 8, 40, 41, 432, 433, 1000, 4096};
		uint32_t length = lengths[random_below(&seed, 8)];
		uint32_t address = random_below(&seed, BYTES - 4096);
		bool reading = random_below(&seed, 3) == 0;
		if (reading && reads < 64) {
			if (begin(REMOTE_READ, read[reads], length, address, 0, NULL) == 0) {
				memset(wanted[reads], 0, 4096);
				memset(read[reads] + length, 0, 4096 - length);
				memcpy(wanted[reads++], model + address, length);
			}
		} else {
			uint32_t from = random_below(&seed, 4096);
			fill_bytes(source, sizeof(source), (uint64_t)i);
			if (begin(REMOTE_WRITE, source + from, length, address,
				  random_below(&seed, 2) == 0 ? FI_INJECT_COMPLETE : 0, NULL) == 0)
				memcpy(model + address, source + from, length);
		}
		for (uint32_t steps = random_below(&seed, 4); steps > 0; steps--)
			(void)messenger_progress(random_below(&seed, 2) == 0 ? initiator->messenger
									     : target->messenger);
		if (reads < 64 && i + 1 < TIMES)
			continue;
		world_settle(&world);
		for (uint32_t k = 0; k < reads; k++)
			assert_memory_equal(read[k], wanted[k], 4096);
		assert_memory_equal(memory, model, BYTES);
		reads = 0;
	}
	/* No operation was refused. */
	for (; !completion_is_empty(&initiator->sends); initiator->sends.head++)
		assert_int_equal(completion_first(&initiator->sends)->error, 0);
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_a_full_ring_refuses_and_loses_nothing),
		WITH_WORLD(test_unanswered_requests_are_bounded),
		WITH_WORLD(test_answers_wait_for_room_in_order),
		WITH_WORLD(test_a_read_that_waited_finds_its_memory_gone),
		WITH_WORLD(test_chunks_are_asked_back),
		WITH_WORLD(test_messages_pass_long_operations),
		WITH_WORLD(test_a_write_is_counted_once_however_long_it_is),
		WITH_WORLD(test_operations_with_the_dead_end),
		WITH_WORLD(test_answers_to_the_dead_are_given_up),
		WITH_WORLD(test_a_random_sequence_is_carried_out_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
