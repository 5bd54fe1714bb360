/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything at once between three peers of a region that switch to the network and back at any time.
 * Messages of all protocols go to receives from any source, with reads, writes and atomics; sometimes one
 * peer does not poll for a while. Buffers are in private memory, and in the region, where messages are copied
 * once and memory is accessed directly. Each message arrives once, whole, and in the order of sending.
 */
#include "fake_core.h"
#include "random.h"

#include "transport/switch.h"

#include <stdlib.h>

#define MESSAGE_MAX 300000U
#define WINDOW_BYTES 200000U
#define AT_ONCE 24U
#define RECEIVES_AT_ONCE 12U
#define KEY 5U
#define HEAP_BYTES ((uint64_t)16 << 20)

/* The buffer of an operation that is not over. */
struct buffer_in_use {
	unsigned char *bytes;
	size_t length;
	uint32_t whom;
	uint64_t seed;
	uint64_t order; /* of a receive: its number in posting order */
	enum { NOTHING, SENDS, RECEIVES, WRITES, READS, ADDS } use;
};

/* The message of a receive, for all receives in posting order. */
struct got {
	uint32_t from;
	uint64_t number;
	bool over;
};

struct player {
	struct far_node *far;
	struct registration registration;
	struct registration_table table;
	unsigned char *window; /* a part for each writer, and a counter */
	struct buffer_in_use buffers[AT_ONCE];
	uint64_t sent[FAKE_ENDS]; /* messages to each peer */
	uint64_t written[FAKE_ENDS];
	bool busy_window[FAKE_ENDS];
	uint64_t added; /* our additions to the next peer's counter */
	struct got *got;
	uint64_t posted;
	uint64_t received;
};

static struct fake_world world;
static struct player players[FAKE_ENDS];
static uint64_t seed;
static uint64_t messages;
static uint64_t operations;
static uint64_t requests;
static uint64_t switches;    /* of one direction of a pair */
static uint64_t late_copies; /* polls during which a single copy went on after a switch */

static struct transport *transport_of(const struct player *player)
{
	return player->far->node.messenger->transport;
}

static uint32_t number_of(uint64_t source)
{
	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		if (transport_of(&players[i])->attachments[0].member->slot == (uint32_t)source)
			return i;
	fail_msg("a message from nobody");
	return 0;
}

static struct msg_peer *peer(const struct player *at, const struct player *whom)
{
	return world_peer(&at->far->node, &whom->far->node);
}

static void *get(const struct player *player, bool in_heap, size_t bytes)
{
	void *memory = in_heap ? heap_allocate(transport_of(player)->heap, bytes, 1, true) : calloc(1, bytes);

	assert_non_null(memory);
	return memory;
}

static void give_back(void *memory, bool in_heap)
{
	if (in_heap)
		(void)heap_release(memory);
	else
		free(memory);
}

/* With heaps, every other buffer and all windows are in the heap. */
static bool lies_in_heap(uint32_t buffer, bool heaps)
{
	return heaps && buffer % 2 == 0;
}

static void open_players(uint64_t most, bool heaps, bool queues)
{
	fake_open_shared(&world, heaps ? HEAP_BYTES : 0);
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		struct player *player = &players[i];
		*player = (struct player){.far = &world.nodes[i]};
		player->window = get(player, heaps, (size_t)FAKE_ENDS * WINDOW_BYTES);
		player->got = calloc(most, sizeof(*player->got));
		assert_non_null(player->got);
		for (uint32_t k = 0; k < AT_ONCE; k++)
			player->buffers[k].bytes = get(player, lies_in_heap(k, heaps), MESSAGE_MAX);
		player->registration = (struct registration){
			.key = KEY,
			.base = player->window,
			.length = (size_t)FAKE_ENDS * WINDOW_BYTES,
			.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
			.enabled = true,
		};
		registrations_open(&player->table);
		assert_int_equal(registrations_add(&player->table, &player->registration), 0);
		player->far->node.messenger->registrations = &player->table;
		player->far->node.messenger->send_queues.most = queues ? SEND_QUEUE_BYTES : 0;
		if (heaps) {
			direct_expose(player->far->node.messenger, &player->registration);
			assert_int_equal(single_copy_open(player->far->node.messenger, SINGLE_COPY_ON), 0);
		}
	}
}

static void close_players(bool heaps)
{
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		for (uint32_t k = 0; k < AT_ONCE; k++)
			give_back(players[i].buffers[k].bytes, lies_in_heap(k, heaps));
		give_back(players[i].window, heaps);
	}
	fake_close(&world);
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		registrations_close(&players[i].table);
		free(players[i].got);
	}
}

static struct buffer_in_use *free_buffer(struct player *player)
{
	for (uint32_t k = 0; k < AT_ONCE; k++)
		if (player->buffers[k].use == NOTHING)
			return &player->buffers[k];
	return NULL;
}

/* Lengths of all protocols, and sometimes their limits. */
static size_t random_length(void)
{
	static const uint32_t most[] = {16, 48, 100, 441, 4096, 5000, 17000, 70000, MESSAGE_MAX};

	return random_below(&seed, most[random_below(&seed, 9)]);
}

