/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two members in two threads that share only the region, like processes. ThreadSanitizer finds missing
 * orderings between shared words here.
 */
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define MESSAGES 10000U
#define LARGEST 100000U
#define VISITS 100U
#define SEED 20261U
/* If this many polls in a row find nothing, the test hangs. */
#define LOOKS_MAX 200000000U

/*
 * A thread's own member. A failed check is reported to the main thread, because only the main thread may fail
 * the test.
 */
struct side {
	struct node node;
	const struct side *other;
	uint64_t random; /* both draw the same lengths */
	pthread_t thread;
	char failure[160];
	uint32_t laps;
};

#define EXPECT(side, condition) \
	do { \
		if (!(condition)) { \
			(void)snprintf((side)->failure, sizeof((side)->failure), "%s (line %d)", #condition, \
				       __LINE__); \
			return false; \
		} \
	} while (0)

static size_t next_length(uint64_t *random)
{
	static const uint32_t limits[] = {8, 48, 100, 440, 2000, 5000, 20000, LARGEST};

	return random_below(random, limits[random_below(random, 64) < 56 ? random_below(random, 5)
									 : 5 + random_below(random, 3)] +
					    1);
}

static bool take(struct side *side, struct completion_queue *queue, struct completion *entry)
{
	for (uint32_t look = 0; completion_is_empty(queue); look++) {
		EXPECT(side, look < LOOKS_MAX);
		/* Not at every poll: every 64th poll also does the periodic work. */
		if (messenger_progress(side->node.messenger) == 0 && look % 64 == 63)
			(void)sched_yield();
	}
	*entry = *completion_first(queue);
	queue->head++;
	EXPECT(side, entry->error == 0);
	return true;
}

static bool send_all(struct side *side)
{
	unsigned char *bytes = malloc(LARGEST);
	struct completion entry;
	bool good = bytes != NULL;

	for (uint32_t i = 0; good && i < MESSAGES; i++) {
		size_t length = next_length(&side->random);
		ssize_t result = 0;
		uint64_t flags = i % 5 == 0 ? FI_DELIVERY_COMPLETE : 0;
		fill_bytes(bytes, length, i);
		while ((result = node_send(&side->node, &side->other->node, bytes, length, 1,
					   FI_TAGGED | flags, bytes)) == -EAGAIN)
			if (messenger_progress(side->node.messenger) == 0)
				(void)sched_yield();
		good = result == 0 && take(side, &side->node.sends, &entry);
	}
	free(bytes);
	return good;
}

static bool receive_one(struct side *side, uint32_t number, unsigned char *bytes, unsigned char *expected)
{
	size_t length = next_length(&side->random);
	struct completion entry;

	fill_bytes(expected, length, number);
	/* Sometimes late, so that the message is unexpected. */
	for (uint32_t pause = number % 7 == 0 ? 50 : 0; pause > 0; pause--)
		(void)messenger_progress(side->node.messenger);
	EXPECT(side, node_receive(&side->node, NULL, bytes, LARGEST, 1, FI_TAGGED, bytes) == 0);
	if (!take(side, &side->node.receives, &entry))
		return false;
	EXPECT(side, entry.length == length);
	EXPECT(side, memcmp(bytes, expected, length) == 0);
	return true;
}

static bool receive_all(struct side *side)
{
	unsigned char *bytes = malloc(LARGEST);
	unsigned char *expected = malloc(LARGEST);
	bool good = bytes != NULL && expected != NULL;

	for (uint32_t i = 0; good && i < MESSAGES; i++)
		good = receive_one(side, i, bytes, expected);
	free(bytes);
	free(expected);
	return good;
}

static void *run_sender(void *argument)
{
	(void)send_all(argument);
	return NULL;
}

static void *run_receiver(void *argument)
{
	(void)receive_all(argument);
	return NULL;
}

static void test_two_members_in_two_threads(void **state)
{
	/* Each thread has its own mapping, as two processes would. */
	struct region *region = world_region(4, WORLD_SECTION_BYTES);
	struct side sender = {.random = SEED};
	struct side receiver = {.random = SEED};

	(void)state;
	sender.other = &receiver;
	receiver.other = &sender;
	node_open(&sender.node, region);
	node_open(&receiver.node, region);
	assert_int_equal(pthread_create(&sender.thread, NULL, run_sender, &sender), 0);
	assert_int_equal(pthread_create(&receiver.thread, NULL, run_receiver, &receiver), 0);
	assert_int_equal(pthread_join(sender.thread, NULL), 0);
	assert_int_equal(pthread_join(receiver.thread, NULL), 0);
	if (sender.failure[0] != '\0' || receiver.failure[0] != '\0')
		fail_msg("seed %u: sender: %s; receiver: %s", SEED, sender.failure, receiver.failure);
	assert_int_equal(receiver.node.received.value, MESSAGES);
	node_close(&sender.node);
	node_close(&receiver.node);
	region_detach(region);
}

/* ---- single copies ---- */

#define HEAP_BYTES (512U * 1024U)
#define SECTION_BYTES (WORLD_SECTION_BYTES + HEAP_BYTES)
#define LARGE_MESSAGES 150U
#define LARGE_MIN 66000U
#define LARGE_MAX 260000U

/* Where the buffers are, which decides who may copy. */
enum location { BOTH_PRIVATE, FROM_HEAP, TO_HEAP, BOTH_IN_HEAPS };

struct large {
	struct side *side;
	unsigned char *bytes;
	bool sends;
};

