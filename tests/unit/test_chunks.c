/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks: dividing the pool, taking and returning chunks, and holders that lie. */
#include "world.h"

#include <stdlib.h>
#include <sys/mman.h>

#define CONNECTION 0xabcdef01U
#define ARENA_BYTES (WORLD_SECTION_BYTES - SECTION_ARENA_OFFSET(3))

/* An owner, and two holders with a credit line each. */
struct bank {
	struct region *region;
	struct chunk_pool pool;
	struct credit_line *credit[2];
	struct chunk_account account[2];
	struct chunk_returns returns[2];
};

static void bank_open(struct bank *bank, uint64_t bytes)
{
	memset(bank, 0, sizeof(*bank));
	bank->region = world_region(3, WORLD_SECTION_BYTES);
	chunk_pool_open(&bank->pool, bank->region, 0, SECTION_ARENA_OFFSET(3), bytes);
	for (uint32_t i = 0; i < 2; i++) {
		bank->credit[i] = section_credit(bank->region, i + 1, 0);
		bank->account[i] =
			(struct chunk_account){.credit = bank->credit[i], .connection = CONNECTION + i};
		bank->returns[i] = (struct chunk_returns){.credit = bank->credit[i]};
		shared_store_u64(&bank->credit[i]->consumed, (uint64_t)(CONNECTION + i) << 32);
	}
}

static void bank_close(struct bank *bank)
{
	world_region_close(bank->region);
}

static uint32_t take(struct bank *bank, uint32_t holder, uint32_t length)
{
	return chunk_take(&bank->pool, &bank->account[holder], length);
}

static int collect(struct bank *bank, uint32_t holder)
{
	return chunk_collect(&bank->pool, &bank->account[holder]);
}

/* The end of a chunk whose bytes begin at the offset in a line that a buffer at the end of a line needs. */
static uint64_t chunk_end(const struct chunk_pool *pool, uint32_t chunk)
{
	static const uint32_t lengths[CHUNK_CLASSES] = {CHUNK_SMALL, CHUNK_MEDIUM, CHUNK_LARGE};
	const void *skewed = (const void *)(uintptr_t)(CHUNK_SKEW - 1);

	return (uint64_t)chunk_offset(pool, chunk, skewed) + lengths[chunk_class_of(pool, chunk)];
}

/* The number of chunks that a holder with chunks does not get. */
static uint32_t reserved(const struct chunk_pool *pool)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		count += pool->classes[i].reserve;
	return count;
}

static uint32_t free_chunks(const struct chunk_pool *pool)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CHUNK_CLASSES; i++)
		count += pool->classes[i].free_count;
	return count;
}

/* Chunks do not overlap and stay within the given bytes, for any number of bytes. */
static void check_offsets(const struct chunk_pool *pool, uint64_t offset, uint64_t bytes)
{
	uint64_t end = offset;

	for (uint32_t chunk = 0; chunk < pool->count; chunk++) {
		assert_true(chunk_offset(pool, chunk, NULL) >= end);
		end = chunk_end(pool, chunk);
	}
	assert_true(end <= offset + bytes);
	assert_true(pool->count <= REGION_CHUNKS_MAX);
	assert_int_equal(free_chunks(pool), pool->count);
}

static void test_chunks_lie_apart_within_the_pool(void **state)
{
	static const uint64_t sizes[] = {0, 4095, 4160, 20000, 65536, 100000, 188416, 200000, ARENA_BYTES};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct bank bank;
		bank_open(&bank, sizes[i]);
		check_offsets(&bank.pool, SECTION_ARENA_OFFSET(3), sizes[i]);
		bank_close(&bank);
	}
}