static void send_one(struct player *player)
{
	struct buffer_in_use *buffer = free_buffer(player);
	uint32_t whom = random_below(&seed, FAKE_ENDS);
	struct player *to = &players[whom];

	if (buffer == NULL || to == player)
		return;
	uint64_t number = player->sent[whom];
	buffer->length = random_length();
	fill_bytes(buffer->bytes, buffer->length, number * 7 + buffer->length);
	struct iovec piece = {buffer->bytes, buffer->length};
	ssize_t result =
		messenger_send(player->far->node.messenger,
			       &(struct send_request){
				       .pieces = &piece,
				       .count = 1,
				       .length = buffer->length,
				       .to = peer(player, to),
				       .tag = number,
				       .context = buffer,
				       .flags = FI_TAGGED | FI_COMPLETION |
						(random_below(&seed, 8) == 0 ? FI_DELIVERY_COMPLETE : 0),
			       });
	if (result == -EAGAIN)
		return;
	assert_int_equal(result, 0);
	buffer->use = SENDS;
	player->sent[whom]++;
	messages++;
}

static void post_one(struct player *player)
{
	struct buffer_in_use *buffer = free_buffer(player);

	if (buffer == NULL || player->posted - player->received == RECEIVES_AT_ONCE)
		return;
	struct iovec piece = {buffer->bytes, MESSAGE_MAX};
	buffer->use = RECEIVES;
	buffer->order = player->posted++;
	assert_int_equal(messenger_receive(player->far->node.messenger,
					   &(struct receive_request){
						   .pieces = &piece,
						   .count = 1,
						   .source = MATCH_ANY_SOURCE,
						   .ignore = UINT64_MAX,
						   .context = buffer,
						   .flags = FI_TAGGED | FI_COMPLETION,
					   }),
			 0);
}

/* Write our part of another peer's window, which only we write, or read it when the write is over. */
static void reach(struct player *player, bool reads)
{
	struct buffer_in_use *buffer = free_buffer(player);
	uint32_t self = (uint32_t)(player - players);
	uint32_t whom = random_below(&seed, FAKE_ENDS);

	if (buffer == NULL || whom == self || player->busy_window[whom] ||
	    (reads && player->written[whom] == 0))
		return;
	size_t length = reads ? WINDOW_BYTES - 8 : random_below(&seed, 2) ? WINDOW_BYTES - 8 : 400;
	uint64_t value = player->written[whom] + (reads ? 0 : 1);
	if (!reads)
		fill_bytes(buffer->bytes, length, value);
	const struct iovec piece = {buffer->bytes, length};
	const struct fi_rma_iov range = {(uint64_t)self * WINDOW_BYTES, length, KEY};
	ssize_t result = messenger_remote(player->far->node.messenger,
					  &(struct remote_request){
						  .kind = reads ? REMOTE_READ : REMOTE_WRITE,
						  .pieces = &piece,
						  .count = 1,
						  .length = length,
						  .ranges = &range,
						  .range_count = 1,
						  .to = peer(player, &players[whom]),
						  .context = buffer,
						  .flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
					  });
	if (result == -EAGAIN)
		return;
	assert_int_equal(result, 0);
	*buffer = (struct buffer_in_use){buffer->bytes, length, whom, value, 0, reads ? READS : WRITES};
	player->busy_window[whom] = true;
	player->written[whom] = value;
	operations++;
}

/* Add one to the next peer's counter, which lies behind its own part. */
static void add(struct player *player)
{
	static const uint64_t one = 1;
	uint32_t whom = (uint32_t)(player - players + 1) % FAKE_ENDS;
	const struct iovec piece = {(void *)(uintptr_t)&one, 8};
	const struct fi_rma_iov range = {(uint64_t)whom * WINDOW_BYTES, 8, KEY};
	ssize_t result =
		messenger_remote(player->far->node.messenger, &(struct remote_request){
								      .kind = REMOTE_ATOMIC,
								      .pieces = &piece,
								      .count = 1,
								      .length = 8,
								      .ranges = &range,
								      .range_count = 1,
								      .to = peer(player, &players[whom]),
								      .flags = FI_INJECT,
								      .datatype = FI_UINT64,
								      .operation = FI_SUM,
								      .form = ATOMIC_BASE,
							      });
	if (result == -EAGAIN)
		return;
	assert_int_equal(result, 0);
	player->added++;
	operations++;
}

static void take_completions(struct player *player)
{
	while (!completion_is_empty(&player->far->node.sends)) {
		struct completion got = fake_next(&player->far->node.sends);
		struct buffer_in_use *buffer = got.context;
		if (got.error != 0)
			fail_msg("an operation failed: %s", got.reason);
		if (buffer->use == READS) {
			/* The last short write may have changed the beginning. */
			assert_bytes(buffer->bytes, 400, buffer->seed);
		}
		if (buffer->use == READS || buffer->use == WRITES)
			player->busy_window[buffer->whom] = false;
		buffer->use = NOTHING;
	}
	while (!completion_is_empty(&player->far->node.receives)) {
		struct completion got = fake_next(&player->far->node.receives);
		struct buffer_in_use *buffer = got.context;
		if (got.error != 0)
			fail_msg("a receive failed: %s", got.reason);
		assert_bytes(buffer->bytes, got.length, got.tag * 7 + got.length);
		player->got[buffer->order] = (struct got){number_of(got.source), got.tag, true};
		player->received++;
		buffer->use = NOTHING;
	}
}

