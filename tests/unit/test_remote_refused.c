/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that a target does not grant, written slot by slot as a hostile peer may. */
#include <limits.h>
#include <stdlib.h>

#include "world.h"

#define REACHABLE 80000U
#define KEY 77
#define READABLE 78
#define WRITABLE 79
#define ANOTHERS 80
#define NOT_YET 81
#define HIGH 82
#define HIGH_ADDRESS (UINT64_MAX - REACHABLE)
#define BY_DATATYPE(count, datatype, operation, form) \
	((uint64_t)(count) | (uint64_t)(datatype) << 16 | (uint64_t)(operation) << 24 | \
	 (uint64_t)(form) << 32)

static struct world world;
static struct node *initiator = &world.nodes[0];
static struct node *target = &world.nodes[1];
static unsigned char memory[REACHABLE];

static const struct {
	uint32_t kind;
	uint32_t length;
	uint64_t key;
	uint64_t payload[2];
	uint32_t error;
} refusals[] = {
	{WIRE_WRITE, 8, KEY + 1000, {0}, FI_EKEYREJECTED},
	{WIRE_WRITE, 8, UINT64_MAX, {0}, FI_EKEYREJECTED},
	{WIRE_WRITE, 8, ANOTHERS, {0}, FI_EKEYREJECTED},
	{WIRE_WRITE, 8, NOT_YET, {0}, FI_EKEYREJECTED},
	{WIRE_WRITE, 8, READABLE, {0}, FI_EACCES},
	{WIRE_WRITE, 8, KEY, {REACHABLE - 7}, FI_EACCES},
	{WIRE_WRITE, 1, KEY, {REACHABLE}, FI_EACCES},
	{WIRE_WRITE, 1, KEY, {UINT64_MAX}, FI_EACCES},
	{WIRE_WRITE, 8, KEY, {UINT64_MAX - 3}, FI_EACCES},
	{WIRE_WRITE, 8, HIGH, {0}, FI_EACCES},
	{WIRE_WRITE, 8, HIGH, {HIGH_ADDRESS - 1}, FI_EACCES},
	{WIRE_WRITE, 8, HIGH, {UINT64_MAX - 7}, FI_EACCES},
	{WIRE_WRITE_CHUNK, 100, KEY + 1000, {0}, FI_EKEYREJECTED},
	{WIRE_WRITE_CHUNK, 100, READABLE, {0}, FI_EACCES},
	{WIRE_WRITE_CHUNK, 100, KEY, {REACHABLE - 99}, FI_EACCES},
	{WIRE_WRITE_CHUNK, 100, KEY, {0, REACHABLE - 99}, FI_EACCES},
	{WIRE_WRITE_CHUNK, 100, KEY, {0, SSIZE_MAX}, FI_EACCES},
	{WIRE_WRITE_CHUNK, 0, KEY, {0, REACHABLE + 1}, FI_EACCES},
	{WIRE_WRITE_CHUNK, 100, HIGH, {UINT64_MAX - 50}, FI_EACCES},
	{WIRE_READ, 8, KEY + 1000, {0}, FI_EKEYREJECTED},
	{WIRE_READ, 8, ANOTHERS, {0}, FI_EKEYREJECTED},
	{WIRE_READ, 8, WRITABLE, {0}, FI_EACCES},
	{WIRE_READ, WIRE_REMOTE_BYTES, KEY, {REACHABLE - WIRE_REMOTE_BYTES + 1}, FI_EACCES},
	{WIRE_READ, 2, KEY, {UINT64_MAX}, FI_EACCES},
	{WIRE_ATOMIC, 8, KEY + 1000, {0, BY_DATATYPE(1, FI_INT64, FI_SUM, 0)}, FI_EKEYREJECTED},
	{WIRE_ATOMIC, 8, READABLE, {0, BY_DATATYPE(1, FI_INT64, FI_SUM, 0)}, FI_EACCES},
	{WIRE_ATOMIC, 8, WRITABLE, {0, BY_DATATYPE(1, FI_INT64, FI_SUM, 1)}, FI_EACCES},
	{WIRE_ATOMIC, 0, WRITABLE, {0, BY_DATATYPE(1, FI_INT64, FI_ATOMIC_READ, 1)}, FI_EACCES},
	{WIRE_ATOMIC, 16, READABLE, {0, BY_DATATYPE(1, FI_INT64, FI_CSWAP, 2)}, FI_EACCES},
	{WIRE_ATOMIC, 8, KEY, {REACHABLE - 7, BY_DATATYPE(1, FI_INT64, FI_SUM, 0)}, FI_EACCES},
	{WIRE_ATOMIC, 8, KEY, {UINT64_MAX - 7, BY_DATATYPE(1, FI_INT64, FI_SUM, 0)}, FI_EACCES},
	{WIRE_ATOMIC, 8, KEY, {4, BY_DATATYPE(1, FI_INT64, FI_SUM, 0)}, FI_EINVAL},
	{WIRE_ATOMIC, 16, KEY, {1, BY_DATATYPE(1, FI_INT128, FI_SUM, 0)}, FI_EINVAL},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, 255, FI_SUM, 0)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(65535, FI_UINT128 + 1, FI_SUM, 0)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, FI_INT64, 255, 0)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, FI_INT64, FI_SUM, 3)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, FI_INT64, FI_SUM, 255)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, FI_INT64, FI_CSWAP, 0)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 16, KEY, {0, BY_DATATYPE(1, FI_INT64, FI_SUM, 2)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, FI_DOUBLE, FI_BOR, 0)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC, 8, KEY, {0, BY_DATATYPE(1, FI_INT64, FI_ATOMIC_READ, 0)}, FI_EOPNOTSUPP},
	{WIRE_ATOMIC_CHUNK, 4096, KEY + 1000, {0, BY_DATATYPE(512, FI_INT64, FI_SUM, 1)}, FI_EKEYREJECTED},
	{WIRE_ATOMIC_CHUNK, 8192, KEY, {REACHABLE - 8, BY_DATATYPE(512, FI_INT64, FI_CSWAP, 2)}, FI_EACCES},
	{WIRE_ATOMIC_CHUNK, 8, KEY, {0, BY_DATATYPE(1, 255, 255, 255)}, FI_EOPNOTSUPP},
};

