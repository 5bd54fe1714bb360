/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every invalid slot of a hostile peer: the peer loses its connection, and we lose nothing. Answers are in
 * test_violations_answers.c.
 */
#include "hostile_node.h"

#include <stdlib.h>

#define HUGE_ID UINT64_C(0x100000000)
/* Where slots can be. */
#define RING_AT 16384U
/* Count, datatype and operation of a struct wire_atomic. The form is 0. */
#define ATOMIC(count, datatype, operation) \
	((uint64_t)(count) | (uint64_t)(datatype) << 16 | (uint64_t)(operation) << 24)

static const struct {
	const char *what;
	struct slot slots[3];
} violations[] = {
	{"no kind", {{.kind = 0}}},
	{"an unknown kind", {{.kind = 255}}},
	{"a continuation of nothing", {{.kind = WIRE_CONTINUATION}}},
	{"more than a slot inline", {{.kind = WIRE_INLINE, .length = WIRE_INLINE_BYTES + 1}}},
	{"more than a slot inline after data",
	 {{.kind = WIRE_INLINE, .flags = WIRE_DATA, .length = WIRE_INLINE_BYTES - 7}}},
	{"more than a slot inline after data and id",
	 {{.kind = WIRE_INLINE, .flags = WIRE_DATA | WIRE_ACKNOWLEDGED, .length = WIRE_INLINE_BYTES - 15}}},
	{"the largest inline length", {{.kind = WIRE_INLINE, .length = UINT32_MAX}}},
	{"a short message that is inline", {{.kind = WIRE_SHORT, .length = WIRE_INLINE_BYTES}}},
	{"a short message that is too long", {{.kind = WIRE_SHORT, .length = WIRE_SHORT_BYTES + 1}}},
	{"a short message without its second slot", {{.kind = WIRE_SHORT, .length = 60}}},
	{"a short message with another short message as its second slot",
	 {{.kind = WIRE_SHORT, .length = 60}, {.kind = WIRE_INLINE}}},
	{"a chunk beyond what a credit line names",
	 {{.kind = WIRE_EAGER, .length = 8, .payload = {0, 0, CHUNK_AT(REGION_CHUNKS_MAX, 8192)}}}},
	{"a chunk that another message has",
	 {{.kind = WIRE_EAGER, .length = 8, .payload = {0, 0, CHUNK_AT(3, 8192)}},
	  {.kind = WIRE_EAGER, .length = 8, .payload = {0, 0, CHUNK_AT(3, 16384)}}}},
	{"a chunk that the same message has",
	 {{.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}},
	  {.kind = WIRE_EARLY, .length = 1, .payload = {CHUNK_AT(7, 8192)}},
	  {.kind = WIRE_EARLY, .length = 1, .payload = {CHUNK_AT(7, 8256)}}}},
	{"a chunk with no number", {{.kind = WIRE_EAGER, .payload = {0, 0, CHUNK_AT(UINT32_MAX, 8192)}}}},
	{"a chunk beyond the section",
	 {{.kind = WIRE_EAGER, .length = 1, .payload = {0, 0, CHUNK_AT(0, SECTION)}}}},
	{"a chunk across the section's end",
	 {{.kind = WIRE_EAGER, .length = 65, .payload = {0, 0, CHUNK_AT(0, SECTION - 64)}}}},
	{"a chunk far away", {{.kind = WIRE_EAGER, .length = 1, .payload = {0, 0, CHUNK_AT(0, UINT32_MAX)}}}},
	{"a chunk larger than any",
	 {{.kind = WIRE_EAGER, .length = CHUNK_LARGE + 1, .payload = {0, 0, CHUNK_AT(0, 0)}}}},
	{"more early bytes than bytes", {{.kind = WIRE_RENDEZVOUS, .payload = {0, 1, 100, 101, 0}}}},
	{"a first piece longer than the early bytes",
	 {{.kind = WIRE_RENDEZVOUS, .length = 101, .payload = {0, 1, 200, 100, 0}}}},
	{"more early than four chunks",
	 {{.kind = WIRE_RENDEZVOUS,
	   .payload = {0, 1, 1U << 30, (uint64_t)WIRE_EARLY_PIECES *CHUNK_LARGE + 1, 0}}}},
	{"the largest message size", {{.kind = WIRE_RENDEZVOUS, .payload = {0, 1, UINT64_MAX, 0, 0}}}},
	{"a first piece beyond the section",
	 {{.kind = WIRE_RENDEZVOUS, .length = 100, .payload = {0, 1, 100, 100, CHUNK_AT(0, SECTION - 99)}}}},
	{"two large messages, the first not there yet",
	 {{.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}},
	  {.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 2, 100, 100, 0}}}},
	{"an early piece of nothing", {{.kind = WIRE_EARLY, .length = 1}}},
	{"an early piece of a message that is whole",
	 {{.kind = WIRE_RENDEZVOUS, .length = 100, .payload = {0, 1, 100, 100, 0}},
	  {.kind = WIRE_EARLY, .length = 1}}},
	{"an early piece that is too long",
	 {{.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}},
	  {.kind = WIRE_EARLY, .length = 100}}},
	{"an empty early piece",
	 {{.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}}, {.kind = WIRE_EARLY}}},
	{"a piece for a receive that does not exist", {{.kind = WIRE_PIECE, .length = 1, .word = HUGE_ID}}},
	{"a piece with an id beyond the table", {{.kind = WIRE_PIECE, .length = 1, .word = UINT64_MAX}}},
	{"a CLEAR for a send that does not exist", {{.kind = WIRE_CLEAR, .word = HUGE_ID}}},
	{"an acknowledgement of a send that does not exist", {{.kind = WIRE_ACKNOWLEDGE, .word = HUGE_ID}}},
	{"a RESIZE to no slots", {{.kind = WIRE_RESIZE, .word = RING_AT}}},
	{"a RESIZE to too few slots", {{.kind = WIRE_RESIZE, .length = RING_SLOTS_MIN / 2, .word = RING_AT}}},
	{"a RESIZE to too many slots",
	 {{.kind = WIRE_RESIZE, .length = 2 * RING_SLOTS_MAX, .word = RING_AT}}},
	{"a RESIZE to slots that are no power of two",
	 {{.kind = WIRE_RESIZE, .length = 48, .word = RING_AT}}},
	{"a RESIZE to half a line", {{.kind = WIRE_RESIZE, .length = 64, .word = RING_AT + REGION_LINE / 2}}},
	{"a RESIZE behind the section",
	 {{.kind = WIRE_RESIZE, .length = RING_SLOTS_MIN, .word = SECTION - 15 * REGION_LINE}}},
	{"a RESIZE to the last offset",
	 {{.kind = WIRE_RESIZE, .length = RING_SLOTS_MIN, .word = UINT64_MAX - REGION_LINE + 1}}},
	{"a RESIZE with a flag",
	 {{.kind = WIRE_RESIZE, .flags = WIRE_LAST, .length = RING_SLOTS_MIN, .word = RING_AT}}},
	{"a kind after the last", {{.kind = WIRE_ENDED + 1}}},
	{"a write of more than slots can hold", {{.kind = WIRE_WRITE, .length = WIRE_SHORT_BYTES - 7}}},
	{"a write of more than slots can hold after data",
	 {{.kind = WIRE_WRITE, .flags = WIRE_DATA, .length = WIRE_SHORT_BYTES - 15}}},
	{"a write without its second slot", {{.kind = WIRE_WRITE, .length = 41}}},
	{"a write with another write as its second slot",
	 {{.kind = WIRE_WRITE, .length = 41}, {.kind = WIRE_WRITE}}},
	{"a write from beyond the section",
	 {{.kind = WIRE_WRITE_CHUNK, .length = 65, .payload = {0, 0, 0, CHUNK_AT(0, SECTION - 64)}}}},
	{"a write from an invalid chunk",
	 {{.kind = WIRE_WRITE_CHUNK, .payload = {0, 0, 0, CHUNK_AT(REGION_CHUNKS_MAX, 0)}}}},
	{"a write of more than a chunk", {{.kind = WIRE_WRITE_CHUNK, .length = CHUNK_LARGE + 1}}},
	{"a write whose announced rest is too long",
	 {{.kind = WIRE_WRITE_CHUNK, .length = 1, .payload = {0, UINT64_MAX}}}},
	{"a read of more than a chunk", {{.kind = WIRE_READ, .length = WIRE_REMOTE_BYTES + 1}}},
	{"a read of the largest length", {{.kind = WIRE_READ, .length = UINT32_MAX}}},
	{"an atomic with more operands than slots can hold",
	 {{.kind = WIRE_ATOMIC,
	   .length = WIRE_SHORT_BYTES - 15,
	   .payload = {0, ATOMIC(53, FI_INT64, FI_SUM)}}}},
	{"an atomic without its second slot",
	 {{.kind = WIRE_ATOMIC, .length = 40, .payload = {0, ATOMIC(5, FI_INT64, FI_SUM)}}}},
	{"an atomic with too few operands",
	 {{.kind = WIRE_ATOMIC, .length = 8, .payload = {0, ATOMIC(2, FI_INT64, FI_SUM)}}}},
	{"an atomic with operands for an operation without any",
	 {{.kind = WIRE_ATOMIC,
	   .length = 8,
	   .payload = {0, ATOMIC(1, FI_INT64, FI_ATOMIC_READ) | 1ULL << 32}}}},
	{"an atomic on too many elements",
	 {{.kind = WIRE_ATOMIC_CHUNK, .length = 4104, .payload = {0, ATOMIC(513, FI_INT64, FI_SUM)}}}},
	{"an atomic with too many operands",
	 {{.kind = WIRE_ATOMIC_CHUNK, .length = 2 * WIRE_ATOMIC_BYTES + 1}}},
	{"operands from beyond the section",
	 {{.kind = WIRE_ATOMIC_CHUNK,
	   .length = 8,
	   .payload = {0, ATOMIC(1, FI_INT64, FI_SUM), CHUNK_AT(0, SECTION - 7)}}}},
	{"an answer to nothing", {{.kind = WIRE_DONE, .word = 1}}},
	{"an answer to request 0", {{.kind = WIRE_DONE}}},
	{"a reply to nothing", {{.kind = WIRE_REPLY, .word = 1}}},
	{"a reply to nothing in a chunk", {{.kind = WIRE_REPLY_CHUNK, .word = UINT64_MAX}}},
	{"a RESUME of a send that does not exist", {{.kind = WIRE_RESUME, .word = HUGE_ID}}},
	{"an offer to be read over the network", {{.kind = WIRE_OFFER, .payload = {0, 1, 100000, 1, 1}}}},
	{"a write to be read over the network",
	 {{.kind = WIRE_CORE_WRITE, .word = 1, .payload = {7, 0, 100000, 0, 1, 1}}}},
	{"a read over the network", {{.kind = WIRE_CORE_READ, .word = 1, .payload = {7, 0, 100000}}}},
	{"a grant without a request", {{.kind = WIRE_GRANT, .word = 1, .payload = {1, 1, 1}}}},
	{"a return of memory that was not granted", {{.kind = WIRE_RETURN, .word = 1}}},
	{"the end of an operation that was not begun", {{.kind = WIRE_ENDED, .word = 1}}},
	{"a SWITCH with a length", {{.kind = WIRE_SWITCH, .length = 1}}},
	{"a SWITCH with a flag", {{.kind = WIRE_SWITCH, .flags = WIRE_LAST}}},
	{"a SWITCH with a word", {{.kind = WIRE_SWITCH, .word = 1}}},
	{"a SWITCH in the middle of a large message",
	 {{.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}}, {.kind = WIRE_SWITCH}}},
	{"a SWITCH without another transport", {{.kind = WIRE_SWITCH}}},
	{"a part of a reply to nothing", {{.kind = WIRE_REPLY_CHUNK, .flags = WIRE_MORE, .length = 8}}},
	{"a transfer beyond the table",
	 {{.kind = WIRE_RENDEZVOUS, .payload = {0, 1, 100000, UINT64_C(0x1ff) << 32, 0}}}},
};

