/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers and words of a hostile peer about a single copy: they cost that peer its connection, or nothing.
 * The victim's operation ends, and its transfer is closed.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#define HEAP_BYTES (512U * 1024U)
#define SECTION_BYTES (WORLD_SECTION_BYTES + HEAP_BYTES)
#define LENGTH 300000U
/* The bytes in the first chunks of a message of this length. */
#define EARLY 8192U
#define GUARD_BYTES 4096U

static struct world world;
static struct node *victim = &world.nodes[0];
static struct node *hostile = &world.nodes[1];
/* The victim's buffer in private memory. */
static unsigned char guarded[GUARD_BYTES + LENGTH + GUARD_BYTES];
static unsigned char *private_bytes = guarded + GUARD_BYTES;
static unsigned char hostile_bytes[LENGTH];

static int open_region(void **state)
{
	(void)state;
	world = (struct world){.count = 2, .region = world_region_with_heaps(2, SECTION_BYTES, HEAP_BYTES)};
	return 0;
}

static int close_region(void **state)
{
	(void)state;
	region_detach(world.region);
	return 0;
}

/* Connected in both directions, so that each end sees the other's changes at its next poll. */
static void open_nodes(enum single_copy_policy policy)
{
	char byte = 0;

	memset(guarded, 0x77, sizeof(guarded));
	for (uint32_t i = 0; i < 2; i++) {
		node_open(&world.nodes[i], world.region);
		assert_int_equal(node_slot(&world.nodes[i]), i);
		assert_int_equal(single_copy_open(world.nodes[i].messenger, policy), 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct node *node = &world.nodes[i];
		struct node *other = &world.nodes[!i];
		assert_int_equal(node_receive(other, node, &byte, 1, 0, FI_TAGGED, NULL), 0);
		assert_int_equal(node_send(node, other, "x", 1, 0, FI_TAGGED, NULL), 0);
		(void)world_await_good(&world, &node->sends);
		(void)world_await_good(&world, &other->receives);
	}
}

static void step(struct node *node, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		(void)messenger_progress(node->messenger);
}

/* The hostile node dies, and all operations end. By then `operations` of the victim have ended. */
static void end_nodes(const char *what, uint32_t operations)
{
	node_die(hostile);
	for (int round = 0; round < 2; round++) {
		step(victim, 100);
		transport_check_peers(victim->messenger->transport);
	}
	/* Failed peers are checked several times a second. */
	uint32_t ended = 0;
	for (uint32_t round = 0; round < WORLD_PATIENCE; round++) {
		step(victim, 100);
		ended = victim->sends.tail - victim->sends.head + victim->receives.tail -
			victim->receives.head;
		if (ended >= operations && victim->messenger->copying == 0)
			break;
	}
	if (ended != operations)
		fail_msg("%s: %u operations ended, of %u", what, ended, operations);
	if (victim->messenger->copying != 0 || victim->messenger->single->free_count != REGION_TRANSFERS)
		fail_msg("%s: a transfer stays open", what);
	for (uint32_t i = 0; i < GUARD_BYTES; i++)
		if (guarded[i] != 0x77 || guarded[GUARD_BYTES + LENGTH + i] != 0x77)
			fail_msg("%s: byte %u beside the buffer was written", what, i);
	node_close(victim);
}

static void assert_failed(const char *what, bool expected)
{
	bool failed = world_peer(victim, hostile)->peer.state == PEER_FAILED;

	if (failed != expected)
		fail_msg("%s: %s", what, failed ? "was refused" : "was accepted");
	if (failed)
		assert_int_equal(world_peer(victim, hostile)->peer.failure, -EPROTO);
}

/* ---- words ---- */

static unsigned char *heap_of(const struct node *node)
{
	return node->messenger->transport->heap->base;
}

/* Begin one message between the two, and go as far as `stage`. */
static void begin(bool victim_sends, bool in_region, uint32_t stage)
{
	struct node *from = victim_sends ? victim : hostile;
	struct node *to = victim_sends ? hostile : victim;
	unsigned char *mine = in_region ? heap_of(victim) : private_bytes;
	unsigned char *its = in_region ? heap_of(hostile) : hostile_bytes;

	assert_int_equal(node_receive(to, from, victim_sends ? its : mine, LENGTH, 5, FI_TAGGED, NULL), 0);
	assert_int_equal(node_send(from, to, victim_sends ? mine : its, LENGTH, 5, FI_TAGGED, NULL), 0);
	if (stage >= 1)
		step(to, 1); /* has answered and begun */
	if (stage >= 2)
		step(from, 1); /* the sender has begun as well */
}

static const uint64_t values[] = {
	0, 1, 8191, 8192, 8193, 100000, LENGTH - 1, LENGTH, LENGTH + 1, UINT32_MAX, INT64_MAX, UINT64_MAX,
};
#define VALUES (sizeof(values) / sizeof(values[0]))

static void try_lines(bool victim_sends, uint32_t word, uint32_t stage, uint64_t value)
{
	char what[100];

	(void)snprintf(what, sizeof(what), "%s, word %u of the line is %llu at stage %u",
		       victim_sends ? "sending" : "receiving", word, (unsigned long long)value, stage);
	open_nodes(SINGLE_COPY_AUTO);
	begin(victim_sends, true, stage);
	uint32_t lines = 0;
	for (uint32_t index = 0; index < REGION_TRANSFERS; index++) {
		struct transfer_line *line = section_transfer(world.region, node_slot(hostile), index);
		shared_u64 *words[] = {&line->id, &line->claimed, &line->done, &line->offset, &line->peer};
		if (shared_load_u64(&line->id) == 0)
			continue;
		lines++;
		shared_store_u64(words[word], value);
	}
	/* A sender's line is there from the beginning. */
	assert_int_equal(lines, victim_sends && stage == 0 ? 0 : 1);
	step(victim, 200);
	end_nodes(what, 1);
}

static void test_every_word_of_a_line(void **state)
{
	(void)state;
	for (int victim_sends = 0; victim_sends < 2; victim_sends++)
		for (uint32_t stage = (uint32_t)victim_sends; stage < 3; stage++)
			for (uint32_t word = 0; word < 5; word++)
				for (size_t i = 0; i < VALUES; i++)
					try_lines(victim_sends, word, stage, values[i]);
}

static void try_record(bool victim_sends, uint32_t word, uint32_t stage, uint64_t value)
{
	char what[100];

	(void)snprintf(what, sizeof(what), "%s, word %u of the record is %llu at stage %u",
		       victim_sends ? "sending" : "receiving", word, (unsigned long long)value, stage);
	open_nodes(SINGLE_COPY_ON);
	begin(victim_sends, false, stage);
	struct process_transfer *transfers = hostile->messenger->single->offer.record->transfers;
	uint32_t open = 0;
	for (uint32_t index = 0; index < REGION_TRANSFERS; index++) {
		struct process_transfer *transfer = &transfers[index];
		_Atomic uint64_t *words[] = {&transfer->line.secret, &transfer->line.id,
					     &transfer->line.claimed, &transfer->line.done};
		if (transfer->line.id == 0)
			continue;
		open++;
		switch (word) {
		case 4:
			transfer->member = value;
			break;
		case 5:
			transfer->operation = value;
			break;
		case 6:
			transfer->bytes = value;
			break;
		case 7:
			transfer->count = value;
			break;
		case 8:
			transfer->pieces[0].iov_base = (void *)(uintptr_t)value;
			break;
		case 9:
			transfer->pieces[0].iov_len = (size_t)value;
			break;
		default:
			*words[word] = value;
			break;
		}
	}
	assert_int_equal(open, victim_sends && stage == 0 ? 0 : 1);
	step(victim, 200);
	end_nodes(what, 1);
}

static void test_every_word_of_a_record(void **state)
{
	(void)state;
	for (int victim_sends = 0; victim_sends < 2; victim_sends++)
		for (uint32_t stage = (uint32_t)victim_sends; stage < 3; stage++)
			/* The words behind the line are read once, when the victim begins. */
			for (uint32_t word = 0; word < (stage == (uint32_t)victim_sends ? 10U : 4U); word++)
				for (size_t i = 0; i < VALUES; i++)
					try_record(victim_sends, word, stage, values[i]);
}

/* The hostile end's open lines claim and report as copied everything up to `until`. */
static void show_until(bool in_region, uint64_t until)
{
	struct process_transfer *transfers = hostile->messenger->single->offer.record->transfers;

	for (uint32_t index = 0; index < REGION_TRANSFERS; index++) {
		struct transfer_line *line = section_transfer(world.region, node_slot(hostile), index);
		if (in_region && shared_load_u64(&line->id) != 0) {
			shared_store_u64(&line->claimed, until);
			shared_store_u64(&line->done, until);
		} else if (!in_region && transfers[index].line.id != 0) {
			transfers[index].line.claimed = until;
			transfers[index].line.done = until;
		}
	}
}

/*
 * Neither end copies the early bytes. A sender that claims them claims the rest as well. If that were
 * believed, the receive would end without the rest in its buffer.
 */
static void test_claims_of_what_came_early(void **state)
{
	static const uint64_t claims[] = {0, EARLY - 1};

	(void)state;
	for (int victim_sends = 0; victim_sends < 2; victim_sends++)
		for (int in_region = 0; in_region < 2; in_region++)
			for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
				open_nodes(in_region ? SINGLE_COPY_AUTO : SINGLE_COPY_ON);
				begin(victim_sends, in_region, (uint32_t)victim_sends);
				show_until(in_region, claims[i]);
				step(victim, 200);
				assert_failed("a claim of the early bytes", true);
				end_nodes("a claim of the early bytes", 1);
			}
}

