/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching among many: compared with the simplest matching, with steps counted, and without memory for
 * tables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "match/match.h"
#include "random.h"

#define SOURCES 5U
#define ANY MATCH_ANY_SOURCE

uint64_t match_steps;

/* ---- an allocator that can fail ---- */

static uint32_t allocations_fail; /* of 256, at random */
static uint64_t allocation_seed = 99;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
	if (allocations_fail > 0 && random_below(&allocation_seed, 256) < allocations_fail)
		return NULL;
	return __real_calloc(count, bytes);
}

static uint32_t mappings_before_failing = UINT32_MAX;

/* The name of mmap() where files may be large. */
void *__real_mmap64(void *at, size_t length, int protection, int flags, int file, off_t offset);
void *__wrap_mmap64(void *at, size_t length, int protection, int flags, int file, off_t offset);

void *__wrap_mmap64(void *at, size_t length, int protection, int flags, int file, off_t offset)
{
	if (mappings_before_failing == 0)
		return MAP_FAILED;
	mappings_before_failing--;
	return __real_mmap64(at, length, protection, flags, file, offset);
}

/* ---- the simplest matching: arrays in order, searched from their beginning ---- */

enum { MOST = 1200 };

/* Receives or messages, in the order of their arrival. */
struct shelf {
	void *entries[MOST];
	uint32_t count;
	uint32_t most; /* the maximum number so far */
};

struct model {
	struct match_queue queue;
	uint64_t random;
	uint64_t seed;
	struct shelf receives;
	struct shelf messages;
	bool tables_of_both; /* both were in tables at the same time */
};

