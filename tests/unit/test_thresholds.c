/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers with different thresholds. Each sends by its own thresholds, and every byte arrives at a receiver
 * that does not know them, whether receives or messages come first.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#define SECTION_BYTES (8U * 1024U * 1024U)
#define MESSAGES 24U
#define LONGEST (700U * 1024U)
#define PAIRS 40U

static struct world world;
static struct node *left = &world.nodes[0];
static struct node *right = &world.nodes[1];

/* Lengths at which protocols begin and end with some thresholds. */
static size_t draw_length(uint64_t *random)
{
	static const size_t edges[] = {0, 32, 48, 49, 104, 440, 441, 4096, 8192, 16384, 32768, 65536, 262144};
	size_t edge = edges[random_below(random, sizeof(edges) / sizeof(edges[0]))];

	switch (random_below(random, 4)) {
	case 0:
		return edge;
	case 1:
		return edge + 1;
	case 2:
		return edge > 0 ? edge - 1 : 0;
	default:
		return random_below(random, random_below(random, 8) == 0 ? LONGEST : 70000);
	}
}

/* An end of the range, or any value in it. */
static void draw_thresholds(uint64_t *random, struct thresholds *thresholds)
{
	for (uint32_t i = 0; i < THRESHOLDS; i++) {
		const struct threshold *each = &threshold_table[i];
		uint32_t value = each->least + (uint32_t)random_below(random, each->most - each->least + 1);
		char text[16];

		switch (random_below(random, 4)) {
		case 0:
			value = each->least;
			break;
		case 1:
			value = each->most;
			break;
		default:
			break;
		}
		(void)snprintf(text, sizeof(text), "%u", value);
		assert_true(threshold_set(thresholds, each, text));
	}
}

struct flow {
	struct node *from;
	struct node *to;
	unsigned char *sent[MESSAGES];
	unsigned char *received[MESSAGES];
	size_t lengths[MESSAGES];
	uint32_t next;
	uint32_t posted;
	uint32_t arrived;
	uint32_t done;
};

static void open_flow(struct flow *flow, struct node *from, struct node *to, uint64_t *random)
{
	*flow = (struct flow){.from = from, .to = to};
	for (uint32_t i = 0; i < MESSAGES; i++) {
		flow->lengths[i] = draw_length(random);
		flow->sent[i] = malloc(flow->lengths[i] + 1);
		flow->received[i] = calloc(1, flow->lengths[i] + 1);
		assert_non_null(flow->sent[i]);
		assert_non_null(flow->received[i]);
		fill_bytes(flow->sent[i], flow->lengths[i], i);
	}
}

static void post_one(struct flow *flow)
{
	uint32_t i = flow->posted++;

	assert_int_equal(node_receive(flow->to, flow->from, flow->received[i], flow->lengths[i], i, FI_TAGGED,
				      flow->received[i]),
			 0);
}

static void send_one(struct flow *flow)
{
	uint32_t i = flow->next;
	ssize_t result =
		node_send(flow->from, flow->to, flow->sent[i], flow->lengths[i], i, FI_TAGGED, flow->sent[i]);

	if (result == 0)
		flow->next++;
	else
		assert_int_equal(result, -EAGAIN);
}

static void take_completions(struct flow *flow)
{
	while (!completion_is_empty(&flow->from->sends)) {
		assert_int_equal(completion_first(&flow->from->sends)->error, 0);
		flow->from->sends.head++;
		flow->done++;
	}
	while (!completion_is_empty(&flow->to->receives)) {
		const struct completion *entry = completion_first(&flow->to->receives);
		assert_int_equal(entry->error, 0);
		assert_true(entry->tag < MESSAGES);
		assert_int_equal(entry->length, flow->lengths[entry->tag]);
		assert_bytes(flow->received[entry->tag], entry->length, entry->tag);
		flow->to->receives.head++;
		flow->arrived++;
	}
}

static bool is_over(const struct flow *flow)
{
	return flow->arrived == MESSAGES && flow->done == MESSAGES;
}

