/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers: every size at which a protocol begins or ends, received before and after arrival, with data,
 * acknowledged, in pieces. Every byte is compared.
 */
#include "world.h"

#include <stdlib.h>

#define TAG UINT64_C(0xfeed0000beef0001)

static struct world world;

static int open_world(void **state)
{
	(void)state;
	world_open(&world, 3, 8, WORLD_SECTION_BYTES);
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	world_close(&world);
	return 0;
}

struct transfer {
	size_t length;
	size_t send_pieces;
	size_t receive_pieces;
	bool expected; /* the receive is posted first */
	bool any_source;
	uint64_t flags; /* of the send */
};

/* Divide `bytes` into pieces of unequal length. One of four pieces is empty. */
static size_t cut(struct iovec *pieces, size_t count, unsigned char *bytes, size_t length)
{
	static const size_t weights[5][4] = {{0}, {1}, {1, 2}, {3, 1, 2}, {2, 0, 1, 5}};
	size_t total = 0;
	size_t done = 0;

	for (size_t i = 0; i < count; i++)
		total += weights[count][i];
	for (size_t i = 0; i < count; i++) {
		size_t part = i + 1 == count ? length - done : length * weights[count][i] / total;
		pieces[i] = (struct iovec){bytes + done, part};
		done += part;
	}
	return count;
}

static void post(const struct transfer *transfer, unsigned char *bytes)
{
	struct iovec pieces[4];
	struct node *from = &world.nodes[0];
	struct node *at = &world.nodes[1];

	assert_int_equal(
		messenger_receive(
			at->messenger,
			&(struct receive_request){
				.pieces = pieces,
				.count = cut(pieces, transfer->receive_pieces, bytes, transfer->length),
				.source = transfer->any_source ? MATCH_ANY_SOURCE
							       : world_peer(at, from)->peer.source,
				.tag = TAG,
				.context = bytes,
				.flags = FI_TAGGED | FI_COMPLETION,
			}),
		0);
}

static void send_it(const struct transfer *transfer, unsigned char *bytes)
{
	struct iovec pieces[4];
	const struct send_request request = {
		.pieces = pieces,
		.count = cut(pieces, transfer->send_pieces, bytes, transfer->length),
		.length = transfer->length,
		.to = world_peer(&world.nodes[0], &world.nodes[1]),
		.tag = TAG,
		.data = UINT64_C(0x1122334455667788) + transfer->length,
		.context = bytes,
		.flags = transfer->flags | FI_TAGGED | FI_COMPLETION,
	};

	assert_int_equal(messenger_send(world.nodes[0].messenger, &request), 0);
}

static void check_receive(const struct transfer *transfer, const unsigned char *bytes,
			  const struct completion *entry)
{
	const struct messenger *from = world.nodes[0].messenger;

	assert_ptr_equal(entry->context, bytes);
	assert_int_equal(entry->length, transfer->length);
	assert_int_equal(entry->tag, TAG);
	assert_int_equal(entry->flags, FI_RECV | FI_TAGGED | (transfer->flags & FI_REMOTE_CQ_DATA));
	if (transfer->flags & FI_REMOTE_CQ_DATA)
		assert_int_equal(entry->data, UINT64_C(0x1122334455667788) + transfer->length);
	assert_int_equal(entry->source, (uint64_t)from->transport->attachments[0].member->epoch << 32 |
						from->transport->attachments[0].member->slot);
	assert_bytes(bytes, transfer->length, transfer->length);
}

static void run(const struct transfer *transfer)
{
	/* Blocks of exactly this length, so that a sanitizer sees a byte beside. */
	unsigned char *source = malloc(transfer->length > 0 ? transfer->length : 1);
	unsigned char *target = calloc(1, transfer->length > 0 ? transfer->length : 1);
	struct node *sender = &world.nodes[0];
	struct node *receiver = &world.nodes[1];
	bool acknowledged = (transfer->flags & FI_DELIVERY_COMPLETE) != 0;

	assert_non_null(source);
	assert_non_null(target);
	fill_bytes(source, transfer->length, transfer->length);
	if (transfer->expected)
		post(transfer, target);
	send_it(transfer, source);
	if (!transfer->expected) {
		world_settle(&world);
		assert_true(completion_is_empty(&receiver->receives));
		/* Delivery is not complete before a receive is posted. */
		if (acknowledged)
			assert_true(completion_is_empty(&sender->sends));
		post(transfer, target);
	}
	struct completion received = world_await_good(&world, &receiver->receives);
	check_receive(transfer, target, &received);
	struct completion sent = world_await_good(&world, &sender->sends);
	assert_ptr_equal(sent.context, source);
	assert_int_equal(sent.flags, FI_SEND | FI_TAGGED);
	assert_true(completion_is_empty(&sender->sends));
	assert_true(completion_is_empty(&receiver->receives));
	free(source);
	free(target);
}