static void test_slots_that_cannot_be(void **state)
{
	for (size_t i = 0; i < sizeof(violations) / sizeof(violations[0]); i++) {
		if (i > 0) {
			(void)close_hostile_world(state);
			(void)open_hostile_world(state);
		}
		assert_int_equal(hostile_peer()->state, PEER_PRESENT);
		write_slot(&violations[i].slots[0]);
		for (uint32_t k = 1; k < 3 && violations[i].slots[k].kind != 0; k++)
			write_slot(&violations[i].slots[k]);
		progress();
		assert_violation(violations[i].what);
	}
}

/* No receiver waits for ever for an overwritten slot, which belongs neither to this lap nor to the last. */
static void test_a_slot_that_was_written_over(void **state)
{
	static const uint64_t laps[] = {2, 3, 0xffff, 0x8000};

	for (size_t i = 0; i < sizeof(laps) / sizeof(laps[0]); i++) {
		struct ring_slot *next = ring_next(&world_peer(hostile, victim)->peer.out, 0);
		/* What a correct sender leaves there. */
		transport_check_peers(victim->messenger->transport);
		progress();
		assert_int_equal(hostile_peer()->state, PEER_PRESENT);
		shared_store_u64(&next->control, control_word(WIRE_INLINE, 0, 0) | laps[i]);
		progress();
		assert_int_equal(hostile_peer()->state, PEER_PRESENT);
		transport_check_peers(victim->messenger->transport);
		assert_violation("a slot of another lap");
		(void)close_hostile_world(state);
		(void)open_hostile_world(state);
	}
}