/* ---- answers ---- */

static void write_slot(uint32_t kind, uint32_t length, uint64_t word, const void *payload, size_t bytes)
{
	struct ring_out *ring = &world_peer(hostile, victim)->peer.out;
	struct ring_slot *to = ring_next(ring, 0);

	shared_store_u64(&to->word, word);
	shared_copy_out(to->payload, payload, bytes);
	ring_push(ring, control_word(kind, 0, length), 1);
}

static void clear(uint64_t id, const struct wire_clear *answer)
{
	write_slot(WIRE_CLEAR, 0, id, answer, sizeof(*answer));
	step(victim, 100);
}

static void resume(uint64_t id, uint64_t from)
{
	const struct wire_resume answer = {.id = 1, .from = from};

	write_slot(WIRE_RESUME, 0, id, &answer, sizeof(answer));
	step(victim, 100);
}

/* The victim offers a message, and the hostile node does not answer by itself. Returns the send's id. */
static uint64_t offer(bool in_region)
{
	unsigned char *bytes = in_region ? heap_of(victim) : private_bytes;

	assert_int_equal(node_send(victim, hostile, bytes, LENGTH, 5, FI_TAGGED, NULL), 0);
	assert_false(match_is_empty(&victim->messenger->awaiting));
	return ((const struct send *)(void *)victim->messenger->awaiting.previous)->id;
}

