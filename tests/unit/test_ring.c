/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings: order, wrap-around of slots, laps and positions, credit and its violations. */
#include "world.h"

#include <stdlib.h>

struct pair {
	struct ring_slot *slots;
	struct credit_line *credit;
	struct ring_out out;
	struct ring_in in;
};

/*
 * A ring whose two ends are at `position`, a multiple of its size: every slot holds its contents of the lap
 * before.
 */
static void pair_open(struct pair *pair, uint32_t slots, uint32_t position)
{
	pair->slots = aligned_alloc(REGION_LINE, slots * sizeof(*pair->slots));
	pair->credit = aligned_alloc(REGION_LINE, sizeof(*pair->credit));
	assert_non_null(pair->slots);
	assert_non_null(pair->credit);
	memset((void *)pair->slots, 0, slots * sizeof(*pair->slots));
	memset((void *)pair->credit, 0, sizeof(*pair->credit));
	ring_out_open(&pair->out, pair->slots, slots, pair->credit, 0x1234567);
	ring_in_open(&pair->in, pair->slots, slots, pair->credit, 0x1234567);
	pair->out.position = position;
	pair->out.limit = position + slots;
	pair->in.position = position;
	for (uint32_t slot = 0; slot < slots; slot++)
		shared_store_u64(&pair->slots[slot].control,
				 control_word(1, 0, 0) | ring_lap(position - slots, pair->out.shift));
	ring_publish(&pair->in);
}

static void pair_close(struct pair *pair)
{
	free(pair->slots);
	free(pair->credit);
}

static void push_word(struct pair *pair, uint64_t word)
{
	shared_store_u64(&ring_next(&pair->out, 0)->word, word);
	ring_push(&pair->out, control_word(3, 5, (uint32_t)word), 1);
}

static void assert_next_word(struct pair *pair, uint64_t word)
{
	uint64_t control = 0;

	assert_true(ring_is_sound(&pair->in));
	assert_true(ring_peek(&pair->in, &control));
	assert_int_equal(control_kind(control), 3);
	assert_int_equal(control_flags(control), 5);
	assert_int_equal(control_length(control), (uint32_t)word);
	assert_int_equal(shared_load_u64(&ring_at(&pair->in, 0)->word), word);
	ring_consume(&pair->in, 1);
}

/* Two laps, first slot by slot, then with as many slots as fit: nothing is lost, doubled or reordered. */
static void run_across(uint32_t slots, uint32_t position)
{
	struct pair pair;
	uint64_t control = 0;
	uint64_t word = 77;

	pair_open(&pair, slots, position);
	for (uint32_t i = 0; i < 2 * slots; i++) {
		assert_false(ring_peek(&pair.in, &control));
		if (!ring_has_room(&pair.out, 1))
			assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
		assert_true(ring_has_room(&pair.out, 1));
		push_word(&pair, ++word);
		assert_next_word(&pair, word);
	}
	ring_publish(&pair.in);
	for (int lap = 0; lap < 3; lap++) {
		assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
		assert_true(ring_has_room(&pair.out, slots));
		assert_false(ring_has_room(&pair.out, slots + 1));
		for (uint32_t i = 1; i <= slots; i++)
			push_word(&pair, word + i);
		assert_false(ring_has_room(&pair.out, 1));
		assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
		assert_false(ring_has_room(&pair.out, 1));
		for (uint32_t i = 1; i <= slots; i++)
			assert_next_word(&pair, word + i);
		assert_false(ring_peek(&pair.in, &control));
		assert_true(ring_is_sound(&pair.in));
		word += slots;
	}
	/* A reader that is a lap ahead or behind finds an invalid slot. */
	pair.in.position += slots;
	assert_false(ring_is_sound(&pair.in));
	pair.in.position -= 3 * slots;
	assert_false(ring_is_sound(&pair.in));
	pair_close(&pair);
}

static void test_every_size_at_every_boundary(void **state)
{
	(void)state;
	for (uint32_t slots = RING_SLOTS_MIN; slots <= RING_SLOTS_MAX; slots *= 2) {
		/* Laps 65534, 65535, 0 and 1 follow each other; then positions pass 2^32. */
		const uint32_t lap_wrap = slots * 65536U;
		const uint32_t starts[] = {
			0,
			slots,
			lap_wrap - 3 * slots,
			lap_wrap - 2 * slots,
			lap_wrap - slots,
			lap_wrap,
			0U - 3 * slots,
			0U - 2 * slots,
			0U - slots,
		};
		for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
			run_across(slots, starts[i]);
	}
}

