/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Invalid answers of a hostile peer: the peer loses its connection, and the operations that waited for the
 * answers end, once.
 */
#include "hostile_node.h"

#include <stdlib.h>

/* ---- answers to the victim's own sends ---- */

static void answer(uint32_t kind, uint64_t word, uint64_t first, uint64_t second)
{
	write_slot(&(struct slot){.kind = kind, .word = word, .payload = {first, second}});
	progress();
}

static uint64_t begin_send(unsigned char *bytes, size_t length, uint64_t flags)
{
	assert_int_equal(node_send(victim, hostile, bytes, length, 5, FI_TAGGED | flags, bytes), 0);
	assert_false(match_is_empty(&victim->messenger->awaiting));
	return ((struct send *)(void *)victim->messenger->awaiting.previous)->id;
}

static void test_answers_that_cannot_be(void **state)
{
	static unsigned char bytes[300000];

	for (int i = 0; i < 6; i++) {
		if (i > 0) {
			(void)close_hostile_world(state);
			(void)open_hostile_world(state);
		}
		uint64_t id = begin_send(bytes, i < 4 ? sizeof(bytes) : 8, FI_DELIVERY_COMPLETE);
		switch (i) {
		case 0:
			answer(WIRE_CLEAR, id, 1, sizeof(bytes) + 1);
			break;
		case 1:
			answer(WIRE_CLEAR, id, 1, sizeof(bytes));
			answer(WIRE_CLEAR, id, 1, sizeof(bytes));
			break;
		case 2:
			answer(WIRE_ACKNOWLEDGE, id, 0, 0); /* before everything was sent */
			break;
		case 3:
			answer(WIRE_CLEAR, id ^ UINT64_C(1) << 32, 1, 1);
			break;
		case 4:
			answer(WIRE_CLEAR, id, 1, 8); /* it needs none */
			break;
		default:
			answer(WIRE_ACKNOWLEDGE, id, 0, 0);
			answer(WIRE_ACKNOWLEDGE, id, 0, 0); /* twice */
			break;
		}
		assert_violation("an answer");
		/* The send completes with an error, once. */
		progress();
		uint32_t errors = 0;
		for (; !completion_is_empty(&victim->sends); victim->sends.head++)
			errors += completion_first(&victim->sends)->error == EPROTO;
		assert_int_equal(errors, i < 5 ? 1 : 0);
	}
}

/* ---- answers to the victim's own requests ---- */

static unsigned char remote_bytes[4096];

static void begin_remote(enum remote_kind kind, size_t length)
{
	const struct iovec piece = {remote_bytes, length};
	const struct fi_rma_iov range = {0, length, 7};

	assert_int_equal(messenger_remote(victim->messenger,
					  &(struct remote_request){
						  .kind = kind,
						  .pieces = &piece,
						  .count = 1,
						  .length = length,
						  .ranges = &range,
						  .range_count = 1,
						  .to = world_peer(victim, hostile),
						  .context = remote_bytes,
						  .flags = FI_COMPLETION,
					  }),
			 0);
}

static void test_remote_answers_that_cannot_be(void **state)
{
	static const struct {
		const char *what;
		struct slot slots[2];
	} cases[] = {
		/* 1 is a write, 2 a read of 100 bytes, 3 a write. */
		{"an answer to a request that was not sent", {{.kind = WIRE_DONE, .word = 4}}},
		{"an answer that passes over a reply", {{.kind = WIRE_DONE, .word = 3}}},
		{"an acknowledgement for a read", {{.kind = WIRE_DONE, .word = 2}}},
		{"the same answer twice", {{.kind = WIRE_DONE, .word = 1}, {.kind = WIRE_DONE, .word = 1}}},
		{"an older answer",
		 {{.kind = WIRE_DONE, .word = 2, .payload = {FI_EACCES}}, {.kind = WIRE_DONE, .word = 1}}},
		{"an invalid error", {{.kind = WIRE_DONE, .word = 1, .payload = {1}}}},
		{"an error of which only the lower half is valid",
		 {{.kind = WIRE_DONE, .word = 1, .payload = {UINT64_C(1) << 32 | FI_EACCES}}}},
		{"a reply to a request without one", {{.kind = WIRE_REPLY, .word = 1}}},
		{"a reply that is too short", {{.kind = WIRE_REPLY, .word = 2, .length = 48}}},
		{"a reply that is too long", {{.kind = WIRE_REPLY, .word = 2, .length = 101}}},
		{"a reply without its second slot", {{.kind = WIRE_REPLY, .word = 2, .length = 100}}},
		{"a reply of another length", {{.kind = WIRE_REPLY_CHUNK, .word = 2, .length = 4096}}},
		{"a reply from beyond the section",
		 {{.kind = WIRE_REPLY_CHUNK,
		   .word = 2,
		   .length = 100,
		   .payload = {CHUNK_AT(0, SECTION - 99)}}}},
		{"a reply from an invalid chunk",
		 {{.kind = WIRE_REPLY_CHUNK,
		   .word = 2,
		   .length = 100,
		   .payload = {CHUNK_AT(REGION_CHUNKS_MAX, 0)}}}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (i > 0) {
			(void)close_hostile_world(state);
			(void)open_hostile_world(state);
		}
		begin_remote(REMOTE_WRITE, 8);
		begin_remote(REMOTE_READ, 100);
		begin_remote(REMOTE_WRITE, 8);
		write_slot(&cases[i].slots[0]);
		if (cases[i].slots[1].kind != 0)
			write_slot(&cases[i].slots[1]);
		progress();
		assert_violation(cases[i].what);
		/* Each of the three ends, once. */
		uint32_t ended = 0;
		for (; !completion_is_empty(&victim->sends); victim->sends.head++)
			ended += completion_first(&victim->sends)->context == remote_bytes;
		assert_int_equal(ended, 3);
		assert_int_equal(victim->messenger->remote_pending, 0);
	}
}

/* A peer that asks for more answers than allowed, and reads none. */
static void test_more_replies_than_may_be_owed(void **state)
{
	static unsigned char memory[4096];
	struct registration registration = {.key = 7,
					    .base = memory,
					    .length = sizeof(memory),
					    .access = FI_REMOTE_READ,
					    .enabled = true};
	struct registration_table table;
	uint32_t asked = 0;

	(void)state;
	registrations_open(&table);
	assert_int_equal(registrations_add(&table, &registration), 0);
	victim->messenger->registrations = &table;
	while (hostile_peer()->state == PEER_PRESENT) {
		assert_true(asked++ < 10000);
		write_slot(&(struct slot){.kind = WIRE_READ, .length = 4000, .word = 7});
		(void)messenger_progress(victim->messenger);
		assert_true(world_peer(victim, hostile)->remote.owed_count <= WIRE_REPLIES_MAX + 1);
	}
	progress();
	assert_violation("more replies than may be outstanding");
	assert_true(asked > WIRE_REPLIES_MAX);
	victim->messenger->registrations = NULL;
	registrations_close(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_answers_that_cannot_be),
		WITH_WORLD(test_remote_answers_that_cannot_be),
		WITH_WORLD(test_more_replies_than_may_be_owed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