static void flip(struct player *player)
{
	const struct member *member = transport_of(player)->attachments[0].member;
	struct member_slot *slot = region_slot(player->far->region, member->slot);
	bool network = shared_load_u64(&slot->requested_route) != 0;

	shared_store_u64(&slot->requested_route, network ? 0 : (uint64_t)member->epoch << 32 | 1);
	requests++;
}

static void progress(struct player *player)
{
	(void)messenger_progress(player->far->node.messenger);
	take_completions(player);
}

static void count_switches(void)
{
	static const struct network_peer *before[FAKE_ENDS][FAKE_ENDS];

	for (uint32_t i = 0; i < FAKE_ENDS; i++)
		for (uint32_t k = 0; k < FAKE_ENDS; k++) {
			const struct peer *to =
				transport_of(&players[i])
					->peers[transport_of(&players[k])->attachments[0].member->slot];
			const struct network_peer *now = to != NULL ? to->network : NULL;
			switches += (now != NULL) != (before[i][k] != NULL);
			late_copies += now != NULL &&
				       transport_of(&players[i])
					       ->user->reaches(transport_of(&players[i])->context, to);
			before[i][k] = now;
		}
}

static void act(void)
{
	struct player *player = &players[random_below(&seed, FAKE_ENDS)];

	switch (random_below(&seed, 40)) {
	case 0:
		if (random_below(&seed, 10) == 0)
			flip(player);
		break;
	case 1:
	case 2:
	case 3:
		transport_begin_switches(transport_of(player));
		break;
	case 4:
		player->far->end->refusals = random_below(&seed, 20);
		break;
	case 5:
		reach(player, false);
		break;
	case 6:
		reach(player, true);
		break;
	case 7:
		add(player);
		break;
	case 8:
		for (int i = 0; i < 100; i++)
			progress(player);
		break;
	case 9:
		(void)transport_progress_full(transport_of(player));
		break;
	default:
		if (random_below(&seed, 2) == 0)
			send_one(player);
		else
			post_one(player);
		progress(player);
		break;
	}
}

/* All messages have arrived in order, and all operations are over. */
static void finish(void)
{
	for (uint32_t round = 0;; round++) {
		uint64_t missing = 0;
		for (uint32_t i = 0; i < FAKE_ENDS; i++) {
			struct player *player = &players[i];
			uint64_t due = 0;
			for (uint32_t k = 0; k < FAKE_ENDS; k++)
				due += players[k].sent[i];
			if (player->posted < due)
				post_one(player);
			missing += due - player->received;
			for (uint32_t k = 0; k < AT_ONCE; k++)
				missing += player->buffers[k].use != NOTHING &&
					   player->buffers[k].use != RECEIVES;
			(void)transport_progress_full(transport_of(player));
			progress(player);
		}
		if (missing == 0)
			break;
		if (round == 1000000)
			fail_msg("%lu things never end", (unsigned long)missing);
	}
	fake_settle(&world);
	for (uint32_t i = 0; i < FAKE_ENDS; i++) {
		uint64_t next[FAKE_ENDS] = {0};
		for (uint64_t k = 0; k < players[i].posted; k++) {
			const struct got *got = &players[i].got[k];
			if (got->over)
				assert_int_equal(got->number, next[got->from]++);
		}
		uint64_t counter = 0;
		memcpy(&counter, players[i].window + (size_t)i * WINDOW_BYTES, 8);
		assert_int_equal(counter, players[(i + FAKE_ENDS - 1) % FAKE_ENDS].added);
		assert_int_equal(players[i].far->end->registered, 0);
		assert_int_equal(transport_of(&players[i])->failures, 0);
	}
}

static void test_everything_at_once(void **state)
{
	enum { STEPS = 15000, RUNS = 6 };

	(void)state;
	for (uint64_t run = 0; run < RUNS; run++) {
		seed = 0x5eed + run * 7919;
		bool heaps = run % 2 == 1;
		/* Sends during a switch wait at the sender, or are refused. */
		open_players(STEPS, heaps, run % 4 >= 2);
		for (uint32_t step = 0; step < STEPS; step++) {
			act();
			count_switches();
		}
		finish();
		close_players(heaps);
	}
	print_message("%lu messages, %lu one-sided operations, %lu requests, %lu moves, %lu late copies\n",
		      (unsigned long)messages, (unsigned long)operations, (unsigned long)requests,
		      (unsigned long)switches, (unsigned long)late_copies);
	assert_true(switches > 100);
	assert_true(messages > 1000);
	assert_true(operations > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_everything_at_once)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