static void test_a_huge_arena_has_as_many_chunks_as_bits(void **state)
{
	struct region region = {.section_bytes = REGION_SECTION_MAX, .members = 2};
	struct chunk_pool *pool = malloc(sizeof(*pool));

	(void)state;
	assert_non_null(pool);
	/* Only offsets are computed, from addresses that may not be touched. */
	region.bytes = region_size(2, REGION_SECTION_MAX);
	void *base = mmap(NULL, region.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	region.base = base;
	chunk_pool_open(pool, &region, 0, REGION_PAGE, REGION_SECTION_MAX - REGION_PAGE);
	check_offsets(pool, REGION_PAGE, REGION_SECTION_MAX - REGION_PAGE);
	assert_int_equal(munmap(base, region.bytes), 0);
	free(pool);
}

static void test_a_chunk_is_as_large_as_asked(void **state)
{
	struct bank bank;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	for (uint32_t length = 1; length <= CHUNK_LARGE; length += 511) {
		uint32_t chunk = take(&bank, 0, length);
		assert_int_not_equal(chunk, CHUNK_NONE);
		assert_true(chunk_end(&bank.pool, chunk) - chunk_offset(&bank.pool, chunk, NULL) >= length);
		/* The bytes have the same offset in a line as the buffer that they come from. */
		for (uintptr_t address = 0; address < 2 * REGION_LINE; address++)
			assert_int_equal((chunk_offset(&bank.pool, chunk, (const void *)address) - address) %
						 REGION_LINE,
					 0);
		chunk_untake(&bank.pool, chunk);
	}
	bank_close(&bank);
}

static void test_small_messages_take_small_chunks_first(void **state)
{
	struct bank bank;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	uint32_t small = bank.pool.classes[0].count - bank.pool.classes[0].reserve;
	assert_true(small > 0);
	assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 0, CHUNK_SMALL + 1)), 1);
	assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 0, CHUNK_MEDIUM + 1)), 2);
	for (uint32_t i = 0; i < small; i++)
		assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 0, CHUNK_SMALL)), 0);
	/* No small chunk is left except the reserve for other holders, so a larger chunk is taken. */
	assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 0, 1)), 1);
	assert_int_equal(bank.account[0].outstanding, small + 3);
	assert_int_equal(bank.account[0].outstanding_of[CHUNK_CLASS_LARGE], 1);
	bank_close(&bank);
}

static void test_an_empty_pool_gives_nothing(void **state)
{
	struct bank bank;
	uint32_t count = 0;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	while (take(&bank, count & 1, 1) != CHUNK_NONE)
		count++;
	assert_int_equal(count, bank.pool.count - reserved(&bank.pool));
	assert_int_equal(take(&bank, 0, CHUNK_LARGE), CHUNK_NONE);
	assert_int_equal(collect(&bank, 0), 0);
	assert_int_equal(bank.account[0].outstanding + bank.account[1].outstanding, count);
	bank_close(&bank);
}

/*
 * A holder that returns nothing gets all that it may have, and another holder still finds a chunk of each
 * size.
 */
static void test_nobody_takes_what_others_need(void **state)
{
	struct bank bank;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	while (take(&bank, 0, 1) != CHUNK_NONE)
		;
	assert_true(bank.account[0].outstanding > bank.pool.count / 2);
	assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 1, CHUNK_LARGE)), 2);
	assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 1, CHUNK_MEDIUM)), 1);
	assert_int_equal(chunk_class_of(&bank.pool, take(&bank, 1, CHUNK_SMALL)), 0);
	bank_close(&bank);
}

/* Every chunk is returned in another order than it was taken, lap after lap, so bits are set and cleared. */
static void test_returned_chunks_can_be_taken_again(void **state)
{
	struct bank bank;
	uint32_t taken[REGION_CHUNKS_MAX];

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	for (uint32_t lap = 0; lap < 5; lap++) {
		uint32_t count = 0;
		while ((taken[count] = take(&bank, 0, 100)) != CHUNK_NONE)
			count++;
		assert_int_equal(count, bank.pool.count - reserved(&bank.pool));
		for (uint32_t i = 0; i < count; i++)
			chunk_return(&bank.returns[0], taken[(2 * count - 1 - i - lap) % count]);
		assert_int_equal(collect(&bank, 0), (int)count);
		assert_int_equal(bank.account[0].outstanding, 0);
		assert_int_equal(free_chunks(&bank.pool), bank.pool.count);
		assert_int_equal(collect(&bank, 0), 0);
	}
	bank_close(&bank);
}