static bool exchange_large(struct large *large)
{
	struct side *side = large->side;
	struct completion entry;

	for (uint32_t i = 0; i < LARGE_MESSAGES; i++) {
		size_t length = LARGE_MIN + random_below(&side->random, LARGE_MAX - LARGE_MIN);
		if (large->sends) {
			/* The peer may read the previous message until it confirms that it has it. */
			fill_bytes(large->bytes, length, i);
			ssize_t result = 0;
			while ((result = node_send(&side->node, &side->other->node, large->bytes, length, 1,
						   FI_TAGGED, NULL)) == -EAGAIN)
				(void)messenger_progress(side->node.messenger);
			EXPECT(side, result == 0 && take(side, &side->node.sends, &entry));
			continue;
		}
		memset(large->bytes, 0xee, length);
		EXPECT(side, node_receive(&side->node, &side->other->node, large->bytes, length, 1, FI_TAGGED,
					  NULL) == 0);
		EXPECT(side, take(side, &side->node.receives, &entry));
		for (size_t at = 0; at < length; at++)
			EXPECT(side, large->bytes[at] == (unsigned char)(at % 251 + at / 251 * 7 + i * 31));
	}
	return true;
}

static void *run_large(void *argument)
{
	(void)exchange_large(argument);
	return NULL;
}

static void copy_once_in_two_threads(enum location location)
{
	struct region *region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES);
	struct side sides[2] = {{.random = SEED}, {.random = SEED}};
	struct large larges[2] = {{&sides[0], NULL, true}, {&sides[1], NULL, false}};
	const bool in_heap[2] = {location == FROM_HEAP || location == BOTH_IN_HEAPS,
				 location == TO_HEAP || location == BOTH_IN_HEAPS};

	for (int i = 0; i < 2; i++) {
		sides[i].other = &sides[!i];
		node_open(&sides[i].node, region);
		assert_int_equal(single_copy_open(sides[i].node.messenger, SINGLE_COPY_ON), 0);
		larges[i].bytes =
			in_heap[i] ? sides[i].node.messenger->transport->heap->base : malloc(LARGE_MAX);
		assert_non_null(larges[i].bytes);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&sides[i].thread, NULL, run_large, &larges[i]), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(sides[i].thread, NULL), 0);
	for (int i = 0; i < 2; i++) {
		if (sides[i].failure[0] != '\0')
			fail_msg("location %d, seed %u: %s: %s", (int)location, SEED,
				 i == 0 ? "sender" : "receiver", sides[i].failure);
		assert_int_equal(sides[i].node.messenger->single->free_count, REGION_TRANSFERS);
		node_close(&sides[i].node);
		if (!in_heap[i])
			free(larges[i].bytes);
	}
	region_detach(region);
}

static void test_single_copies_in_two_threads(void **state)
{
	(void)state;
	copy_once_in_two_threads(BOTH_PRIVATE);
	copy_once_in_two_threads(FROM_HEAP);
	copy_once_in_two_threads(TO_HEAP);
#ifndef __SANITIZE_THREAD__
	/*
	 * Where they meet, both may write the same bytes at once, on purpose: to the sanitizer this is a
	 * race.
	 */
	copy_once_in_two_threads(BOTH_IN_HEAPS);
#endif
}

/* Members that join, send one message and leave again, while another member receives all of them. */
static void *run_visitor(void *argument)
{
	struct side *side = argument;
	struct completion entry;

	for (side->laps = 0; side->laps < VISITS && side->failure[0] == '\0'; side->laps++) {
		node_open(&side->node, side->other->node.messenger->transport->attachments[0].region);
		ssize_t result = 0;
		while ((result = node_send(&side->node, &side->other->node, &side->laps, sizeof(side->laps),
					   9, FI_TAGGED | FI_DELIVERY_COMPLETE, NULL)) == -EAGAIN)
			(void)messenger_progress(side->node.messenger);
		if (result != 0 || !take(side, &side->node.sends, &entry))
			(void)snprintf(side->failure, sizeof(side->failure), "visit %u failed", side->laps);
		node_close(&side->node);
	}
	return NULL;
}

static bool host_visitors(struct side *host, uint32_t visits)
{
	struct completion entry;

	for (uint32_t i = 0; i < visits; i++) {
		uint32_t value = UINT32_MAX;
		EXPECT(host, node_receive(&host->node, NULL, &value, sizeof(value), 9, FI_TAGGED, NULL) == 0);
		if (!take(host, &host->node.receives, &entry))
			return false;
		EXPECT(host, value < VISITS);
	}
	return true;
}

static void test_members_come_and_go_while_others_work(void **state)
{
	struct side host = {.random = SEED};
	struct side visitors[2] = {{.other = &host}, {.other = &host}};

	(void)state;
	node_open(&host.node, world_region(4, REGION_SECTION_MIN));
	struct region *region = host.node.messenger->transport->attachments[0].region;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&visitors[i].thread, NULL, run_visitor, &visitors[i]), 0);
	bool good = host_visitors(&host, 2 * VISITS);
	for (int i = 0; i < 2; i++) {
		/* The last visitors wait until the host knows that they left. */
		while (pthread_tryjoin_np(visitors[i].thread, NULL) != 0)
			(void)messenger_progress(host.node.messenger);
		if (visitors[i].failure[0] != '\0')
			fail_msg("%s", visitors[i].failure);
	}
	if (!good)
		fail_msg("%s", host.failure);
	node_close(&host.node);
	region_detach(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_members_in_two_threads),
		cmocka_unit_test(test_single_copies_in_two_threads),
		cmocka_unit_test(test_members_come_and_go_while_others_work),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