/* At every position of several laps, the slot at the receiver's position is never taken for overwritten. */
static void test_rings_are_sound_at_every_position(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * RING_SLOTS_MAX; i++) {
		assert_true(ring_is_sound(&hostile_peer()->in));
		write_slot(&(struct slot){.kind = WIRE_RECLAIM});
		assert_true(ring_is_sound(&hostile_peer()->in));
		progress();
		world_step(&world);
		(void)transport_refresh(hostile->messenger->transport, &world_peer(hostile, victim)->peer, 1);
	}
	assert_int_equal(hostile_peer()->state, PEER_PRESENT);
}

/* A message keeps a limited number of early pieces, however short they are. */
static void test_more_early_pieces_than_there_can_be(void **state)
{
	(void)state;
	write_slot(&(struct slot){.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}});
	for (uint32_t i = 1; i < WIRE_EARLY_PIECES; i++)
		write_slot(
			&(struct slot){.kind = WIRE_EARLY, .length = 1, .payload = {CHUNK_AT(100 + i, 0)}});
	progress();
	assert_int_equal(hostile_peer()->state, PEER_PRESENT);
	write_slot(&(struct slot){.kind = WIRE_EARLY, .length = 1, .payload = {CHUNK_AT(100, 0)}});
	progress();
	assert_violation("one early piece too many");
}

