/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends to a peer that takes nothing return at once, wait in the sender's memory, and arrive in order when
 * the peer takes them. Sends to other peers do not wait for that.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#define LONGEST 100000U
/* Many times the slots of a ring and the chunks of a section. */
#define MANY 3000U
/* Tries of one send. Each polls once, and the last is a tenth of a millisecond after the first. */
#define TRIES 10000000U

static struct world world;
static struct node *sender = &world.nodes[0];
static struct node *busy = &world.nodes[1];
static struct node *third = &world.nodes[2];
static unsigned char bytes[LONGEST];
static unsigned char target[LONGEST];
static char noticed[256];
static uint32_t notices;

static void notice(const char *text)
{
	(void)snprintf(noticed, sizeof(noticed), "%s", text);
	notices++;
}

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 3, 4, WORLD_SECTION_BYTES);
	sender->messenger->send_queues.most = SEND_QUEUE_BYTES;
	sender->messenger->send_queues.notice = notice;
	notices = 0;
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	assert_int_equal(sender->messenger->send_queues.count, 0);
	assert_int_equal(sender->messenger->send_queues.bytes, 0);
	world_close(&world);
	return 0;
}

/* All nodes make progress except the busy one. */
static void step_others(uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		(void)messenger_progress(sender->messenger);
		(void)messenger_progress(third->messenger);
	}
}

/* As an MPI library does: make progress and try again while there is no room. */
static void send_to_busy(const void *from, size_t length, uint64_t tag, uint64_t flags, bool at_once)
{
	ssize_t result = node_send(sender, busy, from, length, tag, FI_TAGGED | flags, NULL);

	for (uint32_t tries = 0; result == -EAGAIN && !at_once; tries++) {
		assert_true(tries < TRIES);
		step_others(1);
		result = node_send(sender, busy, from, length, tag, FI_TAGGED | flags, NULL);
	}
	assert_int_equal(result, 0);
}

static void receive_all(size_t length, uint32_t count)
{
	for (uint32_t tag = 0; tag < count; tag++) {
		assert_int_equal(node_receive(busy, sender, target, length, tag, FI_TAGGED, NULL), 0);
		assert_int_equal(world_await_good(&world, &busy->receives).length, length);
		assert_bytes(target, length, tag);
	}
}

static uint32_t drain_completions(void)
{
	uint32_t count = 0;

	for (; !completion_is_empty(&sender->sends); count++) {
		assert_int_equal(completion_first(&sender->sends)->error, 0);
		sender->sends.head++;
	}
	return count;
}

/*
 * As many sends as tx_attr.size offers are taken without a poll of the peer, and more while the peer stands
 * still.
 */
static void test_sends_return_while_the_peer_takes_nothing(void **state)
{
	static const size_t lengths[] = {0, 8, 48, 49, 400, 441, 1000, 4000, 4096};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (uint32_t tag = 0; tag < MANY; tag++) {
			fill_bytes(bytes, lengths[i], tag);
			send_to_busy(bytes, lengths[i], tag, FI_INJECT, tag < SEND_QUEUE_FREE);
			memset(bytes, 0xee, lengths[i]); /* injected: the buffer is ours again */
		}
		assert_int_not_equal(sender->messenger->send_queues.count, 0);
		receive_all(lengths[i], MANY);
		world_settle(&world);
		assert_int_equal(drain_completions(), MANY);
		assert_int_equal(sender->messenger->send_queues.count, 0);
	}
	assert_int_equal(notices, 0);
}