#define CHECK(model, condition) \
	do { \
		if (!(condition)) \
			fail_msg("seed %llu: %s", (unsigned long long)(model)->seed, #condition); \
	} while (0)

static bool takes(const struct match_receive *receive, uint32_t source, uint64_t tag)
{
	return (receive->key.source == ANY || receive->key.source == source) &&
	       ((receive->key.tag ^ tag) & ~receive->ignore) == 0;
}

/* A new entry. The matching writes the fields that it needs, and the rest is as a former user left it. */
static void *shelf_add(struct shelf *shelf, size_t bytes)
{
	void *entry = malloc(bytes);

	assert_non_null(entry);
	assert_true(shelf->count < MOST);
	memset(entry, 0x5a, bytes);
	shelf->entries[shelf->count++] = entry;
	if (shelf->count > shelf->most)
		shelf->most = shelf->count;
	return entry;
}

static void shelf_remove(struct shelf *shelf, uint32_t index)
{
	free(shelf->entries[index]);
	memmove(&shelf->entries[index], &shelf->entries[index + 1],
		(--shelf->count - index) * sizeof(shelf->entries[0]));
}

/* The entry at `index`; NULL if a search reached the end. */
static void *shelf_at(const struct shelf *shelf, uint32_t index)
{
	return index < shelf->count ? shelf->entries[index] : NULL;
}

static struct match_receive *receive_at(const struct model *model, uint32_t index)
{
	return shelf_at(&model->receives, index);
}

static struct match_message *message_at(const struct model *model, uint32_t index)
{
	return shelf_at(&model->messages, index);
}

/* ---- operations of applications and peers, on both ---- */

struct habits {
	uint32_t tags;    /* different tags */
	uint32_t posts;   /* of 100 steps */
	uint32_t cancels; /* of 100 steps */
	const uint64_t *ignores;
	uint32_t ignore_count;
	uint32_t any; /* of 100 receives */
};

/* MPI_ANY_TAG, and a protocol bit that is always ignored. */
static const uint64_t mpi_ignores[] = {UINT64_C(0x100000000), UINT64_C(0x100000000), UINT64_C(0x17fffffff)};
static const uint64_t exact[] = {0};
static const uint64_t more_than_tables[] = {0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x7f, UINT64_MAX};

static uint64_t random_tag(struct model *model, const struct habits *habits)
{
	uint64_t tag = random_below(&model->random, habits->tags);

	/* Upper bits count as well: contexts, and the protocol bit. */
	return tag | (uint64_t)random_below(&model->random, 2) << 32 |
	       (uint64_t)random_below(&model->random, 2) << 62;
}

static void post(struct model *model, const struct habits *habits)
{
	bool any = random_below(&model->random, 100) < habits->any;
	uint32_t source = any ? ANY : random_below(&model->random, SOURCES);
	uint64_t tag = random_tag(model, habits);
	uint64_t ignore = habits->ignores[random_below(&model->random, habits->ignore_count)];
	const struct match_receive asked = {.key = {tag, source}, .ignore = ignore};
	uint32_t index = 0;

	while (index < model->messages.count &&
	       !takes(&asked, message_at(model, index)->key.source, message_at(model, index)->key.tag))
		index++;
	struct match_message *found = match_waiting(&model->queue, source, tag, ignore);
	CHECK(model, found == message_at(model, index));
	if (found == NULL && model->receives.count < MOST) {
		struct match_receive *receive = shelf_add(&model->receives, sizeof(*receive));
		receive->key = asked.key;
		receive->ignore = ignore;
		match_post(&model->queue, receive);
	} else if (found != NULL && random_below(&model->random, 8) != 0) {
		/* One receive in eight only peeks. */
		match_take(&model->queue, found);
		shelf_remove(&model->messages, index);
	}
}

static void arrive(struct model *model, const struct habits *habits)
{
	uint32_t source = random_below(&model->random, SOURCES);
	uint64_t tag = random_tag(model, habits);
	uint32_t index = 0;

	while (index < model->receives.count && !takes(receive_at(model, index), source, tag))
		index++;
	struct match_receive *found = match_arrival(&model->queue, source, tag);
	CHECK(model, found == receive_at(model, index));
	if (found == NULL && model->messages.count < MOST) {
		struct match_message *message = shelf_add(&model->messages, sizeof(*message));
		message->key = (struct match_key){tag, source};
		match_keep(&model->queue, message);
	} else if (found != NULL && random_below(&model->random, 8) != 0) {
		/* One receive in eight is for several messages, and stays. */
		match_withdraw(&model->queue, found);
		shelf_remove(&model->receives, index);
	}
}

static void cancel(struct model *model)
{
	if (model->receives.count == 0)
		return;
	uint32_t index = random_below(&model->random, model->receives.count);
	match_withdraw(&model->queue, receive_at(model, index));
	shelf_remove(&model->receives, index);
}

/* The walk meets each receive once. */
static void check_walk(struct model *model)
{
	uint32_t met = 0;
	uint64_t sum = 0;

	for (struct match_receive *receive = NULL;
	     (receive = match_each_receive(&model->queue, receive)) != NULL; met++)
		sum += receive->sequence;
	for (uint32_t i = 0; i < model->receives.count; i++)
		sum -= receive_at(model, i)->sequence;
	CHECK(model, met == model->receives.count);
	CHECK(model, model->queue.posted == model->receives.count);
	CHECK(model, sum == 0);
}

/* A source fails: remove its receives and messages. */
static void fail_source(struct model *model)
{
	uint32_t source = random_below(&model->random, SOURCES);
	struct match_link list;
	uint32_t moved = 0;

	match_list_open(&list);
	match_withdraw_source(&model->queue, source, &list);
	for (struct match_link *link = list.next; link != &list; link = link->next, moved++)
		CHECK(model, match_from_link(link)->key.source == source);
	for (uint32_t index = 0; index < model->receives.count;) {
		if (receive_at(model, index)->key.source != source) {
			index++;
			continue;
		}
		moved--;
		match_unlink(&receive_at(model, index)->node.same);
		shelf_remove(&model->receives, index);
	}
	CHECK(model, moved == 0);
	CHECK(model, match_is_empty(&list));
	for (uint32_t index = 0; index < model->messages.count;) {
		struct match_message *message = message_at(model, index);
		if (message->key.source != source) {
			index++;
			continue;
		}
		match_take(&model->queue, message);
		shelf_remove(&model->messages, index);
	}
	CHECK(model, match_is_empty(&model->queue.messages[source]));
}

static void run_model(struct model *model, uint64_t seed, const struct habits *habits, uint32_t steps)
{
	*model = (struct model){.seed = seed, .random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1};
	assert_int_equal(match_open(&model->queue, SOURCES, SOURCES), 0);
	for (uint32_t step = 0; step < steps; step++) {
		/*
		 * In turn the application is ahead, and the peers are. Between the two, all entries are used
		 * up.
		 */
		static const uint32_t tides[] = {90, 50, 10, 50};
		uint32_t posts = habits->posts + tides[step / 1500 % 4] - 50;
		uint32_t choice = random_below(&model->random, 100);
		if (choice < habits->cancels)
			cancel(model);
		else if (random_below(&model->random, 100) < posts)
			post(model, habits);
		else
			arrive(model, habits);
		if (step % 977 == 0)
			check_walk(model);
		if (step % 4999 == 4998)
			fail_source(model);
		model->tables_of_both |= model->queue.receives_in_tables && model->queue.messages_in_tables;
	}
	while (model->receives.count > 0)
		cancel(model);
	CHECK(model, !model->queue.receives_in_tables);
	check_walk(model);
	while (model->messages.count > 0) {
		match_take(&model->queue, message_at(model, 0));
		shelf_remove(&model->messages, 0);
	}
	CHECK(model, !model->queue.messages_in_tables);
	CHECK(model, match_is_empty(&model->queue.arrivals));
	match_close(&model->queue);
}

static const struct habits all_habits[] = {
	/* few tags: receives and messages meet often */
	{.tags = 8, .posts = 50, .cancels = 2, .ignores = exact, .ignore_count = 1, .any = 20},
	/* many tags: many receives and messages wait */
	{.tags = 3000, .posts = 50, .cancels = 2, .ignores = exact, .ignore_count = 1, .any = 20},
	{.tags = 3000, .posts = 50, .cancels = 10, .ignores = mpi_ignores, .ignore_count = 2, .any = 0},
	{.tags = 300, .posts = 50, .cancels = 5, .ignores = mpi_ignores, .ignore_count = 3, .any = 25},
	{.tags = 256, .posts = 55, .cancels = 5, .ignores = more_than_tables, .ignore_count = 11, .any = 25},
	{.tags = 100000,
	 .posts = 50,
	 .cancels = 3,
	 .ignores = more_than_tables,
	 .ignore_count = 9,
	 .any = 50},
};
#define HABITS (sizeof(all_habits) / sizeof(all_habits[0]))

static void test_like_arrays_searched_in_order(void **state)
{
	struct model *model = malloc(sizeof(*model));
	uint32_t most_receives = 0;
	uint32_t most_messages = 0;
	bool both = false;

	(void)state;
	assert_non_null(model);
	for (uint64_t seed = 1; seed <= 3 * HABITS; seed++) {
		run_model(model, seed, &all_habits[seed % HABITS], 20000);
		most_receives = model->receives.most > most_receives ? model->receives.most : most_receives;
		most_messages = model->messages.most > most_messages ? model->messages.most : most_messages;
		both |= model->tables_of_both;
	}
	/* Otherwise the test would not have covered its purpose. */
	assert_in_range(most_receives, 500, MOST);
	assert_in_range(most_messages, 500, MOST);
	assert_true(both);
	free(model);
}

static void test_a_queue_without_room_is_not_opened(void **state)
{
	struct match_queue queue;

	(void)state;
	for (uint32_t before = 0; before < 2; before++) {
		mappings_before_failing = before;
		int result = match_open(&queue, SOURCES, SOURCES);
		mappings_before_failing = UINT32_MAX;
		assert_int_not_equal(result, 0);
	}
	assert_int_equal(match_open(&queue, SOURCES, SOURCES), 0);
	match_close(&queue);
}

static void test_nothing_is_lost_without_memory(void **state)
{
	struct model *model = malloc(sizeof(*model));

	(void)state;
	assert_non_null(model);
	for (uint64_t seed = 100; seed < 100 + HABITS; seed++) {
		static const uint32_t failures[] = {256, 128, 200, 64};
		allocation_seed = seed;
		allocations_fail = failures[seed % 4];
		run_model(model, seed, &all_habits[seed % HABITS], 9000);
		allocations_fail = 0;
	}
	free(model);
}

/* ---- steps ---- */

enum { OUTSTANDING = 10000 };

static struct match_receive receives[OUTSTANDING];
static struct match_message messages[OUTSTANDING];

enum order { IN_ORDER, REVERSED, SHUFFLED };

static void make_order(uint32_t *order, uint32_t count, enum order how)
{
	uint64_t seed = 17;

	for (uint32_t i = 0; i < count; i++)
		order[i] = how == REVERSED ? count - 1 - i : i;
	for (uint32_t i = count; how == SHUFFLED && i > 1; i--) {
		uint32_t other = random_below(&seed, i);
		uint32_t kept = order[i - 1];
		order[i - 1] = order[other];
		order[other] = kept;
	}
}

struct pattern {
	const char *name;
	uint32_t tags; /* different tags, or 0 for one each */
	uint32_t any;  /* one in `any` receives is from any source; 0 for none */
	uint64_t ignore;
};

static const struct pattern patterns[] = {
	{"full tags", 0, 0, 0},
	{"full tags with a protocol bit", 0, 0, UINT64_C(0x100000000)},
	{"the same tag", 1, 0, 0},
	{"a hundred tags", 100, 0, 0},
	{"any source", 0, 1, 0},
	{"any source and the same tag", 1, 1, UINT64_C(0x100000000)},
	{"any source now and then", 0, 3, UINT64_C(0x100000000)},
	{"any tag", 0, 0, UINT64_C(0x17fffffff)},
};

/* The source and tag for a number: the same for a receive and for its message. */
static uint32_t source_of(uint32_t number)
{
	return number % SOURCES;
}

static uint64_t tag_of(const struct pattern *pattern, uint32_t number)
{
	return (uint64_t)1 << 40 | (pattern->tags == 0 ? number : number % pattern->tags);
}

static uint32_t asked_source(const struct pattern *pattern, uint32_t number)
{
	return pattern->any != 0 && number % pattern->any == 0 ? ANY : source_of(number);
}

static void post_one(struct match_queue *queue, const struct pattern *pattern, uint32_t number)
{
	struct match_receive *receive = &receives[number];

	*receive = (struct match_receive){.key = {tag_of(pattern, number), asked_source(pattern, number)},
					  .ignore = pattern->ignore};
	assert_null(match_waiting(queue, receive->key.source, receive->key.tag, receive->ignore));
	match_post(queue, receive);
}

static void find_receive(struct match_queue *queue, const struct pattern *pattern, uint32_t number)
{
	struct match_receive *found = match_arrival(queue, source_of(number), tag_of(pattern, number));

	assert_non_null(found);
	match_withdraw(queue, found);
}

static void keep_one(struct match_queue *queue, const struct pattern *pattern, uint32_t number)
{
	struct match_message *message = &messages[number];

	*message = (struct match_message){.key = {tag_of(pattern, number), source_of(number)}};
	assert_null(match_arrival(queue, message->key.source, message->key.tag));
	match_keep(queue, message);
}

static void find_message(struct match_queue *queue, const struct pattern *pattern, uint32_t number)
{
	struct match_message *found =
		match_waiting(queue, asked_source(pattern, number), tag_of(pattern, number), pattern->ignore);

	assert_non_null(found);
	match_take(queue, found);
}

typedef void step(struct match_queue *queue, const struct pattern *pattern, uint32_t number);

/*
 * OUTSTANDING entries of one side arrive, then those of the other. Returns the steps that each costs, tables
 * included.
 */
static double count_steps(const struct pattern *pattern, enum order how, step *come, step *find)
{
	struct match_queue queue;
	uint32_t order[OUTSTANDING];

	assert_int_equal(match_open(&queue, SOURCES, SOURCES), 0);
	make_order(order, OUTSTANDING, how);
	match_steps = 0;
	for (uint32_t i = 0; i < OUTSTANDING; i++)
		come(&queue, pattern, i);
	for (uint32_t i = 0; i < OUTSTANDING; i++)
		find(&queue, pattern, order[i]);
	assert_null(match_each_receive(&queue, NULL));
	assert_true(match_is_empty(&queue.arrivals));
	match_close(&queue);
	return (double)match_steps / (double)OUTSTANDING;
}

/*
 * The bound is for an average over random hashes: a lookup costs 1 to 2 steps, and two wildcards need three
 * tables.
 */
#define STEPS_A_MESSAGE 14.0

static void test_steps_do_not_grow_with_the_number(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		for (enum order how = IN_ORDER; how <= SHUFFLED; how++) {
			double of_receives = count_steps(&patterns[i], how, post_one, find_receive);
			double of_messages = count_steps(&patterns[i], how, keep_one, find_message);
			if (of_receives > STEPS_A_MESSAGE || of_messages > STEPS_A_MESSAGE)
				fail_msg("%s, order %d: %.1f steps a receive, %.1f a message",
					 patterns[i].name, (int)how, of_receives, of_messages);
			print_message("%s, order %d: %.1f %.1f\n", patterns[i].name, (int)how, of_receives,
				      of_messages);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_like_arrays_searched_in_order),
		cmocka_unit_test(test_a_queue_without_room_is_not_opened),
		cmocka_unit_test(test_nothing_is_lost_without_memory),
		cmocka_unit_test(test_steps_do_not_grow_with_the_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
