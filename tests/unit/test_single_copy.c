/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages copied once: through the kernel between private buffers, and in the region. The nodes of a world
 * share a process, and the kernel copies between them as between processes.
 */
#include "world.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SECTION_BYTES (32U * 1024U * 1024U)
#define HEAP_BYTES (8U * 1024U * 1024U)
#define LENGTH 700001U

static struct world world;
static struct node *left = &world.nodes[0];
static struct node *right = &world.nodes[1];

/* A world on a region with or without heaps. Only the tests allocate from the heaps. */
static void open_with(enum single_copy_policy policy, bool heaps)
{
	struct region *region = world_region_with_heaps(4, SECTION_BYTES, heaps ? HEAP_BYTES : 0);

	world = (struct world){.count = 2, .region = region};
	node_open(left, region);
	node_open(right, region);
	assert_int_equal(single_copy_open(left->messenger, policy), 0);
	assert_int_equal(single_copy_open(right->messenger, policy), 0);
	/* Connect both directions, so that the ends find each other at once. */
	assert_int_equal(node_send(left, right, "x", 1, 0, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(right, left, "y", 1, 0, FI_TAGGED, NULL), 0);
	char byte = 0;
	assert_int_equal(node_receive(right, left, &byte, 1, 0, FI_TAGGED, NULL), 0);
	assert_int_equal(node_receive(left, right, &byte, 1, 0, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &left->sends);
	(void)world_await_good(&world, &right->sends);
	(void)world_await_good(&world, &left->receives);
	(void)world_await_good(&world, &right->receives);
}

/* The beginning of a node's heap. */
static unsigned char *heap_of(const struct node *node)
{
	return node->messenger->transport->heap->base;
}

static int open_world(void **state)
{
	(void)state;
	open_with(SINGLE_COPY_ON, false);
	return 0;
}

/* Nothing is left: every transfer is closed and back in the table. */
static int close_world(void **state)
{
	(void)state;
	world_settle(&world);
	for (uint32_t i = 0; i < world.count; i++) {
		const struct messenger *messenger = world.nodes[i].messenger;
		if (messenger == NULL || messenger->single == NULL)
			continue;
		assert_int_equal(messenger->copying, 0);
		assert_int_equal(messenger->single->free_count, REGION_TRANSFERS);
		for (uint32_t index = 0; index < REGION_TRANSFERS; index++)
			assert_int_equal(shared_load_u64(&section_transfer(world.region,
									   node_slot(&world.nodes[i]), index)
								  ->id),
					 0);
	}
	world_close(&world);
	return 0;
}

/* The copy method in the last answer of `right`, read from its ring to `left`. */
static uint32_t last_method(void)
{
	const struct ring_out *ring = &world_peer(right, left)->peer.out;

	for (uint32_t back = 1; back <= ring->mask; back++) {
		const struct ring_slot *slot = &ring->slots[(ring->position - back) & ring->mask];
		struct wire_clear clear;
		if (control_kind(shared_load_u64(&slot->control)) != WIRE_CLEAR)
			continue;
		shared_copy_in(&clear, slot->payload, sizeof(clear));
		return clear.method;
	}
	fail_msg("there was no answer");
	return 0;
}

struct lengths {
	size_t sent;
	size_t room;
};

/* Send one message from left to right. Both buffers are overwritten as soon as they are ours again. */
static void exchange(unsigned char *from, unsigned char *to, const struct lengths *lengths, bool late,
		     uint64_t flags)
{
	static uint64_t seed;
	size_t fits = lengths->sent < lengths->room ? lengths->sent : lengths->room;
	bool sent = false;
	bool received = false;
	unsigned char *copy = malloc(lengths->room + 1);

	assert_non_null(copy);
	fill_bytes(from, lengths->sent, ++seed);
	memset(to, 0xee, lengths->room);
	if (!late)
		assert_int_equal(node_receive(right, left, to, lengths->room, 5, FI_TAGGED, to), 0);
	assert_int_equal(node_send(left, right, from, lengths->sent, 5, FI_TAGGED | flags, from), 0);
	if (late) {
		world_settle(&world);
		if (lengths->sent > 4UL * CHUNK_LARGE)
			assert_true(completion_is_empty(&left->sends));
		assert_int_equal(node_receive(right, left, to, lengths->room, 5, FI_TAGGED, to), 0);
	}
	for (uint32_t round = 0; !sent || !received; round++) {
		assert_true(round < WORLD_PATIENCE);
		world_step(&world);
		if (!completion_is_empty(&left->sends)) {
			struct completion entry = *completion_first(&left->sends);
			left->sends.head++;
			assert_int_equal(entry.error, 0);
			assert_ptr_equal(entry.context, from);
			memset(from, 0x11, lengths->sent);
			sent = true;
		}
		if (!completion_is_empty(&right->receives)) {
			struct completion entry = *completion_first(&right->receives);
			right->receives.head++;
			assert_int_equal(entry.error, fits < lengths->sent ? FI_ETRUNC : 0);
			assert_int_equal(entry.length, fits);
			memcpy(copy, to, fits);
			memset(to, 0x22, lengths->room);
			received = true;
		}
	}
	assert_bytes(copy, fits, seed);
	world_settle(&world);
	for (size_t i = 0; i < lengths->room; i++)
		if (to[i] != 0x22)
			fail_msg("byte %zu was written after the receive had ended", i);
	free(copy);
}

static void exchange_many(unsigned char *from, unsigned char *to, uint32_t method)
{
	static const struct lengths cases[] = {
		{LENGTH, LENGTH},   {65537, 65537},       {65537, 2000000},
		{2000000, 2000000}, {LENGTH, LENGTH - 1}, {LENGTH, 200000},
		{100000, 99999},    {131072, 131072},     {1U << 20, 1U << 20},
	};

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		exchange(from, to, &cases[i / 2], i % 2 != 0, i % 3 == 0 ? FI_DELIVERY_COMPLETE : 0);
		assert_int_equal(last_method(), method);
	}
	/* Truncated to the early bytes, or to nothing: nothing is left to copy. */
	exchange(from, to, &(struct lengths){LENGTH, 0}, false, 0);
	exchange(from, to, &(struct lengths){LENGTH, 10}, true, 0);
	exchange(from, to, &(struct lengths){LENGTH, 0}, true, FI_DELIVERY_COMPLETE);
	/* Short messages are copied as usual. */
	exchange(from, to, &(struct lengths){65536, 65536}, false, 0);
	exchange(from, to, &(struct lengths){100, 100}, false, 0);
	exchange(from, to, &(struct lengths){0, 0}, true, 0);
}

static void test_between_private_buffers(void **state)
{
	unsigned char *from = malloc(2000000);
	unsigned char *to = malloc(2000000);

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	exchange_many(from, to, WIRE_BY_PROCESS);
	free(from);
	free(to);
}

static void test_buffers_in_the_region(void **state)
{
	unsigned char *private = malloc(2000000);

	(void)state;
	assert_non_null(private);
	for (int both = 0; both < 3; both++) {
		open_with(SINGLE_COPY_AUTO, true);
		/* From the first message the sender learns that the receiver accepts the copy. */
		exchange(both != 1 ? heap_of(left) : private, both != 2 ? heap_of(right) : private,
			 &(struct lengths){LENGTH, LENGTH}, false, 0);
		exchange_many(both != 1 ? heap_of(left) + 4096 : private,
			      both != 2 ? heap_of(right) : private, WIRE_BY_REGION);
		(void)close_world(state);
	}
	free(private);
}

static void test_off_is_off(void **state)
{
	unsigned char *from = malloc(2000000);
	unsigned char *to = malloc(2000000);

	assert_non_null(from);
	assert_non_null(to);
	open_with(SINGLE_COPY_OFF, false);
	exchange(from, to, &(struct lengths){LENGTH, LENGTH}, false, 0);
	assert_int_equal(last_method(), WIRE_BY_PIECES);
	(void)close_world(state);
	/* An end that does not want single copies does not hinder an end that does. */
	world_open(&world, 2, 4, SECTION_BYTES);
	assert_int_equal(single_copy_open(left->messenger, SINGLE_COPY_ON), 0);
	exchange(from, to, &(struct lengths){LENGTH, LENGTH}, false, 0);
	assert_int_equal(last_method(), WIRE_BY_PIECES);
	(void)close_world(state);
	free(from);
	free(to);
}

/* Both ends copy a part. */
static void test_both_ends_copy(void **state)
{
	unsigned char *from = malloc(LENGTH);
	unsigned char *to = malloc(LENGTH);

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	fill_bytes(from, LENGTH, 1);
	assert_int_equal(node_receive(right, left, to, LENGTH, 5, FI_TAGGED, to), 0);
	assert_int_equal(node_send(left, right, from, LENGTH, 5, FI_TAGGED, from), 0);
	bool pushed = false;
	bool pulled = false;
	for (uint32_t round = 0; completion_is_empty(&right->receives) && round < 1000; round++) {
		world_step(&world);
		for (uint32_t i = 0; i < REGION_TRANSFERS; i++) {
			const struct single_copy *sender = &left->messenger->single->copies[i];
			const struct single_copy *receiver = &right->messenger->single->copies[i];
			pushed = pushed || (sender->method == WIRE_BY_PROCESS && sender->mine < LENGTH);
			pulled = pulled ||
				 (receiver->method == WIRE_BY_PROCESS && receiver->mine > receiver->first);
		}
	}
	assert_true(pushed && pulled);
	(void)world_await_good(&world, &right->receives);
	(void)world_await_good(&world, &left->sends);
	assert_bytes(to, LENGTH, 1);
	free(from);
	free(to);
}

/* Buffers of several pieces at both ends, divided at different offsets. */
static void test_buffers_of_several_pieces(void **state)
{
	unsigned char *from = malloc(LENGTH);
	unsigned char *to = malloc(LENGTH);
	const size_t cuts[2][5] = {{0, 1, 70000, 70001, LENGTH}, {0, 300000, 300000, 555555, LENGTH}};
	struct iovec pieces[2][4];

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	fill_bytes(from, LENGTH, 3);
	for (size_t i = 0; i < 4; i++) {
		pieces[0][i] = (struct iovec){from + cuts[0][i], cuts[0][i + 1] - cuts[0][i]};
		pieces[1][i] = (struct iovec){to + cuts[1][i], cuts[1][i + 1] - cuts[1][i]};
	}
	assert_int_equal(messenger_receive(right->messenger,
					   &(struct receive_request){.pieces = pieces[1],
								     .count = 4,
								     .source = MATCH_ANY_SOURCE,
								     .tag = 5,
								     .flags = FI_TAGGED | FI_COMPLETION}),
			 0);
	assert_int_equal(messenger_send(left->messenger,
					&(struct send_request){.pieces = pieces[0],
							       .count = 4,
							       .length = LENGTH,
							       .to = world_peer(left, right),
							       .tag = 5,
							       .flags = FI_TAGGED | FI_COMPLETION}),
			 0);
	(void)world_await_good(&world, &right->receives);
	(void)world_await_good(&world, &left->sends);
	assert_int_equal(last_method(), WIRE_BY_PROCESS);
	assert_bytes(to, LENGTH, 3);
	free(from);
	free(to);
}

/*
 * A discarded message is not copied at all, and its send completes. A claimed message is copied when it is
 * received.
 */
static void test_discarded_and_claimed(void **state)
{
	unsigned char *from = malloc(LENGTH);
	unsigned char *to = malloc(LENGTH);
	struct receive_request request = {.source = MATCH_ANY_SOURCE, .tag = 5, .context = to};

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	for (int claims = 0; claims < 2; claims++) {
		fill_bytes(from, LENGTH, 9);
		assert_int_equal(node_send(left, right, from, LENGTH, 5, FI_TAGGED, from), 0);
		world_settle(&world);
		request.flags =
			FI_PEEK | FI_TAGGED | FI_COMPLETION | (claims ? (uint64_t)FI_CLAIM : FI_DISCARD);
		assert_int_equal(messenger_receive(right->messenger, &request), 0);
		(void)world_await_good(&world, &right->receives);
		if (claims) {
			world_settle(&world);
			assert_true(completion_is_empty(&left->sends));
			const struct iovec piece = {to, LENGTH};
			struct receive_request taking = request;
			taking.pieces = &piece;
			taking.count = 1;
			taking.flags = FI_CLAIM | FI_TAGGED | FI_COMPLETION;
			assert_int_equal(messenger_receive(right->messenger, &taking), 0);
			(void)world_await_good(&world, &right->receives);
			assert_bytes(to, LENGTH, 9);
		}
		(void)world_await_good(&world, &left->sends);
	}
	free(from);
	free(to);
}

static void test_parts_of_a_buffer_for_several(void **state)
{
	unsigned char *from = malloc(2UL * LENGTH);
	unsigned char *to = malloc(3UL * LENGTH);

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	fill_bytes(from, LENGTH, 1);
	fill_bytes(from + LENGTH, LENGTH, 2);
	assert_int_equal(node_receive(right, NULL, to, 3UL * LENGTH, 0, FI_MSG | FI_MULTI_RECV, to), 0);
	assert_int_equal(node_send(left, right, from, LENGTH, 0, FI_MSG, NULL), 0);
	assert_int_equal(node_send(left, right, from + LENGTH, LENGTH, 0, FI_MSG, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct completion entry = world_await_good(&world, &right->receives);
		assert_int_equal(entry.length, LENGTH);
		assert_bytes(entry.buffer, LENGTH, entry.buffer == to ? 1 : 2);
		(void)world_await_good(&world, &left->sends);
	}
	assert_int_equal(last_method(), WIRE_BY_PROCESS);
	assert_int_equal(messenger_cancel(right->messenger, to), 0);
	assert_int_equal(world_await(&world, &right->receives).error, FI_ECANCELED);
	free(from);
	free(to);
}

/* More messages at once than transfers: the rest goes in pieces. */
static void test_more_messages_than_transfers(void **state)
{
	const uint32_t count = REGION_TRANSFERS + 20;
	const size_t length = 70000;
	unsigned char *from = malloc(count * length);
	unsigned char *to = malloc(count * length);

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	for (uint32_t i = 0; i < count; i++) {
		fill_bytes(from + i * length, length, i);
		assert_int_equal(node_send(left, right, from + i * length, length, i, FI_TAGGED, NULL), 0);
		world_step(&world);
	}
	assert_int_equal(left->messenger->single->free_count, 0);
	for (uint32_t i = count; i-- > 0;)
		assert_int_equal(node_receive(right, left, to + i * length, length, i, FI_TAGGED, NULL), 0);
	for (uint32_t i = 0; i < count; i++) {
		(void)world_await_good(&world, &right->receives);
		(void)world_await_good(&world, &left->sends);
	}
	for (uint32_t i = 0; i < count; i++)
		assert_bytes(to + i * length, length, i);
	free(from);
	free(to);
}

/* The receiver cannot read the sender's buffer: the message goes in pieces, and so do later ones. */
static void test_memory_that_the_kernel_will_not_copy(void **state)
{
	unsigned char *to = malloc(LENGTH);
	unsigned char *from = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_non_null(to);
	assert_ptr_not_equal(from, MAP_FAILED);
	exchange(from, to, &(struct lengths){LENGTH, LENGTH}, false, 0);
	assert_int_equal(last_method(), WIRE_BY_PROCESS);
	fill_bytes(from, LENGTH, 4);
	assert_int_equal(node_send(left, right, from, LENGTH, 5, FI_TAGGED, from), 0);
	world_settle(&world);
	assert_int_equal(node_receive(right, left, to, LENGTH, 5, FI_TAGGED, to), 0);
	/* The receiver's record of the sender's buffer points nowhere. */
	for (uint32_t i = 0; i < REGION_TRANSFERS; i++)
		right->messenger->single->copies[i].there.pieces[0].iov_base = NULL;
	(void)world_await_good(&world, &right->receives);
	(void)world_await_good(&world, &left->sends);
	assert_bytes(to, LENGTH, 4);
	exchange(from, to, &(struct lengths){LENGTH, LENGTH}, false, FI_DELIVERY_COMPLETE);
	assert_int_equal(last_method(), WIRE_BY_PIECES);
	(void)munmap(from, LENGTH);
	free(to);
}

/* If one end dies in the middle, the copy ends with an error at the other, and nothing stays open. */
static void test_an_end_that_dies(void **state)
{
	unsigned char *from = malloc(LENGTH);
	unsigned char *to = malloc(LENGTH);

	assert_non_null(from);
	assert_non_null(to);
	for (int round = 0; round < 4; round++) {
		struct node *dies = round % 2 == 0 ? left : right;
		struct node *stays = round % 2 == 0 ? right : left;
		if (round >= 2)
			open_with(SINGLE_COPY_ON, true);
		unsigned char *source = round >= 2 ? heap_of(left) : from;
		unsigned char *target = round >= 2 ? heap_of(right) : to;
		fill_bytes(source, LENGTH, (uint64_t)round);
		assert_int_equal(node_receive(right, left, target, LENGTH, 5, FI_TAGGED, NULL), 0);
		assert_int_equal(node_send(left, right, source, LENGTH, 5, FI_TAGGED, NULL), 0);
		/* The receiver begins. The sender gets the answer and begins. */
		(void)messenger_progress(right->messenger);
		(void)messenger_progress(left->messenger);
		assert_int_equal(last_method(), round >= 2 ? WIRE_BY_REGION : WIRE_BY_PROCESS);
		assert_true(completion_is_empty(&left->sends) && completion_is_empty(&right->receives));
		node_die(dies);
		world_check_peers(&world);
		struct completion entry =
			world_await(&world, stays == left ? &left->sends : &right->receives);
		/* The dead sender's bytes are still there if they are in the region. */
		assert_int_equal(entry.error, round == 2 ? 0 : ECONNRESET);
		if (round == 2)
			assert_bytes(target, LENGTH, 2);
		(void)close_world(state);
		if (round == 0 || round == 3)
			open_with(SINGLE_COPY_ON, false); /* for the next round, or for the teardown */
	}
	free(from);
	free(to);
}

/* A receive that fails while its sender writes ends only after the write. */
static void test_a_failed_receive_waits_for_the_last_write(void **state)
{
	unsigned char *from = malloc(LENGTH);
	unsigned char *to = malloc(LENGTH);

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	assert_int_equal(node_receive(right, left, to, LENGTH, 5, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(left, right, from, LENGTH, 5, FI_TAGGED, NULL), 0);
	(void)messenger_progress(right->messenger);
	/* The sender between its claim and the end of its copy. */
	struct process_line *line = &left->messenger->single->offer.record->transfers[0].line;
	assert_int_not_equal(line->id, 0);
	line->claimed = LENGTH - 1000;
	transport_fail(right->messenger->transport, &world_peer(right, left)->peer, -EPROTO,
		       "the test wants it");
	for (int i = 0; i < 1000; i++)
		(void)messenger_progress(right->messenger);
	assert_true(completion_is_empty(&right->receives));
	assert_int_equal(right->messenger->single->offer.record->transfers[0].line.id, 0);
	line->claimed = line->done;
	for (int i = 0; i < 1000; i++)
		(void)messenger_progress(right->messenger);
	assert_int_equal(world_await(&world, &right->receives).error, EPROTO);
	/* The sender finds its ring closed. */
	world_check_peers(&world);
	assert_int_equal(world_await(&world, &left->sends).error, ECONNABORTED);
	free(from);
	free(to);
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_between_private_buffers),
		cmocka_unit_test(test_buffers_in_the_region),
		cmocka_unit_test(test_off_is_off),
		WITH_WORLD(test_both_ends_copy),
		WITH_WORLD(test_buffers_of_several_pieces),
		WITH_WORLD(test_discarded_and_claimed),
		WITH_WORLD(test_parts_of_a_buffer_for_several),
		WITH_WORLD(test_more_messages_than_transfers),
		WITH_WORLD(test_memory_that_the_kernel_will_not_copy),
		WITH_WORLD(test_an_end_that_dies),
		WITH_WORLD(test_a_failed_receive_waits_for_the_last_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