static void test_no_notice_is_taken_of_another_connection(void **state)
{
	struct bank bank;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	uint32_t chunk = take(&bank, 0, 1);
	chunk_return(&bank.returns[0], chunk);
	shared_store_u64(&bank.credit[0]->consumed, (uint64_t)(CONNECTION + 9) << 32);
	assert_int_equal(collect(&bank, 0), 0);
	shared_store_u64(&bank.credit[0]->consumed, (uint64_t)CONNECTION << 32);
	assert_int_equal(collect(&bank, 0), 1);
	bank_close(&bank);
}

static void test_lies_of_holders_are_violations(void **state)
{
	struct bank bank;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	uint32_t first = take(&bank, 0, 1);
	uint32_t second = take(&bank, 1, 1);

	/* A chunk that another holder has. */
	chunk_return(&bank.returns[0], second);
	assert_int_equal(collect(&bank, 0), -1);
	assert_ptr_equal(bank.pool.holder[second], &bank.account[1]);

	/* A chunk that is not outstanding at all, and a chunk that is returned twice. */
	chunk_return(&bank.returns[1], second);
	assert_int_equal(collect(&bank, 1), 1);
	chunk_return(&bank.returns[1], second);
	assert_int_equal(collect(&bank, 1), -1);
	assert_ptr_equal(bank.pool.holder[first], &bank.account[0]);
	bank_close(&bank);
}

static void test_a_chunk_beyond_the_pool_is_a_violation(void **state)
{
	(void)state;
	for (uint32_t chunk = 0; chunk < REGION_CHUNKS_MAX; chunk++) {
		struct bank bank;
		bank_open(&bank, ARENA_BYTES);
		bool looked_at = chunk / 64 * 64 < bank.pool.count;
		chunk_return(&bank.returns[0], chunk);
		assert_int_equal(collect(&bank, 0), looked_at ? -1 : 0);
		assert_int_equal(free_chunks(&bank.pool), bank.pool.count);
		bank_close(&bank);
	}
}

static void test_recall_takes_all_from_one_alone(void **state)
{
	struct bank bank;
	uint32_t held = CHUNK_NONE;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_not_equal(take(&bank, 0, 1), CHUNK_NONE);
		assert_int_not_equal(take(&bank, 0, CHUNK_LARGE), CHUNK_NONE);
		held = take(&bank, 1, CHUNK_LARGE);
		assert_int_not_equal(held, CHUNK_NONE);
	}
	chunk_recall(&bank.pool, &bank.account[0]);
	assert_int_equal(bank.account[0].outstanding, 0);
	assert_int_equal(bank.account[1].outstanding, 3);
	assert_ptr_equal(bank.pool.holder[held], &bank.account[1]);
	assert_int_equal(free_chunks(&bank.pool), bank.pool.count - 3);
	chunk_recall(&bank.pool, &bank.account[1]);
	assert_int_equal(free_chunks(&bank.pool), bank.pool.count);
	bank_close(&bank);
}

static void test_an_untaken_chunk_is_free_again(void **state)
{
	struct bank bank;

	(void)state;
	bank_open(&bank, ARENA_BYTES);
	uint32_t small = take(&bank, 0, 1);
	uint32_t large = take(&bank, 0, CHUNK_LARGE);
	chunk_untake(&bank.pool, small);
	chunk_untake(&bank.pool, large);
	assert_int_equal(bank.account[0].outstanding, 0);
	assert_int_equal(take(&bank, 1, 1), small);
	assert_int_equal(take(&bank, 1, CHUNK_LARGE), large);
	bank_close(&bank);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunks_lie_apart_within_the_pool),
		cmocka_unit_test(test_a_huge_arena_has_as_many_chunks_as_bits),
		cmocka_unit_test(test_a_chunk_is_as_large_as_asked),
		cmocka_unit_test(test_small_messages_take_small_chunks_first),
		cmocka_unit_test(test_an_empty_pool_gives_nothing),
		cmocka_unit_test(test_nobody_takes_what_others_need),
		cmocka_unit_test(test_returned_chunks_can_be_taken_again),
		cmocka_unit_test(test_no_notice_is_taken_of_another_connection),
		cmocka_unit_test(test_lies_of_holders_are_violations),
		cmocka_unit_test(test_a_chunk_beyond_the_pool_is_a_violation),
		cmocka_unit_test(test_recall_takes_all_from_one_alone),
		cmocka_unit_test(test_an_untaken_chunk_is_free_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
