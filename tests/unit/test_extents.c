/* SPDX-License-Identifier: BSD-3-Clause */
/* Which pages are taken, compared with a model of one byte a page, in random sequences. */
#include "world.h"

#include <stdlib.h>

#include "region/extents.h"

#define PAGES 777U /* not a power of two */
#define BLOCKS_MAX 200U

/* The expected state: the owner of each page, 0 for none. */
struct model {
	struct extents extents;
	uint32_t pages;
	uint64_t origin;
	uint32_t owner[PAGES];
	uint32_t first[BLOCKS_MAX + 1]; /* by owner */
	uint32_t length[BLOCKS_MAX + 1];
	uint64_t random;
};

static void model_open(struct model *model, uint32_t pages, uint64_t origin, uint64_t seed)
{
	memset(model, 0, sizeof(*model));
	model->pages = pages;
	model->origin = origin;
	model->random = seed;
	assert_int_equal(extents_open(&model->extents, pages, origin), 0);
}

/* The longest run of free pages that contains an aligned run of `pages`. */
static bool would_fit(const struct model *model, uint32_t pages, uint32_t alignment)
{
	for (uint32_t start = 0; start + pages <= model->pages; start++) {
		uint32_t run = 0;
		if ((model->origin + start) % alignment != 0)
			continue;
		while (run < pages && model->owner[start + run] == 0)
			run++;
		if (run == pages)
			return true;
	}
	return false;
}

static void own(struct model *model, uint32_t block, uint32_t first, uint32_t pages)
{
	model->first[block] = first;
	model->length[block] = pages;
	for (uint32_t page = first; page < first + pages; page++) {
		assert_int_equal(model->owner[page], 0);
		model->owner[page] = block;
	}
}

static void disown(struct model *model, uint32_t block)
{
	for (uint32_t page = 0; page < model->pages; page++)
		if (model->owner[page] == block)
			model->owner[page] = 0;
	model->length[block] = 0;
}

static void model_take(struct model *model, uint32_t block)
{
	uint32_t pages = 1 + random_below(&model->random, random_below(&model->random, 8) == 0 ? 300 : 20);
	uint32_t alignment =
		1U << (random_below(&model->random, 3) == 0 ? random_below(&model->random, 8) : 0);
	uint32_t first = extents_take(&model->extents, pages, alignment);

	if (first == EXTENT_NONE) {
		assert_false(would_fit(model, pages, alignment));
		return;
	}
	assert_true(first < model->pages && pages <= model->pages - first);
	assert_int_equal((model->origin + first) % alignment, 0);
	own(model, block, first, pages);
}

static void model_resize(struct model *model, uint32_t block)
{
	uint32_t first = model->first[block];
	uint32_t before = model->length[block];
	uint32_t pages = 1 + random_below(&model->random, 2 * before);
	bool fits = true;

	for (uint32_t page = first + before; page < first + pages; page++)
		fits = fits && page < model->pages && model->owner[page] == 0;
	assert_int_equal(extents_resize(&model->extents, first, pages), fits);
	if (!fits)
		return;
	disown(model, block);
	own(model, block, first, pages);
}

static void model_check(const struct model *model)
{
	uint32_t taken = 0;
	uint32_t count = 0;

	for (uint32_t page = 0; page < model->pages; page++) {
		uint32_t block = model->owner[page];
		bool begins = block != 0 && model->first[block] == page;
		taken += block != 0;
		count += begins;
		/* A page that does not begin a block is known not to begin one. */
		assert_int_equal(extents_length(&model->extents, page), begins ? model->length[block] : 0);
	}
	assert_int_equal(model->extents.taken, taken);
	assert_int_equal(model->extents.count, count);
}