static void run_variants(size_t length)
{
	static const uint64_t flags[] = {0, FI_REMOTE_CQ_DATA, FI_DELIVERY_COMPLETE,
					 FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE};
	size_t shapes = length > 300000 ? 2 : 4;

	for (size_t flag = 0; flag < 4; flag++)
		for (size_t pieces = 1; pieces <= shapes; pieces++)
			for (size_t order = 0; order < 4; order++)
				run(&(struct transfer){
					.length = length,
					.send_pieces = pieces,
					.receive_pieces = 1 + (pieces + order) % 4,
					.expected = order & 1,
					.any_source = order & 2,
					.flags = flags[flag],
				});
}

static void test_small_sizes(void **state)
{
	(void)state;
	for (size_t length = 0; length <= WIRE_SHORT_BYTES + 2; length++)
		if (length <= 66 || length % 56 < 3 || length % 56 > 53 || length >= WIRE_SHORT_BYTES - 18)
			run_variants(length);
}

static void test_sizes_around_chunks(void **state)
{
	static const size_t sizes[] = {1000, 2048, CHUNK_SMALL, CHUNK_MEDIUM, CHUNK_LARGE};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t length = sizes[i] - 1; length <= sizes[i] + 1; length++)
			run_variants(length);
}

static void test_large_sizes(void **state)
{
	(void)state;
	for (size_t count = 2; count <= 5; count++)
		for (size_t length = count * CHUNK_MEDIUM - 1; length <= count * CHUNK_MEDIUM + 1; length++)
			run_variants(length);
	for (size_t length = (1U << 20) - 1; length <= (1U << 20) + 1; length++)
		run_variants(length);
	run_variants(3 * CHUNK_LARGE - 64);
	run_variants(WIRE_EARLY_PIECES * CHUNK_LARGE + 1);
}

static void test_untagged_and_tagged_messages_do_not_meet(void **state)
{
	unsigned char tagged[8] = {0};
	unsigned char untagged[8] = {0};

	(void)state;
	assert_int_equal(node_receive(&world.nodes[1], NULL, tagged, 8, 1, FI_TAGGED, tagged), 0);
	assert_int_equal(node_send(&world.nodes[0], &world.nodes[1], "untagged", 8, 1, FI_MSG, NULL), 0);
	world_settle(&world);
	assert_true(completion_is_empty(&world.nodes[1].receives));
	assert_int_equal(node_receive(&world.nodes[1], NULL, untagged, 8, 9, FI_MSG, untagged), 0);
	assert_ptr_equal(world_await_good(&world, &world.nodes[1].receives).context, untagged);
	assert_memory_equal(untagged, "untagged", 8);
	assert_int_equal(node_send(&world.nodes[0], &world.nodes[1], "tagged !", 8, 1, FI_TAGGED, NULL), 0);
	assert_ptr_equal(world_await_good(&world, &world.nodes[1].receives).context, tagged);
	assert_memory_equal(tagged, "tagged !", 8);
}

static void test_injected_sends_complete_in_counters_alone(void **state)
{
	unsigned char bytes[MESSENGER_INJECT_BYTES + 1];
	unsigned char target[MESSENGER_INJECT_BYTES];
	const struct node *to = &world.nodes[1];

	(void)state;
	fill_bytes(bytes, sizeof(bytes), 3);
	const struct iovec piece = {bytes, MESSENGER_INJECT_BYTES};
	struct send_request request = {
		.pieces = &piece,
		.count = 1,
		.length = MESSENGER_INJECT_BYTES,
		.to = world_peer(&world.nodes[0], to),
		.tag = TAG,
		.flags = FI_TAGGED | FI_INJECT,
	};
	assert_int_equal(messenger_send(world.nodes[0].messenger, &request), 0);
	fill_bytes(bytes, sizeof(bytes), 4); /* the application may use the buffer again at once */
	assert_true(completion_is_empty(&world.nodes[0].sends));
	assert_int_equal(world.nodes[0].sent.value, 1);
	assert_int_equal(node_receive(&world.nodes[1], NULL, target, sizeof(target), TAG, FI_TAGGED, NULL),
			 0);
	(void)world_await_good(&world, &world.nodes[1].receives);
	assert_bytes(target, sizeof(target), 3);
	request.length = MESSENGER_INJECT_BYTES + 1;
	assert_int_equal(messenger_send(world.nodes[0].messenger, &request), -EINVAL);
}