/* The smallest ring, through all of its 65536 laps and on, without a jump. */
static void test_all_laps_in_turn(void **state)
{
	struct pair pair;
	uint64_t control = 0;

	(void)state;
	pair_open(&pair, RING_SLOTS_MIN, 0);
	for (uint64_t word = 0; word < UINT64_C(65536) * RING_SLOTS_MIN + 3 * RING_SLOTS_MIN; word++) {
		assert_false(ring_peek(&pair.in, &control));
		if (!ring_has_room(&pair.out, 1))
			assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
		push_word(&pair, word);
		assert_next_word(&pair, word);
	}
	pair_close(&pair);
}

static void test_a_fresh_ring_is_empty(void **state)
{
	(void)state;
	for (uint32_t slots = RING_SLOTS_MIN; slots <= RING_SLOTS_MAX; slots *= 2) {
		struct pair pair;
		uint64_t control = 0;
		pair_open(&pair, slots, 0);
		memset((void *)pair.slots, 0, slots * sizeof(*pair.slots));
		assert_false(ring_peek(&pair.in, &control));
		pair_close(&pair);
	}
}

/* The slots after the first are not visible before it. */
static void test_staged_slots_appear_together(void **state)
{
	struct pair pair;
	uint64_t control = 0;

	(void)state;
	pair_open(&pair, 16, 16 * 65535U - 4);
	for (uint32_t ahead = 1; ahead < 8; ahead++)
		ring_stage(&pair.out, ahead, control_word(9, 0, ahead));
	assert_false(ring_peek(&pair.in, &control));
	ring_push(&pair.out, control_word(8, 0, 100), 8);
	assert_true(ring_peek(&pair.in, &control));
	assert_int_equal(control_kind(control), 8);
	for (uint32_t ahead = 1; ahead < 8; ahead++) {
		control = shared_load_u64(&ring_at(&pair.in, ahead)->control);
		assert_int_equal(control & CONTROL_LAP_MASK,
				 ring_lap(pair.in.position + ahead, pair.in.shift));
		assert_int_equal(control_kind(control), 9);
		assert_int_equal(control_length(control), ahead);
	}
	ring_consume(&pair.in, 8);
	assert_false(ring_peek(&pair.in, &control));
	pair_close(&pair);
}

static void test_credit_comes_in_batches(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, 64, 0U - 64);
	uint64_t before = shared_load_u64(&pair.credit->consumed);
	for (uint32_t i = 0; i < 15; i++) {
		push_word(&pair, i);
		assert_next_word(&pair, i);
	}
	assert_int_equal(shared_load_u64(&pair.credit->consumed), before);
	push_word(&pair, 15);
	assert_next_word(&pair, 15);
	assert_int_equal(shared_load_u64(&pair.credit->consumed),
			 UINT64_C(0x1234567) << 32 | (uint32_t)(0U - 64 + 16));
	pair_close(&pair);
}

/*
 * A ring that goes on in another memory again and again, with unread slots in both: nothing is lost, doubled
 * or reordered, and no slot is written before it was read.
 */
