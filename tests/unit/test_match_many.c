/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching among many: against the plainest way to match, by counting steps, and without
 * memory for tables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "match/match.h"

#define SOURCES 5U
#define ANY MATCH_ANY_SOURCE

uint64_t match_steps;

/* ---- an allocator that can fail ---- */

static uint32_t allocations_fail; /* of 256, at random */
static uint32_t allocations_before_failing;
static uint64_t allocation_seed = 99;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)((*state >> 11) % limit);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	if (allocations_before_failing > 0)
		allocations_before_failing--;
	else if (allocations_fail > 0 && random_below(&allocation_seed, 256) < allocations_fail)
		return NULL;
	return __real_calloc(count, bytes);
}

/* ---- the plainest way: arrays in order, searched from their beginning ---- */

enum { MOST = 1200 };

struct model {
	struct match_queue queue;
	uint64_t random;
	uint64_t seed;
	struct match_receive *receives[MOST];
	struct match_message *messages[MOST];
	uint32_t receive_count;
	uint32_t message_count;
	uint32_t most_receives;
	uint32_t most_messages;
	bool tables_of_both; /* both were in tables at a time */
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

static void forget_receive(struct model *model, uint32_t place)
{
	memmove(&model->receives[place], &model->receives[place + 1],
		(--model->receive_count - place) * sizeof(model->receives[0]));
}

static void forget_message(struct model *model, uint32_t place)
{
	memmove(&model->messages[place], &model->messages[place + 1],
		(--model->message_count - place) * sizeof(model->messages[0]));
}

/* ---- what applications and peers do, to both ---- */

struct habits {
	uint32_t tags;    /* different tags */
	uint32_t posts;   /* of 100 steps */
	uint32_t cancels; /* of 100 steps */
	const uint64_t *ignores;
	uint32_t ignore_count;
	uint32_t any; /* of 100 receives */
};

/* MPI_ANY_TAG, and a protocol bit that always is ignored. */
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
	uint32_t place = 0;

	while (place < model->message_count &&
	       !takes(&asked, model->messages[place]->key.source, model->messages[place]->key.tag))
		place++;
	struct match_message *found = match_waiting(&model->queue, source, tag, ignore);
	CHECK(model, found == (place < model->message_count ? model->messages[place] : NULL));
	if (found != NULL) {
		/* One in eight only looks. */
		if (random_below(&model->random, 8) != 0) {
			match_take(&model->queue, found);
			free(found);
			forget_message(model, place);
		}
		return;
	}
	if (model->receive_count == MOST)
		return;
	struct match_receive *receive = malloc(sizeof(*receive));
	CHECK(model, receive != NULL);
	memset(receive, 0x5a, sizeof(*receive)); /* as from a pool: what a former user left */
	receive->key = asked.key;
	receive->ignore = ignore;
	match_post(&model->queue, receive);
	model->receives[model->receive_count++] = receive;
}

static void arrive(struct model *model, const struct habits *habits)
{
	uint32_t source = random_below(&model->random, SOURCES);
	uint64_t tag = random_tag(model, habits);
	uint32_t place = 0;

	while (place < model->receive_count && !takes(model->receives[place], source, tag))
		place++;
	struct match_receive *found = match_arrival(&model->queue, source, tag);
	CHECK(model, found == (place < model->receive_count ? model->receives[place] : NULL));
	if (found != NULL) {
		/* One in eight is for several messages, and stays. */
		if (random_below(&model->random, 8) != 0) {
			match_withdraw(&model->queue, found);
			free(found);
			forget_receive(model, place);
		}
		return;
	}
	if (model->message_count == MOST)
		return;
	struct match_message *message = malloc(sizeof(*message));
	CHECK(model, message != NULL);
	memset(message, 0x5a, sizeof(*message));
	message->key = (struct match_key){tag, source};
	match_keep(&model->queue, message);
	model->messages[model->message_count++] = message;
}

static void cancel(struct model *model)
{
	if (model->receive_count == 0)
		return;
	uint32_t place = random_below(&model->random, model->receive_count);
	match_withdraw(&model->queue, model->receives[place]);
	free(model->receives[place]);
	forget_receive(model, place);
}

/* The walk meets each receive once. */
static void check_walk(struct model *model)
{
	uint32_t met = 0;
	uint64_t sum = 0;

	for (struct match_receive *receive = NULL;
	     (receive = match_each_receive(&model->queue, receive)) != NULL; met++)
		sum += receive->sequence;
	for (uint32_t i = 0; i < model->receive_count; i++)
		sum -= model->receives[i]->sequence;
	CHECK(model, met == model->receive_count);
	CHECK(model, model->queue.posted == model->receive_count);
	CHECK(model, sum == 0);
}

/* A source fails: its receives and messages go. */
static void fail_source(struct model *model)
{
	uint32_t source = random_below(&model->random, SOURCES);
	struct match_link list;
	uint32_t moved = 0;

	match_list_open(&list);
	match_withdraw_source(&model->queue, source, &list);
	for (struct match_link *link = list.next; link != &list; link = link->next, moved++)
		CHECK(model, match_from_link(link)->key.source == source);
	for (uint32_t place = 0; place < model->receive_count;) {
		if (model->receives[place]->key.source != source) {
			place++;
			continue;
		}
		moved--;
		match_unlink(&model->receives[place]->node.same);
		free(model->receives[place]);
		forget_receive(model, place);
	}
	CHECK(model, moved == 0);
	CHECK(model, match_is_empty(&list));
	struct match_link *head = &model->queue.messages[source];
	while (!match_is_empty(head)) {
		struct match_message *message = match_from_source(head->next);
		uint32_t place = 0;
		while (model->messages[place] != message)
			place++;
		match_take(&model->queue, message);
		free(message);
		forget_message(model, place);
	}
}