static void run_pair(uint64_t *random, enum single_copy_policy policy)
{
	struct flow flows[2];

	world_open(&world, 2, 4, SECTION_BYTES);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(single_copy_open(world.nodes[i].messenger, policy), 0);
		draw_thresholds(random, &world.nodes[i].messenger->thresholds);
	}
	open_flow(&flows[0], left, right, random);
	open_flow(&flows[1], right, left, random);
	for (uint32_t round = 0; !is_over(&flows[0]) || !is_over(&flows[1]); round++) {
		assert_true(round < WORLD_PATIENCE);
		struct flow *flow = &flows[random_below(random, 2)];
		/* As often before the message as after it. */
		if (flow->posted < MESSAGES && random_below(random, 2) == 0)
			post_one(flow);
		else if (flow->next < MESSAGES)
			send_one(flow);
		world_step(&world);
		take_completions(&flows[0]);
		take_completions(&flows[1]);
	}
	world_close(&world);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t k = 0; k < MESSAGES; k++) {
			free(flows[i].sent[k]);
			free(flows[i].received[k]);
		}
}

static void test_any_two_work_together(void **state)
{
	uint64_t random = 20261;

	(void)state;
	for (uint32_t i = 0; i < PAIRS; i++)
		run_pair(&random, i % 2 == 0 ? SINGLE_COPY_OFF : SINGLE_COPY_ON);
}

/* The slot that was pushed last. */
static uint64_t last_control(void)
{
	const struct ring_out *ring = &world_peer(left, right)->peer.out;

	return shared_load_u64(&ring->slots[(ring->position - 1) & ring->mask].control);
}

/* The kind of a slot, and the bytes that it stands for. */
struct seen {
	enum wire_kind kind;
	uint32_t length;
};

static void send_and_see(size_t length, const struct seen *seen)
{
	unsigned char *bytes = calloc(1, length);

	assert_non_null(bytes);
	assert_int_equal(node_send(left, right, bytes, length, 0, FI_TAGGED, NULL), 0);
	assert_int_equal(control_kind(last_control()), seen->kind);
	assert_int_equal(control_length(last_control()), seen->length);
	assert_int_equal(node_receive(right, left, bytes, length, 0, FI_TAGGED, NULL), 0);
	(void)world_await_good(&world, &right->receives);
	(void)world_await_good(&world, &left->sends);
	free(bytes);
}

/* The last slot of a message of `length` is `usual`, and `then` with the threshold at `value`. */
static void assert_decides(const char *key, const char *value, size_t length, struct seen usual,
			   struct seen then)
{
	bool found = false;

	world_open(&world, 2, 4, SECTION_BYTES);
	send_and_see(length, &usual);
	for (uint32_t i = 0; i < THRESHOLDS; i++)
		if (strcmp(threshold_table[i].key, key) == 0)
			found = threshold_set(&left->messenger->thresholds, &threshold_table[i], value);
	assert_true(found);
	send_and_see(length, &then);
	world_close(&world);
}

static void test_they_decide(void **state)
{
	(void)state;
	assert_decides("short_bytes", "48", 200, (struct seen){WIRE_CONTINUATION, 0},
		       (struct seen){WIRE_EAGER, 200});
	assert_decides("short_bytes", "48", 48, (struct seen){WIRE_INLINE, 48},
		       (struct seen){WIRE_INLINE, 48});
	assert_decides("eager_bytes", "16K", 16384, (struct seen){WIRE_EARLY, 4096},
		       (struct seen){WIRE_EAGER, 16384});
	assert_decides("piece_bytes", "4K", 40000, (struct seen){WIRE_EARLY, 9856},
		       (struct seen){WIRE_EARLY, 4096});
}

/* The number of large chunks in use for a message whose receiver stopped after its CLEAR. */
static void assert_in_flight(uint32_t pieces)
{
	const size_t length = 2UL * LONGEST;
	unsigned char *bytes = calloc(2, length);

	assert_non_null(bytes);
	assert_int_equal(node_receive(right, left, bytes + length, length, 0, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(left, right, bytes, length, 0, FI_TAGGED, NULL), 0);
	(void)messenger_progress(right->messenger);
	for (uint32_t i = 0; i < 100; i++)
		(void)messenger_progress(left->messenger);
	assert_int_equal(world_peer(left, right)->peer.account.outstanding_of[CHUNK_CLASS_LARGE], pieces);
	(void)world_await_good(&world, &right->receives);
	(void)world_await_good(&world, &left->sends);
	free(bytes);
}

static void test_pieces_in_flight(void **state)
{
	(void)state;
	world_open(&world, 2, 4, SECTION_BYTES);
	/* Connected in both directions: each polls the other's ring at once. */
	send_and_see(1 << 20, &(struct seen){WIRE_EARLY, CHUNK_MEDIUM});
	assert_in_flight(left->messenger->thresholds.pieces_in_flight);
	left->messenger->thresholds.pieces_in_flight = 3;
	assert_in_flight(3);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_two_work_together),
		cmocka_unit_test(test_they_decide),
		cmocka_unit_test(test_pieces_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