static void move_at_random(uint32_t first, uint32_t second, uint32_t position, uint64_t seed)
{
	struct pair pair;
	uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	struct ring_slot *memories[2];
	const uint32_t counts[2] = {first, second};
	uint32_t sender_at = 0, receiver_at = 0, moved = position, moves = 0;
	uint64_t sent = 0, taken = 0;
	uint32_t step = 0;

	pair_open(&pair, first, position);
	memories[0] = pair.slots;
	memories[1] = aligned_alloc(REGION_LINE, second * sizeof(*pair.slots));
	assert_non_null(memories[1]);
	memset((void *)memories[1], 0xff, second * sizeof(*pair.slots));
	while (moves < 40) {
		/* In turn each side is faster, so that the ring is sometimes full and sometimes empty. */
		uint32_t bias = step++ / 1000 % 2 == 0 ? 10 : 4;
		uint32_t choice = random_below(&random, 16);
		uint32_t next = counts[1 - sender_at];
		uint64_t control = 0;
		if (choice < bias) {
			if (!ring_has_room(&pair.out, 1))
				assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
			if (ring_has_room(&pair.out, 1))
				push_word(&pair, ++sent);
		} else if (choice < 15) {
			if (!ring_peek(&pair.in, &control))
				continue;
			assert_true(ring_is_sound(&pair.in));
			if (control_kind(control) == 9) {
				receiver_at = 1 - receiver_at;
				ring_in_move(&pair.in, memories[receiver_at], counts[receiver_at]);
				ring_consume(&pair.in, 1);
			} else {
				assert_next_word(&pair, ++taken);
			}
		} else {
			assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
			uint32_t unread = ring_unread(&pair.out);
			if (unread >= next || pair.out.position - moved < unread ||
			    !ring_has_room(&pair.out, 1))
				continue;
			sender_at = 1 - sender_at;
			ring_clear(memories[sender_at], next, pair.out.position + 1);
			ring_push(&pair.out, control_word(9, 0, next), 1);
			ring_out_move(&pair.out, memories[sender_at], next);
			moved = pair.out.position;
			moves++;
		}
		assert_true(pair.out.limit - pair.out.position <= counts[sender_at]);
	}
	free(memories[1]);
	pair_close(&pair);
}

static void test_rings_that_move(void **state)
{
	uint64_t seed = 0;

	(void)state;
	for (uint32_t first = RING_SLOTS_MIN; first <= 128; first *= 2)
		for (uint32_t second = RING_SLOTS_MIN; second <= RING_SLOTS_MAX; second *= 2) {
			const uint32_t positions[] = {0, first * 65536U - first, 0U - first, 0U - 3 * first};
			for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++)
				move_at_random(first, second, positions[i], ++seed);
		}
}

static void test_credit_that_cannot_be_is_a_violation(void **state)
{
	static const uint32_t positions[] = {0, 64, 0U - 64, 64 * 65535U, 0x80000000U};

	(void)state;
	for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++) {
		struct pair pair;
		uint32_t position = positions[i];
		uint64_t id = UINT64_C(0x1234567) << 32;
		pair_open(&pair, 64, position);
		for (uint32_t word = 0; word < 10; word++)
			push_word(&pair, word);
		/* Any credit from the last published position up to the last sent slot is valid. */
		for (uint32_t consumed = position - 54; consumed != position + 11; consumed++) {
			shared_store_u64(&pair.credit->consumed, id | consumed);
			assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
			assert_true(pair.out.limit - pair.out.position <= 64);
		}
		uint32_t limit = pair.out.limit;
		const uint32_t impossible[] = {position + 11, position - 55, position + 64,
					       position + 0x80000000U, position - 0x7fffffffU};
		for (size_t j = 0; j < sizeof(impossible) / sizeof(impossible[0]); j++) {
			shared_store_u64(&pair.credit->consumed, id | impossible[j]);
			assert_int_equal(ring_credit(&pair.out), RING_CREDIT_VIOLATION);
			assert_int_equal(pair.out.limit, limit);
		}
		/* The receiver reads no more. */
		shared_store_u64(&pair.credit->consumed, (id & ~(UINT64_C(1) << 32)) | impossible[0]);
		assert_int_equal(ring_credit(&pair.out), RING_CREDIT_CLOSED);
		ring_refuse(pair.credit, pair.in.connection);
		assert_int_equal(ring_credit(&pair.out), RING_CREDIT_CLOSED);
		assert_int_equal(pair.out.limit, limit);
		/* Another connection's line is neither credit nor a violation. */
		shared_store_u64(&pair.credit->consumed, UINT64_C(0x7654321) << 32 | impossible[0]);
		assert_int_equal(ring_credit(&pair.out), RING_CREDIT_OK);
		assert_int_equal(pair.out.limit, limit);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size_at_every_boundary),
		cmocka_unit_test(test_all_laps_in_turn),
		cmocka_unit_test(test_a_fresh_ring_is_empty),
		cmocka_unit_test(test_rings_that_move),
		cmocka_unit_test(test_staged_slots_appear_together),
		cmocka_unit_test(test_credit_comes_in_batches),
		cmocka_unit_test(test_credit_that_cannot_be_is_a_violation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