static void test_buffers_that_are_not_injected_wait_where_they_are(void **state)
{
	static const size_t lengths[] = {8, 1000, 4000, 16000, LONGEST};
	enum { COUNT = 1200 };
	unsigned char *buffers = malloc((size_t)COUNT * LONGEST);

	(void)state;
	assert_non_null(buffers);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (uint32_t tag = 0; tag < COUNT; tag++) {
			unsigned char *own = buffers + (size_t)tag * LONGEST;
			fill_bytes(own, lengths[i], tag);
			send_to_busy(own, lengths[i], tag, 0, tag < SEND_QUEUE_FREE);
		}
		assert_true(sender->messenger->send_queues.bytes < COUNT * 256U);
		receive_all(lengths[i], COUNT);
		world_settle(&world);
		assert_int_equal(drain_completions(), COUNT);
	}
	free(buffers);
}

/* Pieces, data and acknowledgements wait with the rest of a message. */
static void test_a_message_waits_whole(void **state)
{
	unsigned char first[] = "abc", second[] = "defgh";
	struct iovec pieces[] = {{first, 3}, {second, 5}};
	struct send_request request = {
		.pieces = pieces,
		.count = 2,
		.length = 8,
		.to = world_peer(sender, busy),
		.tag = 1U << 20,
		.data = 77,
		.context = first,
		.flags = FI_TAGGED | FI_COMPLETION | FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE,
	};

	(void)state;
	fill_bytes(bytes, 8, 0);
	for (uint32_t tag = 0; tag < 300; tag++)
		send_to_busy(bytes, 8, 0, FI_INJECT, true);
	assert_int_equal(messenger_send(sender->messenger, &request), 0);
	pieces[0] = pieces[1] = (struct iovec){NULL, 0};
	for (uint32_t tag = 0; tag < 300; tag++) {
		assert_int_equal(node_receive(busy, sender, target, 8, 0, FI_TAGGED, NULL), 0);
		(void)world_await_good(&world, &busy->receives);
	}
	assert_int_equal(drain_completions(), 300);
	assert_int_equal(node_receive(busy, sender, target, 8, 1U << 20, FI_TAGGED, NULL), 0);
	struct completion entry = world_await_good(&world, &busy->receives);
	assert_memory_equal(target, "abcdefgh", 8);
	assert_int_equal(entry.data, 77);
	assert_ptr_equal(world_await_good(&world, &sender->sends).context, first);
}

/* While messages wait for the busy node, a message to another node goes in chunks as usual. */
static void test_others_are_sent_to_meanwhile(void **state)
{
	static const size_t lengths[] = {8, 400, 4000};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (uint32_t tag = 0; tag < SEND_QUEUE_FREE; tag++) {
			fill_bytes(bytes, lengths[i], tag);
			send_to_busy(bytes, lengths[i], tag, FI_INJECT, true);
		}
		step_others(100);
		fill_bytes(bytes, 4000, 5);
		assert_int_equal(node_receive(third, NULL, target, 4000, 5, FI_TAGGED, NULL), 0);
		assert_int_equal(node_send(sender, third, bytes, 4000, 5, FI_TAGGED | FI_INJECT, NULL), 0);
		assert_false(world_peer(sender, third)->peer.waits);
		for (uint32_t round = 0; completion_is_empty(&third->receives); round++) {
			assert_true(round < 100);
			step_others(1);
		}
		(void)world_await_good(&world, &third->receives);
		assert_bytes(target, 4000, 5);
		receive_all(lengths[i], SEND_QUEUE_FREE);
		world_settle(&world);
		assert_int_equal(drain_completions(), SEND_QUEUE_FREE + 1);
	}
}

/*
 * Beyond the bound a send is refused and the user is told once. There is room when the peer takes messages.
 */