/* An early piece may not be longer than announced, even if the receive that takes it has room. */
static void test_an_early_piece_that_is_too_long_for_its_receive(void **state)
{
	unsigned char *target = malloc(1000);

	(void)state;
	assert_non_null(target);
	assert_int_equal(node_receive(victim, NULL, target, 1000, 5, FI_TAGGED, target), 0);
	write_slot(&(struct slot){.kind = WIRE_RENDEZVOUS,
				  .flags = WIRE_TAGGED,
				  .length = 1,
				  .word = 5,
				  .payload = {0, 1, 1000, 100, 0}});
	write_slot(&(struct slot){.kind = WIRE_EARLY, .length = 98});
	progress();
	assert_int_equal(hostile_peer()->state, PEER_PRESENT);
	write_slot(&(struct slot){.kind = WIRE_EARLY, .length = 2});
	progress();
	assert_violation("an early piece that is too long for its receive");
	assert_false(completion_is_empty(&victim->receives));
	assert_int_equal(completion_first(&victim->receives)->error, EPROTO);
	free(target);
}

/* The early pieces of a member that died are not continued by its successor in the slot. */
static void test_a_successor_cannot_go_on_with_early_pieces(void **state)
{
	static unsigned char target[200000];

	for (int posted = 0; posted < 2; posted++) {
		(void)close_hostile_world(state);
		world_open(&world, 2, 2, WORLD_SECTION_BYTES);
		if (posted)
			assert_int_equal(node_receive(victim, NULL, target, sizeof(target), 0, FI_MSG, NULL),
					 0);
		assert_int_equal(node_send(hostile, victim, target, 0, 1, FI_TAGGED, NULL), 0);
		write_slot(
			&(struct slot){.kind = WIRE_RENDEZVOUS, .length = 1, .payload = {0, 1, 100, 100, 0}});
		progress();
		node_die(hostile);
		node_open(hostile, world.region);
		assert_int_equal(node_slot(hostile), 1);
		assert_int_equal(node_send(hostile, victim, target, 0, 1, FI_TAGGED, NULL), 0);
		progress();
		assert_int_equal(hostile_peer()->state, PEER_PRESENT);
		write_slot(&(struct slot){.kind = WIRE_EARLY, .length = 1});
		progress();
		assert_violation("an early piece of a predecessor's message");
	}
}