/*
 * Many messages of all protocols in progress at once, in both directions and to oneself, each direction in
 * order.
 */
static void test_messages_stay_in_order_across_protocols(void **state)
{
	static const size_t sizes[] = {3, 70000, 48, 200, 5000, 0, 4096, 300000, 440, 16385, 1, 2049};
	enum { ROUNDS = 40, SIZES = sizeof(sizes) / sizeof(sizes[0]), NODES = 3 };
	static unsigned char sources[SIZES][300000];
	unsigned char *target = calloc(1, 300000);
	uint32_t sent[NODES][NODES] = {{0}};
	uint32_t received[NODES][NODES] = {{0}};
	uint32_t done = 0;

	(void)state;
	assert_non_null(target);
	for (size_t i = 0; i < SIZES; i++)
		fill_bytes(sources[i], sizes[i], i);
	for (uint32_t round = 0; done < NODES * NODES * ROUNDS; round++) {
		assert_true(round < WORLD_PATIENCE);
		for (uint32_t pair = 0; pair < NODES * NODES; pair++) {
			uint32_t from = pair / NODES;
			uint32_t to = pair % NODES;
			if (sent[from][to] < ROUNDS) {
				size_t i = (sent[from][to] + pair) % SIZES;
				ssize_t result = node_send(&world.nodes[from], &world.nodes[to], sources[i],
							   sizes[i], sent[from][to], FI_TAGGED, NULL);
				assert_true(result == 0 || result == -EAGAIN);
				sent[from][to] += result == 0;
			}
			world_step(&world);
			if (round % 3 != 0 || received[from][to] == sent[from][to])
				continue;
			/* Each tag is only found if the message before it came first. */
			uint32_t tag = received[from][to]++;
			assert_int_equal(node_receive(&world.nodes[to], &world.nodes[from], target, 300000,
						      tag, FI_TAGGED, NULL),
					 0);
			struct completion entry = world_await_good(&world, &world.nodes[to].receives);
			size_t i = (tag + pair) % SIZES;
			assert_int_equal(entry.tag, tag);
			assert_int_equal(entry.length, sizes[i]);
			assert_bytes(target, sizes[i], i);
			done++;
		}
	}
	free(target);
}

/* All messages have the same tag: only their order distinguishes them. */
static void test_messages_do_not_overtake_each_other(void **state)
{
	static const size_t sizes[] = {100000, 8, 3000, 64, 20000, 500, 8, 65536};
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
	static unsigned char source[100000];
	static unsigned char targets[SIZES][100000];

	(void)state;
	fill_bytes(source, sizeof(source), 1);
	for (uint32_t early = 0; early <= SIZES; early++) {
		for (size_t i = 0; i < early; i++)
			assert_int_equal(node_receive(&world.nodes[1], NULL, targets[i], sizeof(source), TAG,
						      FI_TAGGED, targets[i]),
					 0);
		for (size_t i = 0; i < SIZES; i++)
			assert_int_equal(node_send(&world.nodes[0], &world.nodes[1], source, sizes[i], TAG,
						   FI_TAGGED, NULL),
					 0);
		world_settle(&world);
		for (size_t i = early; i < SIZES; i++)
			assert_int_equal(node_receive(&world.nodes[1], NULL, targets[i], sizeof(source), TAG,
						      FI_TAGGED, targets[i]),
					 0);
		for (size_t i = 0; i < SIZES; i++) {
			struct completion entry = world_await_good(&world, &world.nodes[1].receives);
			size_t at = (size_t)((unsigned char(*)[100000])entry.context - targets);
			assert_int_equal(entry.length, sizes[at]);
			assert_bytes(targets[at], sizes[at], 1);
			(void)world_await_good(&world, &world.nodes[0].sends);
		}
	}
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_small_sizes),
		WITH_WORLD(test_sizes_around_chunks),
		WITH_WORLD(test_large_sizes),
		WITH_WORLD(test_untagged_and_tagged_messages_do_not_meet),
		WITH_WORLD(test_injected_sends_complete_in_counters_alone),
		WITH_WORLD(test_messages_stay_in_order_across_protocols),
		WITH_WORLD(test_messages_do_not_overtake_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