/* The receiver's line may be any line. This is the first line of the first transfer. */
#define FIRST_TRANSFER 0x100U

static void test_answers_that_cannot_be(void **state)
{
	const uint64_t heap = WORLD_SECTION_BYTES;
	const struct {
		const char *what;
		struct wire_clear answer;
		bool in_region; /* the victim's buffer */
		bool good;
	} cases[] = {
		{"an invalid copy method",
		 {.method = 3, .transfer = FIRST_TRANSFER, .accepted = LENGTH},
		 true,
		 false},
		{"the largest copy method",
		 {.method = UINT32_MAX, .transfer = FIRST_TRANSFER, .accepted = LENGTH},
		 true,
		 false},
		{"a transfer beyond the table",
		 {.method = WIRE_BY_REGION,
		  .transfer = 0x100 | REGION_TRANSFERS,
		  .accepted = LENGTH,
		  .offset = heap},
		 true,
		 false},
		{"a transfer through the kernel beyond the table",
		 {.method = WIRE_BY_PROCESS, .transfer = UINT32_MAX, .accepted = LENGTH},
		 false,
		 false},
		{"an offset before the heap",
		 {.method = WIRE_BY_REGION,
		  .transfer = FIRST_TRANSFER,
		  .accepted = LENGTH,
		  .offset = heap - 1},
		 true,
		 false},
		{"an offset across the heap's end",
		 {.method = WIRE_BY_REGION,
		  .transfer = FIRST_TRANSFER,
		  .accepted = LENGTH,
		  .offset = SECTION_BYTES - LENGTH + 1},
		 true,
		 false},
		{"an offset behind the heap",
		 {.method = WIRE_BY_REGION,
		  .transfer = FIRST_TRANSFER,
		  .accepted = LENGTH,
		  .offset = SECTION_BYTES},
		 true,
		 false},
		{"an offset far away",
		 {.method = WIRE_BY_REGION,
		  .transfer = FIRST_TRANSFER,
		  .accepted = LENGTH,
		  .offset = UINT64_MAX - 10},
		 true,
		 false},
		{"no offset, and no buffer of the victim in the heap",
		 {.method = WIRE_BY_REGION, .transfer = FIRST_TRANSFER, .accepted = LENGTH},
		 false,
		 false},
		{"more bytes than the message has",
		 {.method = WIRE_BY_REGION,
		  .transfer = FIRST_TRANSFER,
		  .accepted = LENGTH + 1,
		  .offset = heap},
		 true,
		 false},
		{"only the early bytes",
		 {.method = WIRE_BY_REGION, .transfer = FIRST_TRANSFER, .accepted = 8192, .offset = heap},
		 true,
		 false},
		{"an offset at the heap's end",
		 {.method = WIRE_BY_REGION,
		  .transfer = FIRST_TRANSFER,
		  .accepted = LENGTH,
		  .offset = SECTION_BYTES - LENGTH},
		 true,
		 true},
		{"no offset, and the victim's buffer in the heap",
		 {.method = WIRE_BY_REGION, .transfer = FIRST_TRANSFER, .accepted = LENGTH},
		 true,
		 true},
		{"a transfer through the kernel that is not open",
		 {.method = WIRE_BY_PROCESS, .transfer = FIRST_TRANSFER, .accepted = LENGTH},
		 false,
		 true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_nodes(SINGLE_COPY_ON);
		clear(offer(cases[i].in_region), &cases[i].answer);
		assert_failed(cases[i].what, !cases[i].good);
		end_nodes(cases[i].what, 1);
	}
}

static void test_resumptions_that_cannot_be(void **state)
{
	static const struct {
		const char *what;
		uint64_t from;
		uint32_t method;
		bool cleared;
		bool good;
	} cases[] = {
		{"before the CLEAR", 8192, WIRE_BY_REGION, false, false},
		{"of a message that goes in pieces", 8192, WIRE_BY_PIECES, true, false},
		{"from the early bytes", 8191, WIRE_BY_REGION, true, false},
		{"from behind the end", LENGTH + 1, WIRE_BY_REGION, true, false},
		{"from the largest offset", UINT64_MAX, WIRE_BY_REGION, true, false},
		{"from the beginning of the copy", 8192, WIRE_BY_REGION, true, true},
		{"from the last byte", LENGTH - 1, WIRE_BY_REGION, true, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_nodes(SINGLE_COPY_AUTO);
		uint64_t id = offer(true);
		if (cases[i].cleared)
			clear(id, &(struct wire_clear){.method = cases[i].method,
						       .transfer = FIRST_TRANSFER,
						       .accepted = LENGTH});
		assert_failed(cases[i].what, false);
		resume(id, cases[i].from);
		assert_failed(cases[i].what, !cases[i].good);
		if (cases[i].good) {
			resume(id, cases[i].from);
			assert_failed("twice", true);
		}
		end_nodes(cases[i].what, 1);
	}
}

/* The peer claims the whole message, copies nothing, breaks the protocol, and lives. */
static void test_a_liar_that_lives_holds_no_receive(void **state)
{
	const struct match_link *pulling = NULL;

	(void)state;
	open_nodes(SINGLE_COPY_AUTO);
	begin(false, true, 1);
	pulling = &victim->messenger->single->pulling;
	for (uint32_t index = 0; index < REGION_TRANSFERS; index++) {
		struct transfer_line *line = section_transfer(world.region, node_slot(hostile), index);
		if (shared_load_u64(&line->id) != 0)
			shared_store_u64(&line->claimed, EARLY);
	}
	write_slot(200, 0, 0, NULL, 0);
	step(victim, 100);
	assert_failed("a slot of no kind", true);
	/* It may be copying a part: its receive waits, but not for as long as the peer likes. */
	assert_true(completion_is_empty(&victim->receives));
	assert_false(match_is_empty(pulling));
	struct single_copy *copy = (struct single_copy *)(void *)pulling->next;
	assert_true(copy->draining);
	assert_in_range(copy->drained - monotonic_now(), 0, UINT64_C(1000000000));
	copy->drained = monotonic_now();
	step(victim, 1);
	assert_int_equal(completion_first(&victim->receives)->error, EPROTO);
	end_nodes("a liar that lives", 1);
}

/* An answer from a peer to which nothing was offered is not believed. */
static void test_an_answer_to_no_offer(void **state)
{
	(void)state;
	open_nodes(SINGLE_COPY_OFF);
	clear(offer(false), &(struct wire_clear){.method = WIRE_BY_REGION,
						 .transfer = FIRST_TRANSFER,
						 .accepted = LENGTH,
						 .offset = WORLD_SECTION_BYTES});
	assert_failed("an answer to no offer", true);
	node_die(hostile);
	transport_check_peers(victim->messenger->transport);
	step(victim, 100);
	assert_int_equal(completion_first(&victim->sends)->error, EPROTO);
	node_close(victim);
}

/* During a single copy no piece may come, and no acknowledgement before the CLEAR. */
static void test_pieces_and_acknowledgements_out_of_turn(void **state)
{
	const struct wire_piece piece = {.chunk = 0, .offset = (uint32_t)SECTION_ARENA_OFFSET(2)};
	struct wire_clear answer;

	(void)state;
	open_nodes(SINGLE_COPY_AUTO);
	begin(false, true, 1);
	const struct ring_out *ring = &world_peer(victim, hostile)->peer.out;
	const struct ring_slot *last = &ring->slots[(ring->position - 1) & ring->mask];
	assert_int_equal(control_kind(shared_load_u64(&last->control)), WIRE_CLEAR);
	shared_copy_in(&answer, last->payload, sizeof(answer));
	assert_int_equal(answer.method, WIRE_BY_REGION);
	write_slot(WIRE_PIECE, 1000, answer.id, &piece, sizeof(piece));
	step(victim, 100);
	assert_failed("a piece of a single copy", true);
	end_nodes("a piece", 1);

	open_nodes(SINGLE_COPY_AUTO);
	write_slot(WIRE_ACKNOWLEDGE, 0, offer(true), &piece, sizeof(piece));
	step(victim, 100);
	assert_failed("an acknowledgement before the CLEAR", true);
	end_nodes("an acknowledgement", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_word_of_a_line),
		cmocka_unit_test(test_every_word_of_a_record),
		cmocka_unit_test(test_claims_of_what_came_early),
		cmocka_unit_test(test_a_liar_that_lives_holds_no_receive),
		cmocka_unit_test(test_answers_that_cannot_be),
		cmocka_unit_test(test_resumptions_that_cannot_be),
		cmocka_unit_test(test_an_answer_to_no_offer),
		cmocka_unit_test(test_pieces_and_acknowledgements_out_of_turn),
	};
	return cmocka_run_group_tests(tests, open_region, close_region);
}