static void model_run(uint64_t seed, uint32_t pages, uint64_t origin, uint32_t steps)
{
	struct model *model = malloc(sizeof(*model));

	assert_non_null(model);
	model_open(model, pages, origin, seed);
	for (uint32_t step = 0; step < steps; step++) {
		uint32_t block = 1 + random_below(&model->random, BLOCKS_MAX);
		if (model->length[block] == 0) {
			model_take(model, block);
		} else if (random_below(&model->random, 3) == 0) {
			model_resize(model, block);
		} else {
			assert_true(extents_give(&model->extents, model->first[block]));
			disown(model, block);
		}
		if (step % 16 == 0)
			model_check(model);
	}
	for (uint32_t block = 1; block <= BLOCKS_MAX; block++)
		if (model->length[block] != 0) {
			assert_true(extents_give(&model->extents, model->first[block]));
			disown(model, block);
		}
	model_check(model);
	/* All pages are one extent again, and can be taken at once. */
	assert_int_equal(extents_take(&model->extents, pages, 1), 0);
	assert_int_equal(extents_take(&model->extents, 1, 1), EXTENT_NONE);
	extents_close(&model->extents);
	free(model);
}

static void test_random_sequences_agree_with_a_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++)
		model_run(seed, PAGES, seed * 37, 3000);
	model_run(99, 1, 0, 200);
	model_run(98, 2, 5, 200);
	model_run(97, 16, 1, 1000);
	model_run(96, 17, 0, 1000);
}

static void test_what_is_no_block_is_refused(void **state)
{
	struct extents extents;

	(void)state;
	assert_int_equal(extents_open(&extents, 64, 0), 0);
	uint32_t first = extents_take(&extents, 8, 1);
	uint32_t second = extents_take(&extents, 8, 1);
	assert_int_equal(extents_take(&extents, 0, 1), EXTENT_NONE);
	assert_int_equal(extents_take(&extents, 49, 1), EXTENT_NONE);
	assert_int_equal(extents_take(&extents, 1, 128), EXTENT_NONE);
	for (uint32_t page = 0; page < 64; page++)
		if (page != first && page != second) {
			assert_false(extents_give(&extents, page));
			assert_false(extents_resize(&extents, page, 1));
		}
	assert_false(extents_give(&extents, 64));
	assert_false(extents_give(&extents, EXTENT_NONE));
	assert_false(extents_resize(&extents, first, 0));
	assert_false(extents_resize(&extents, first, UINT32_MAX));
	assert_true(extents_give(&extents, first));
	assert_false(extents_give(&extents, first));
	assert_int_equal(extents_length(&extents, second), 8);
	extents_close(&extents);
}

/* A list holds extents of several lengths. A shorter first extent must not hide a longer one. */
static void test_no_room_is_hidden_by_the_lists(void **state)
{
	struct extents extents;

	(void)state;
	assert_int_equal(extents_open(&extents, 4096, 0), 0);
	/* 1000 and 1023 pages are in one list. */
	uint32_t large = extents_take(&extents, 1023, 1);
	uint32_t wall = extents_take(&extents, 1, 1);
	uint32_t small = extents_take(&extents, 1000, 1);
	assert_int_not_equal(extents_take(&extents, 4096 - 1023 - 1 - 1000, 1), EXTENT_NONE);
	assert_true(extents_give(&extents, large));
	assert_true(extents_give(&extents, small));
	assert_int_equal(extents_take(&extents, 1020, 1), large);
	assert_int_equal(extents_take(&extents, 1000, 1), small);
	assert_int_equal(extents_length(&extents, wall), 1);
	extents_close(&extents);
}

static void test_the_largest_heap_can_be_looked_after(void **state)
{
	struct extents extents;

	(void)state;
	assert_int_equal(extents_open(&extents, EXTENTS_PAGES_MAX, 1), 0);
	assert_int_equal(extents_take(&extents, 1, EXTENTS_PAGES_MAX), EXTENTS_PAGES_MAX - 1);
	assert_true(extents_give(&extents, EXTENTS_PAGES_MAX - 1));
	assert_int_equal(extents_take(&extents, EXTENTS_PAGES_MAX, 1), 0);
	assert_true(extents_give(&extents, 0));
	extents_close(&extents);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_sequences_agree_with_a_model),
		cmocka_unit_test(test_what_is_no_block_is_refused),
		cmocka_unit_test(test_no_room_is_hidden_by_the_lists),
		cmocka_unit_test(test_the_largest_heap_can_be_looked_after),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