/* Each is answered with its error, changes nothing, and costs no peer its connection. */
static void test_what_is_not_granted_is_refused(void **state)
{
	const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct registration registrations[] = {
		{.key = KEY, .access = both, .enabled = true},
		{.key = READABLE, .access = FI_REMOTE_READ, .enabled = true},
		{.key = WRITABLE, .access = FI_REMOTE_WRITE, .enabled = true},
		{.key = ANOTHERS, .access = both, .owner = &world, .enabled = true},
		{.key = NOT_YET, .access = both},
		{.key = HIGH, .address = HIGH_ADDRESS, .access = both, .enabled = true},
	};
	struct registration_table table;

	(void)state;
	world_open(&world, 2, 4, WORLD_SECTION_BYTES);
	registrations_open(&table);
	target->messenger->registrations = &table;
	struct msg_peer *to = world_peer(initiator, target);
	assert_int_equal(transport_connect(&to->peer), 0);
	for (size_t i = 0; i < sizeof(registrations) / sizeof(registrations[0]); i++) {
		registrations[i].base = memory;
		registrations[i].length = REACHABLE;
		assert_int_equal(registrations_add(&table, &registrations[i]), 0);
	}
	memset(memory, 0x5a, sizeof(memory));
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		uint64_t header[4] = {refusals[i].payload[0], refusals[i].payload[1]};
		if (refusals[i].kind == WIRE_WRITE_CHUNK || refusals[i].kind == WIRE_ATOMIC_CHUNK) {
			struct transport *transport = initiator->messenger->transport;
			uint32_t chunk = transport_chunk(transport, &to->peer, refusals[i].length);
			assert_int_not_equal(chunk, CHUNK_NONE);
			header[refusals[i].kind == WIRE_WRITE_CHUNK ? 3 : 2] =
				(uint64_t)chunk_offset(&transport->attachments[0].chunks, chunk, NULL) << 32 |
				chunk;
		}
		/*
		 * Count the request as an honest initiator does whose bytes were sent. The answer has only
		 * the error.
		 */
		to->remote.requests++;
		remote_push(&to->peer,
			    control_word(refusals[i].kind, WIRE_LAST | WIRE_ACKNOWLEDGED, refusals[i].length),
			    refusals[i].key, header, sizeof(header), NULL, 0);
		if (world_await(&world, &initiator->sends).error != (int)refusals[i].error)
			fail_msg("request %zu was not refused as it should be", i);
		for (size_t at = 0; at < sizeof(memory); at += 97)
			assert_int_equal(memory[at], 0x5a);
	}
	for (size_t at = 0; at < sizeof(memory); at++)
		assert_int_equal(memory[at], 0x5a);
	assert_int_equal(world_peer(target, initiator)->peer.state, PEER_PRESENT);
	/* A range inside the registration is granted, up to the last possible address. */
	for (int high = 0; high < 2; high++) {
		const uint64_t bytes[2] = {high ? UINT64_MAX - 8 : REACHABLE - 8, 0x1234567 + (uint64_t)high};
		to->remote.requests++;
		remote_push(&to->peer, control_word(WIRE_WRITE, WIRE_LAST, 8), high ? HIGH : KEY, bytes,
			    sizeof(bytes), NULL, 0);
		world_settle(&world);
		assert_memory_equal(memory + REACHABLE - 8, &bytes[1], 8);
	}
	assert_true(completion_is_empty(&initiator->sends));
	world_close(&world);
	registrations_close(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_not_granted_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
