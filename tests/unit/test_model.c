/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring, credit and chunks together, compared with a plain queue. A sender and a receiver take steps in random
 * order, and after each step both must agree with the queue. Seeds are fixed, and printed with a failure.
 */
#include "world.h"

#include <stdlib.h>

#define CONNECTION 0x2468aceeU
#define QUEUE 2048U
#define POOL_BYTES 400000U
#define NO_CHUNK UINT32_MAX

/* A sent message: its slots, and its chunk. */
struct item {
	uint64_t number;
	uint32_t slots;
	uint32_t chunk;
	uint32_t offset; /* in the sender's section */
	uint32_t length;
};

struct model {
	uint64_t random;
	uint64_t seed;
	/* sender */
	struct ring_out out;
	struct chunk_pool pool;
	struct chunk_account account;
	uint64_t sent;
	/* receiver */
	struct ring_in in;
	struct chunk_returns returns;
	/* the plain queue, and the chunks that the receiver still holds */
	struct item queue[QUEUE];
	uint32_t head;
	uint32_t tail;
	struct item held[REGION_CHUNKS_MAX];
	uint32_t held_count;
	uint32_t uncollected;
	struct region *region;
};

#define CHECK(model, condition) \
	do { \
		if (!(condition)) \
			fail_msg("seed %llu, message %llu: %s", (unsigned long long)(model)->seed, \
				 (unsigned long long)(model)->sent, #condition); \
	} while (0)

static void sender_pushes(struct model *model)
{
	struct item item = {
		.number = model->sent,
		.slots = 1 + random_below(&model->random, random_below(&model->random, 8) + 1),
		.chunk = NO_CHUNK,
	};

	if (!ring_has_room(&model->out, item.slots)) {
		CHECK(model, ring_credit(&model->out) == RING_CREDIT_OK);
		if (!ring_has_room(&model->out, item.slots))
			return;
	}
	if (random_below(&model->random, 2) == 0) {
		item.length =
			1 + random_below(&model->random, CHUNK_LARGE >> random_below(&model->random, 12));
		item.chunk = chunk_take(&model->pool, &model->account, item.length);
		if (item.chunk == CHUNK_NONE)
			return;
		item.offset = chunk_offset(&model->pool, item.chunk,
					   (const void *)(uintptr_t)random_below(&model->random, 4096));
		/* Its first and last bytes stand for the whole: they reveal a wrong offset. */
		model->pool.section[item.offset].hidden = (unsigned char)item.number;
		model->pool.section[item.offset + item.length - 1].hidden = (unsigned char)item.number;
	}
	shared_store_u64(&ring_next(&model->out, 0)->word, item.number);
	for (uint32_t ahead = 1; ahead < item.slots; ahead++) {
		shared_store_u64(&ring_next(&model->out, ahead)->word, item.number + ahead);
		ring_stage(&model->out, ahead, control_word(2, 0, ahead));
	}
	ring_push(&model->out, control_word(1, item.slots, item.chunk), item.slots);
	model->queue[model->tail++ % QUEUE] = item;
	model->sent++;
}

static void sender_collects(struct model *model)
{
	int collected = chunk_collect(&model->pool, &model->account);

	CHECK(model, collected == (int)model->uncollected);
	model->uncollected = 0;
}

static void check_chunk(const struct model *model, const struct item *item)
{
	CHECK(model, model->pool.section[item->offset].hidden == (unsigned char)item->number);
	CHECK(model,
	      model->pool.section[item->offset + item->length - 1].hidden == (unsigned char)item->number);
}

static void give_back(struct model *model, const struct item *item)
{
	check_chunk(model, item);
	chunk_return(&model->returns, item->chunk);
	model->uncollected++;
}

static void receiver_takes(struct model *model)
{
	uint64_t control = 0;
	bool there = ring_peek(&model->in, &control);

	CHECK(model, there == (model->head != model->tail));
	if (!there)
		return;
	const struct item *item = &model->queue[model->head++ % QUEUE];
	CHECK(model, control_kind(control) == 1);
	CHECK(model, control_flags(control) == item->slots);
	CHECK(model, control_length(control) == item->chunk);
	CHECK(model, shared_load_u64(&ring_at(&model->in, 0)->word) == item->number);
	for (uint32_t ahead = 1; ahead < item->slots; ahead++) {
		const struct ring_slot *slot = ring_at(&model->in, ahead);
		control = shared_load_u64(&slot->control);
		CHECK(model,
		      (control & CONTROL_LAP_MASK) == ring_lap(model->in.position + ahead, model->in.shift));
		CHECK(model, control_length(control) == ahead);
		CHECK(model, shared_load_u64(&slot->word) == item->number + ahead);
	}
	if (item->chunk != NO_CHUNK) {
		check_chunk(model, item);
		if (random_below(&model->random, 3) == 0)
			model->held[model->held_count++] = *item; /* unexpected: it stays for some time */
		else
			give_back(model, item);
	}
	ring_consume(&model->in, item->slots);
}

static void receiver_gives_back(struct model *model)
{
	if (model->held_count == 0)
		return;
	uint32_t which = random_below(&model->random, model->held_count);
	give_back(model, &model->held[which]);
	model->held[which] = model->held[--model->held_count];
}

static void check_accounts(const struct model *model)
{
	uint32_t free_count = 0;
	uint32_t in_queue = 0;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		free_count += model->pool.classes[i].free_count;
	for (uint32_t at = model->head; at != model->tail; at++)
		in_queue += model->queue[at % QUEUE].chunk != NO_CHUNK;
	CHECK(model, free_count + model->account.outstanding == model->pool.count);
	CHECK(model, model->account.outstanding == in_queue + model->held_count + model->uncollected);
	CHECK(model, model->out.limit - model->out.position <= model->out.mask + 1);
	CHECK(model, model->out.position - model->in.position <= model->out.mask + 1);
	CHECK(model, model->in.position - model->in.published < model->in.batch);
}

static void run(struct model *model, uint32_t slots, uint32_t position, uint64_t seed, uint32_t steps)
{
	struct credit_line *credit = section_credit(model->region, 1, 0);
	struct ring_slot *memory = (struct ring_slot *)(void *)section_view(
		model->region, 0, SECTION_ARENA_OFFSET(2), slots * sizeof(struct ring_slot));

	*model = (struct model){
		.random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1, .seed = seed, .region = model->region};
	memset((void *)credit, 0, sizeof(*credit));
	chunk_pool_open(&model->pool, model->region, 0, (uint32_t)SECTION_ARENA_OFFSET(2) + 65536,
			POOL_BYTES);
	ring_out_open(&model->out, memory, slots, credit, CONNECTION | CONNECTION_OPEN);
	ring_in_open(&model->in, memory, slots, credit, CONNECTION | CONNECTION_OPEN);
	model->account = (struct chunk_account){.credit = credit, .connection = CONNECTION | CONNECTION_OPEN};
	model->returns = (struct chunk_returns){.credit = credit};
	model->out.position = position;
	model->out.limit = position + slots;
	model->in.position = position;
	for (uint32_t slot = 0; slot < slots; slot++)
		shared_store_u64(&memory[slot].control, ring_lap(position - slots, model->out.shift));
	ring_publish(&model->in);
	for (uint32_t step = 0; step < steps; step++) {
		/* In turn each side is faster, so that the ring is sometimes full and sometimes empty. */
		uint32_t bias = step / 97 % 3 == 0 ? 7 : 4;
		uint32_t choice = random_below(&model->random, 10);
		if (choice < bias)
			sender_pushes(model);
		else if (choice < 8)
			receiver_takes(model);
		else if (choice == 8)
			receiver_gives_back(model);
		else
			sender_collects(model);
		check_accounts(model);
	}
	while (model->head != model->tail)
		receiver_takes(model);
	while (model->held_count > 0)
		receiver_gives_back(model);
	sender_collects(model);
	CHECK(model, model->account.outstanding == 0);
}

static void test_random_steps_agree_with_a_queue(void **state)
{
	struct model *model = calloc(1, sizeof(*model));
	uint64_t seed = 0;

	(void)state;
	assert_non_null(model);
	model->region = world_region(2, WORLD_SECTION_BYTES);
	for (uint32_t slots = RING_SLOTS_MIN; slots <= RING_SLOTS_MAX; slots *= 2) {
		const uint32_t positions[] = {0, slots * 65534U, slots * 65535U, 0U - slots, 0U - 2 * slots};
		for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++)
			for (int repeat = 0; repeat < 4; repeat++)
				run(model, slots, positions[i], ++seed, 20 * slots + 3000);
	}
	region_detach(model->region);
	free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_steps_agree_with_a_queue),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