/* The victim receives a large message. Its pieces come as the case says. */
static void begin_receive(unsigned char *target, size_t room, uint64_t total, uint64_t *id)
{
	assert_int_equal(node_receive(victim, NULL, target, room, 5, FI_TAGGED, target), 0);
	write_slot(&(struct slot){
		.kind = WIRE_RENDEZVOUS, .flags = WIRE_TAGGED, .word = 5, .payload = {0, 77, total, 0, 0}});
	progress();
	/* The contents of the CLEAR. */
	const struct ring_out *ring = &hostile_peer()->out;
	const struct ring_slot *clear = &ring->slots[(ring->position - 1) & ring->mask];
	assert_int_equal(control_kind(shared_load_u64(&clear->control)), WIRE_CLEAR);
	assert_int_equal(shared_load_u64(&clear->word), 77);
	shared_copy_in(id, clear->payload, sizeof(*id));
}

static void test_pieces_that_cannot_be(void **state)
{
	static const struct {
		const char *what;
		uint32_t length;
		uint64_t offset;
	} cases[] = {
		{"more bytes than expected", 1001, 0},
		{"an empty piece", 0, 0},
		{"a piece across the section's end", 1000, CHUNK_AT(0, SECTION - 999)},
		{"a piece of an invalid chunk", 1000, CHUNK_AT(REGION_CHUNKS_MAX, 0)},
		{"a piece larger than a chunk", CHUNK_LARGE + 1, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char *target = malloc(1000);
		uint64_t id = 0;
		assert_non_null(target);
		if (i > 0) {
			(void)close_hostile_world(state);
			(void)open_hostile_world(state);
		}
		begin_receive(target, 1000, 200000, &id);
		write_slot(&(struct slot){.kind = WIRE_PIECE,
					  .length = cases[i].length,
					  .word = id,
					  .payload = {cases[i].offset}});
		progress();
		assert_violation(cases[i].what);
		struct completion entry = *completion_first(&victim->receives);
		assert_false(completion_is_empty(&victim->receives));
		assert_int_equal(entry.error, EPROTO);
		assert_ptr_equal(entry.context, target);
		free(target);
	}
}

static void test_an_id_of_another_peers_receive_is_refused(void **state)
{
	unsigned char *target = malloc(1000);
	uint64_t id = 0;

	(void)state;
	assert_non_null(target);
	begin_receive(target, 1000, 1000, &id);
	/* Another member guesses the id. */
	struct node *third = &world.nodes[2];
	node_open(third, world.region);
	world.count = 3;
	assert_int_equal(node_send(third, victim, "z", 1, 0, FI_MSG, NULL), 0);
	progress();
	struct ring_out *ring = &world_peer(third, victim)->peer.out;
	shared_store_u64(&ring_next(ring, 0)->word, id);
	ring_push(ring, control_word(WIRE_PIECE, 0, 1000), 1);
	progress();
	assert_int_equal(world_peer(victim, third)->peer.failure, -EPROTO);
	assert_int_equal(hostile_peer()->state, PEER_PRESENT);
	assert_true(completion_is_empty(&victim->receives));
	node_die(third);
	node_die(hostile);
	world_check_peers(&world);
	assert_int_equal(world_await(&world, &victim->receives).error, ECONNRESET);
	free(target);
	node_open(hostile, world.region);
}

static void test_credit_and_chunks_that_cannot_be(void **state)
{
	static unsigned char bytes[4096];
	struct credit_line *line = section_credit(world.region, node_slot(hostile), node_slot(victim));
	uint64_t id = (uint64_t)hostile_peer()->out.connection << 32;

	shared_store_u64(&line->consumed, id | (hostile_peer()->out.position + 1));
	transport_check_peers(victim->messenger->transport);
	progress();
	assert_violation("credit for slots that were not sent");

	(void)close_hostile_world(state);
	(void)open_hostile_world(state);
	line = section_credit(world.region, node_slot(hostile), node_slot(victim));
	assert_int_equal(node_send(victim, hostile, bytes, sizeof(bytes), 1, FI_TAGGED, NULL), 0);
	for (uint32_t word = 0; word < CHUNK_WORDS; word++)
		shared_store_u64(&line->returned[word], UINT64_MAX);
	/* They are checked when chunks are needed. */
	for (int i = 0; i < 1000 && hostile_peer()->state == PEER_PRESENT; i++)
		(void)node_send(victim, hostile, bytes, sizeof(bytes), 1, FI_TAGGED, NULL);
	progress();
	assert_violation("chunks that the receiver does not have");
}

/* ---- offers of rings ---- */

static void test_rings_that_cannot_be(void **state)
{
	static const struct {
		const char *what;
		uint64_t offset;
		uint32_t slots;
		uint32_t id;
	} cases[] = {
		{"no slots", 16384, 0, 3},
		{"too few slots", 16384, RING_SLOTS_MIN / 2, 3},
		{"too many slots", 16384, 2 * RING_SLOTS_MAX, 3},
		{"a number of slots that is not a power of two", 16384, 48, 3},
		{"a ring that is not aligned to lines", 16384 + 32, 64, 3},
		{"a ring across the section's end", SECTION - 63 * 64, 64, 3},
		{"a ring beyond the section", SECTION, 16, 3},
		{"a ring far away", UINT64_MAX - 63, 64, 3},
		{"a ring whose end overflows", 0 - (uint64_t)64 * 64, 64, 3},
		{"an even id", 16384, 64, 2},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int second = 0; second < 2; second++) {
			if (i + (size_t)second > 0) {
				(void)close_hostile_world(state);
				(void)open_hostile_world(state);
			}
			struct node *from = hostile;
			if (second == 0) { /* a peer that offers its first ring */
				from = &world.nodes[2];
				node_open(from, world.region);
				world.count = 3;
			}
			struct connection_line *line =
				section_connection(world.region, node_slot(from), node_slot(victim));
			shared_store_u32(&line->receiver_epoch,
					 victim->messenger->transport->attachments[0].member->epoch);
			shared_store_u64(&line->ring, cases[i].offset);
			shared_store_u32(&line->slots, cases[i].slots);
			shared_release_u32(&line->id, cases[i].id);
			shared_u32 *bell = section_doorbell(world.region, node_slot(victim), node_slot(from));
			shared_release_u32(bell, shared_load_u32(bell) + 1);
			progress();
			if (world_peer(victim, from)->peer.failure != -EPROTO)
				fail_msg("this was accepted: %s", cases[i].what);
			if (second == 0)
				node_die(from);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_slots_that_cannot_be),
		WITH_WORLD(test_a_slot_that_was_written_over),
		WITH_WORLD(test_rings_are_sound_at_every_position),
		WITH_WORLD(test_more_early_pieces_than_there_can_be),
		WITH_WORLD(test_an_early_piece_that_is_too_long_for_its_receive),
		WITH_WORLD(test_a_successor_cannot_go_on_with_early_pieces),
		WITH_WORLD(test_pieces_that_cannot_be),
		WITH_WORLD(test_an_id_of_another_peers_receive_is_refused),
		WITH_WORLD(test_credit_and_chunks_that_cannot_be),
		WITH_WORLD(test_rings_that_cannot_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