static void run_model(struct model *model, uint64_t seed, const struct habits *habits, uint32_t steps)
{
	*model = (struct model){.seed = seed, .random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1};
	assert_int_equal(match_open(&model->queue, SOURCES), 0);
	for (uint32_t step = 0; step < steps; step++) {
		/* Now the application is ahead and now the peers are; in between all is used up. */
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
		if (model->receive_count > model->most_receives)
			model->most_receives = model->receive_count;
		if (model->message_count > model->most_messages)
			model->most_messages = model->message_count;
		model->tables_of_both |= model->queue.receives_in_tables && model->queue.messages_in_tables;
	}
	while (model->receive_count > 0)
		cancel(model);
	CHECK(model, !model->queue.receives_in_tables);
	check_walk(model);
	while (model->message_count > 0) {
		match_take(&model->queue, model->messages[0]);
		free(model->messages[0]);
		forget_message(model, 0);
	}
	CHECK(model, !model->queue.messages_in_tables);
	CHECK(model, match_is_empty(&model->queue.arrivals));
	match_close(&model->queue);
}

static const struct habits all_habits[] = {
	/* few tags: receives and messages meet often */
	{.tags = 8, .posts = 50, .cancels = 2, .ignores = exact, .ignore_count = 1, .any = 20},
	/* many tags: both become many */
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
		most_receives = model->most_receives > most_receives ? model->most_receives : most_receives;
		most_messages = model->most_messages > most_messages ? model->most_messages : most_messages;
		both |= model->tables_of_both;
	}
	/* Else this would not have tried what it is for. */
	assert_in_range(most_receives, 500, MOST);
	assert_in_range(most_messages, 500, MOST);
	assert_true(both);
	free(model);
}

static void test_nothing_is_lost_without_memory(void **state)
{
	struct model *model = malloc(sizeof(*model));

	(void)state;
	assert_non_null(model);
	for (uint64_t seed = 100; seed < 100 + HABITS; seed++) {
		static const uint32_t failures[] = {256, 128, 200, 64};
		struct match_queue queue;
		allocations_fail = 256;
		assert_int_not_equal(match_open(&queue, SOURCES), 0);
		allocations_fail = 0;
		allocation_seed = seed;
		allocations_fail = failures[seed % 4];
		allocations_before_failing = 2; /* match_open(), in run_model() */
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
	uint32_t tags; /* different ones, or 0 for one each */
	uint32_t any;  /* one of so many receives is from any source; 0 for none */
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

/* Where the number says a source and a tag: the same for a receive and for its message. */
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

/* Returns the steps that a message costs, posting and making tables included. */
static double steps_of_receives(const struct pattern *pattern, uint32_t count, enum order how)
{
	struct match_queue queue;
	uint32_t order[OUTSTANDING];

	assert_int_equal(match_open(&queue, SOURCES), 0);
	make_order(order, count, how);
	match_steps = 0;
	for (uint32_t i = 0; i < count; i++) {
		receives[i] = (struct match_receive){
			.key = {tag_of(pattern, i), asked_source(pattern, i)},
			.ignore = pattern->ignore,
		};
		assert_null(match_waiting(&queue, receives[i].key.source, receives[i].key.tag,
					  receives[i].ignore));
		match_post(&queue, &receives[i]);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct match_receive *found =
			match_arrival(&queue, source_of(order[i]), tag_of(pattern, order[i]));
		assert_non_null(found);
		match_withdraw(&queue, found);
	}
	assert_null(match_each_receive(&queue, NULL));
	match_close(&queue);
	return (double)match_steps / count;
}

static double steps_of_messages(const struct pattern *pattern, uint32_t count, enum order how)
{
	struct match_queue queue;
	uint32_t order[OUTSTANDING];

	assert_int_equal(match_open(&queue, SOURCES), 0);
	make_order(order, count, how);
	match_steps = 0;
	for (uint32_t i = 0; i < count; i++) {
		messages[i] = (struct match_message){.key = {tag_of(pattern, i), source_of(i)}};
		assert_null(match_arrival(&queue, source_of(i), tag_of(pattern, i)));
		match_keep(&queue, &messages[i]);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct match_message *found = match_waiting(&queue, asked_source(pattern, order[i]),
							    tag_of(pattern, order[i]), pattern->ignore);
		assert_non_null(found);
		match_take(&queue, found);
	}
	assert_true(match_is_empty(&queue.arrivals));
	match_close(&queue);
	return (double)match_steps / count;
}

/* The bound is of an average over random hashes: a lookup costs 1 to 2 steps, and two wildcards three tables.
 */
#define STEPS_A_MESSAGE 14.0

static void test_steps_do_not_grow_with_the_number(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		for (enum order how = IN_ORDER; how <= SHUFFLED; how++) {
			double of_receives = steps_of_receives(&patterns[i], OUTSTANDING, how);
			double of_messages = steps_of_messages(&patterns[i], OUTSTANDING, how);
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
		cmocka_unit_test(test_nothing_is_lost_without_memory),
		cmocka_unit_test(test_steps_do_not_grow_with_the_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