static void test_the_queues_have_a_bound(void **state)
{
	uint32_t sent = 0;

	(void)state;
	sender->messenger->send_queues.most = 100000;
	for (;; sent++) {
		fill_bytes(bytes, 1000, sent);
		if (node_send(sender, busy, bytes, 1000, sent, FI_TAGGED | FI_INJECT, NULL) != 0)
			break;
		assert_true(sent < 1000);
	}
	assert_true(sender->messenger->send_queues.bytes <= 100000);
	assert_true(sender->messenger->send_queues.bytes > 98000);
	step_others(100);
	assert_int_equal(node_send(sender, busy, bytes, 1000, sent, FI_TAGGED | FI_INJECT, NULL), -EAGAIN);
	assert_int_equal(notices, 1);
	assert_non_null(strstr(noticed, "VICINAL_SEND_QUEUE"));
	receive_all(1000, sent);
	world_settle(&world);
	assert_int_equal(node_send(sender, busy, bytes, 1000, 0, FI_TAGGED | FI_INJECT, NULL), 0);
	receive_all(1000, 0);
	assert_int_equal(node_receive(busy, sender, target, 1000, 0, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &busy->receives);
	world_settle(&world);
	assert_int_equal(drain_completions(), sent + 1);
}

/* The sender does not run ahead of a peer that takes messages slowly. */
static void test_a_fast_sender_runs_no_further_ahead_than_that(void **state)
{
	(void)state;
	sender->messenger->send_queues.still = UINT64_MAX; /* a busy machine: take no peer for still */
	fill_bytes(bytes, 8, 0);
	for (uint32_t tag = 0; tag < 20000; tag++) {
		ssize_t result = 0;
		while ((result = node_send(sender, busy, bytes, 8, 0, FI_TAGGED | FI_INJECT, NULL)) ==
		       -EAGAIN)
			world_step(&world);
		assert_int_equal(result, 0);
		if (tag % 64 == 0)
			(void)messenger_progress(busy->messenger);
		assert_true(sender->messenger->send_queues.count <= SEND_QUEUE_FREE);
	}
	for (uint32_t tag = 0; tag < 20000; tag++) {
		assert_int_equal(node_receive(busy, sender, target, 8, 0, FI_TAGGED, NULL), 0);
		(void)world_await_good(&world, &busy->receives);
	}
	world_settle(&world);
	assert_int_equal(drain_completions(), 20000);
}

/*
 * Many messages wait because the peer stood still. When it goes on, a send waits for a few of them, not for
 * all.
 */
static void test_a_send_waits_for_few_of_many(void **state)
{
	struct send_queues *queues = &sender->messenger->send_queues;
	uint32_t accepted = 0;

	(void)state;
	fill_bytes(bytes, 8, 0);
	for (uint32_t tag = 0; tag < MANY; tag++)
		send_to_busy(bytes, 8, 0, FI_INJECT, tag < SEND_QUEUE_FREE);
	queues->still = UINT64_MAX; /* from here on the peer works */
	while (node_send(sender, busy, bytes, 8, 0, FI_TAGGED | FI_INJECT, NULL) == 0)
		accepted++;
	assert_true(accepted <= 1);
	uint32_t extra = accepted, before = queues->count;
	uint64_t gone = queues->gone;
	for (uint32_t round = 0; queues->count > SEND_QUEUE_FREE + 256; round++) {
		assert_true(round < MANY);
		(void)messenger_progress(busy->messenger);
		(void)messenger_progress(sender->messenger);
		while (node_send(sender, busy, bytes, 8, 0, FI_TAGGED | FI_INJECT, NULL) == 0)
			accepted++;
		assert_true(queues->count <= before);
		before = queues->count;
	}
	/* One send is accepted for two messages that are taken. */
	gone = queues->gone - gone;
	assert_true(gone > MANY / 3);
	assert_in_range(accepted - extra, gone / 3, gone * 2 / 3);
	for (uint32_t taken = 0; taken < MANY + accepted; taken++) {
		assert_int_equal(node_receive(busy, sender, target, 8, 0, FI_TAGGED, NULL), 0);
		(void)world_await_good(&world, &busy->receives);
	}
	world_settle(&world);
	assert_int_equal(drain_completions(), MANY + accepted);
}

/*
 * A send that was not injected completes with an error. An injected message is lost, like a message in a
 * ring.
 */
static void test_what_waits_ends_with_its_peer(void **state)
{
	enum { COUNT = 500 };
	uint32_t errors = 0;

	(void)state;
	for (uint32_t tag = 0; tag < COUNT; tag++) {
		assert_int_equal(node_send(sender, busy, bytes, 8, tag, FI_TAGGED, bytes), 0);
		const struct iovec piece = {bytes, 8};
		assert_int_equal(messenger_send(sender->messenger,
						&(struct send_request){
							.pieces = &piece,
							.count = 1,
							.length = 8,
							.to = world_peer(sender, busy),
							.flags = FI_TAGGED | FI_INJECT,
						}),
				 0);
	}
	uint32_t waiting = sender->messenger->send_queues.count;
	assert_true(waiting > COUNT);
	node_die(busy);
	step_others(100);
	transport_check_peers(sender->messenger->transport);
	step_others(100);
	for (; !completion_is_empty(&sender->sends); sender->sends.head++) {
		const struct completion *entry = completion_first(&sender->sends);
		assert_ptr_equal(entry->context, bytes);
		errors += entry->error != 0;
	}
	assert_int_equal(errors, waiting / 2);
	assert_int_equal(sender->sent.errors, waiting);
	assert_int_equal(sender->messenger->send_queues.count, 0);
	node_open(busy, world.region);
}

/* In one process nobody else makes progress for the peer: closing must not wait for it for ever. */
static void test_closing_waits_only_for_other_processes(void **state)
{
	struct node other;

	(void)state;
	node_open(&other, world.region);
	other.messenger->send_queues.most = SEND_QUEUE_BYTES;
	for (uint32_t tag = 0; tag < 500; tag++)
		assert_int_equal(node_send(&other, busy, bytes, 8, tag, FI_TAGGED | FI_INJECT, NULL), 0);
	assert_false(send_queues_owed(other.messenger));
	/* As the section of a member of another process would. */
	struct section_header *header = section_header(world.region, node_slot(busy));
	uint64_t own = shared_load_u64(&header->process);
	shared_store_u64(&header->process, own + 1);
	assert_true(send_queues_owed(other.messenger));
	shared_store_u64(&header->process, own);
	node_close(&other);
}

/* A caller that holds a lock asks repeatedly, and releases the lock in between. */
static void test_closing_can_be_asked_for_in_steps(void **state)
{
	struct node other;

	(void)state;
	node_open(&other, world.region);
	assert_int_equal(node_send(&other, busy, bytes, 8, 7, FI_TAGGED | FI_INJECT, NULL), 0);
	/* Each call returns at once: the peer has read nothing, and has as much time as it needs. */
	for (int step = 0; step < 3; step++) {
		(void)messenger_may_close(other.messenger);
		other.messenger->closing.leaves = false;
		other.messenger->closing.until = UINT64_MAX;
	}
	assert_false(messenger_may_close(other.messenger));
	assert_int_equal(node_receive(busy, &other, target, 8, 7, FI_TAGGED, NULL), 0);
	while (completion_is_empty(&busy->receives))
		world_step(&world);
	busy->receives.head++;
	world_settle(&world);
	assert_true(messenger_may_close(other.messenger));
	node_close(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sends_return_while_the_peer_takes_nothing, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_buffers_that_are_not_injected_wait_where_they_are,
						open_world, close_world),
		cmocka_unit_test_setup_teardown(test_a_message_waits_whole, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_others_are_sent_to_meanwhile, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_the_queues_have_a_bound, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_a_fast_sender_runs_no_further_ahead_than_that,
						open_world, close_world),
		cmocka_unit_test_setup_teardown(test_a_send_waits_for_few_of_many, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_what_waits_ends_with_its_peer, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_closing_waits_only_for_other_processes, open_world,
						close_world),
		cmocka_unit_test_setup_teardown(test_closing_can_be_asked_for_in_steps, open_world,
						close_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
