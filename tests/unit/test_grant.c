/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long reads and writes over the network, whose bytes the core moves: successful, refused, without room, with
 * peers that fail meanwhile, and with peers that send invalid slots.
 */
#include "fake_core.h"

#include <stdlib.h>

#define KEY 77U
#define READ_ONLY 78U
#define REACHABLE ((size_t)3 << 20)
/* Operations up to BY_REQUESTS go by requests. At most PIECES_AT_ONCE pieces are read at once. */
#define BY_REQUESTS ((size_t)128 << 10)
#define PIECES_AT_ONCE 4U
#define LONG_BYTES ((size_t)200000) /* in two of these pieces */

static struct fake_world world;
static struct far_node *const a = &world.nodes[0]; /* the initiator */
static struct far_node *const b = &world.nodes[1]; /* the target */
static unsigned char memory[REACHABLE];
static unsigned char mine[REACHABLE];
static struct registration registration;
static struct registration read_only;
static struct registration_table table;
static struct completion_counter written;   /* of the registration */
static struct completion_counter writes;    /* by peers */
static struct completion_counter reads;     /* by peers */
static struct completion_counter my_writes; /* the initiator's */
static struct msg_peer *to_b;
static struct msg_peer *from_a;

static int open_world(void **state)
{
	(void)state;
	fake_open(&world);
	to_b = fake_peer(a, b);
	from_a = fake_peer(b, a);
	written = writes = reads = my_writes = (struct completion_counter){0};
	registration = (struct registration){
		.key = KEY,
		.base = memory,
		.length = sizeof(memory),
		.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
		.counter = &written,
		.enabled = true,
	};
	read_only = registration;
	read_only.key = READ_ONLY;
	read_only.access = FI_REMOTE_READ;
	registrations_open(&table);
	assert_int_equal(registrations_add(&table, &registration), 0);
	assert_int_equal(registrations_add(&table, &read_only), 0);
	b->node.messenger->registrations = &table;
	b->node.messenger->remote_write_counter = &writes;
	b->node.messenger->remote_read_counter = &reads;
	a->node.messenger->write_counter = &my_writes;
	memset(memory, 0, sizeof(memory));
	memset(mine, 0, sizeof(mine));
	return 0;
}

static int close_world(void **state)
{
	(void)state;
	fake_close(&world);
	registrations_close(&table);
	assert_int_equal(registration.grants, 0);
	assert_int_equal(read_only.grants, 0);
	return 0;
}

struct call {
	enum remote_kind kind;
	size_t offset; /* in `memory` and in `mine` */
	size_t length;
	uint64_t key;
	uint64_t flags;
	uint32_t pieces; /* 0: one */
};

static ssize_t begin(const struct call *call)
{
	size_t half = call->length / 2 + 1;
	const struct iovec pieces[] = {{mine + call->offset, call->pieces == 2 ? half : call->length},
				       {mine + call->offset + half, call->length - half}};
	const struct fi_rma_iov range = {call->offset, call->length, call->key};

	return messenger_remote(a->node.messenger, &(struct remote_request){
							   .kind = call->kind,
							   .pieces = pieces,
							   .count = call->pieces == 2 ? 2 : 1,
							   .length = call->length,
							   .ranges = &range,
							   .range_count = 1,
							   .to = to_b,
							   .data = 0xda7a,
							   .context = mine + call->offset,
							   .flags = call->flags | FI_COMPLETION,
						   });
}

static ssize_t begin_one(enum remote_kind kind, size_t offset)
{
	return begin(&(struct call){.kind = kind, .offset = offset, .length = LONG_BYTES, .key = KEY});
}

static uint32_t count_completions(struct completion_queue *queue, int error)
{
	uint32_t found = 0;

	for (; !completion_is_empty(queue); queue->head++)
		found += completion_first(queue)->error == error;
	return found;
}

/* ---- successful operations ---- */

/*
 * The core copies straight from memory to memory and touches nothing else. Shorter operations go by requests.
 */
static void test_every_length(void **state)
{
	static const size_t lengths[] = {BY_REQUESTS,           BY_REQUESTS + 1,       LONG_BYTES,
					 ((size_t)1 << 20) + 1, ((size_t)2 << 20) - 7, REACHABLE - 100};

	(void)state;
	for (uint64_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (uint32_t pieces = 1; pieces < 3; pieces++) {
			bool by_core = lengths[i] > BY_REQUESTS;
			uint64_t requests = to_b->remote.requests;
			memset(memory, 1, sizeof(memory));
			fill_bytes(mine + 37, lengths[i], i);
			assert_int_equal(begin(&(struct call){REMOTE_WRITE, 37, lengths[i], KEY, 0, pieces}),
					 0);
			fake_settle(&world);
			struct completion over = fake_next(&a->node.sends);
			assert_int_equal(over.error, 0);
			assert_int_equal(over.flags, FI_RMA | FI_WRITE);
			assert_ptr_equal(over.context, mine + 37);
			assert_bytes(memory + 37, lengths[i], i);
			assert_int_equal(memory[36], 1);
			assert_int_equal(memory[37 + lengths[i]], 1);
			/* Several pieces cannot be exposed as one. */
			assert_int_equal(to_b->remote.requests == requests, by_core && pieces == 1);
			requests = to_b->remote.requests;
			memset(mine, 2, sizeof(mine));
			assert_int_equal(begin(&(struct call){REMOTE_READ, 37, lengths[i], KEY, 0, pieces}),
					 0);
			fake_settle(&world);
			assert_int_equal(fake_next(&a->node.sends).flags, FI_RMA | FI_READ);
			assert_bytes(mine + 37, lengths[i], i);
			assert_int_equal(mine[36], 2);
			assert_int_equal(mine[37 + lengths[i]], 2);
			assert_int_equal(to_b->remote.requests == requests, by_core);
			assert_int_equal(a->end->registered + b->end->registered, 0);
			assert_int_equal(registration.grants, 0);
		}
	assert_int_equal(written.value, 12);
	assert_int_equal(writes.value, 12);
	assert_int_equal(reads.value, 12);
	assert_int_equal(my_writes.value, 12);
}

/* The target gets the completion when all bytes are there, once, and not before. */
static void test_remote_data(void **state)
{
	const struct call call = {REMOTE_WRITE, 0, LONG_BYTES, KEY, FI_REMOTE_CQ_DATA, 1};

	(void)state;
	b->end->holds_reads = true;
	assert_int_equal(begin(&call), 0);
	fake_settle(&world);
	assert_int_equal(b->end->held_count, 2);
	assert_true(completion_is_empty(&b->node.receives));
	assert_true(completion_is_empty(&a->node.sends));
	assert_int_equal(written.value + writes.value + my_writes.value, 0);
	assert_int_equal(registration.grants, 1);
	fake_release(b->end);
	fake_settle(&world);
	struct completion told = fake_next(&b->node.receives);
	assert_int_equal(told.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	assert_int_equal(told.data, 0xda7a);
	assert_int_equal(told.length, LONG_BYTES);
	assert_true(completion_is_empty(&b->node.receives));
	assert_int_equal(fake_next(&a->node.sends).error, 0);
	assert_int_equal(written.value, 1);
	assert_int_equal(writes.value, 1);
}

/*
 * Short operations after a long one are carried out and answered while the long one is in progress. A fence
 * waits for it.
 */
static void test_what_comes_after_does_not_wait(void **state)
{
	uint64_t value = 42;
	const struct iovec piece = {&value, 8};
	const struct fi_rma_iov range = {REACHABLE - 8, 8, KEY};
	struct remote_request request = {
		.kind = REMOTE_WRITE,
		.pieces = &piece,
		.count = 1,
		.length = 8,
		.ranges = &range,
		.range_count = 1,
		.to = to_b,
		.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
	};

	(void)state;
	b->end->holds_reads = true;
	assert_int_equal(begin_one(REMOTE_WRITE, 0), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(messenger_remote(a->node.messenger, &request), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&a->node.sends).error, 0);
	}
	assert_memory_equal(memory + REACHABLE - 8, &value, 8);
	request.flags |= FI_FENCE;
	assert_int_equal(messenger_remote(a->node.messenger, &request), -EAGAIN);
	fake_release(b->end);
	fake_settle(&world);
	assert_int_equal(messenger_remote(a->node.messenger, &request), 0);
	fake_settle(&world);
	assert_int_equal(count_completions(&a->node.sends, 0), 2);
}

/* More operations than may be in progress at once, in both directions. Now and then the core has no room. */
static void test_many_at_once(void **state)
{
	enum { MANY = 3 * WIRE_GRANTS_MAX };
	uint32_t over = 0;

	(void)state;
	fill_bytes(mine, LONG_BYTES + MANY, 3);
	b->end->holds_reads = true;
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(begin_one(i % 2 ? REMOTE_READ : REMOTE_WRITE, 0), 0);
	fake_settle(&world);
	/* The initiator's reads are over. */
	assert_int_equal(b->end->held_count, PIECES_AT_ONCE);
	assert_in_range(from_a->remote.grants, 1, WIRE_GRANTS_MAX);
	fake_release(b->end);
	for (uint32_t i = 0; i < 50; i++) {
		a->end->refusals = b->end->refusals = i % 7;
		fake_settle(&world);
		over += count_completions(&a->node.sends, 0);
	}
	assert_int_equal(over, MANY);
	assert_int_equal(to_b->remote.by_core, 0);
	assert_int_equal(from_a->remote.grants, 0);
	assert_int_equal(a->node.messenger->by_core + b->node.messenger->by_core, 0);
	assert_int_equal(to_b->peer.state, PEER_PRESENT);
	assert_bytes(memory, LONG_BYTES, 3);
}

/* ---- operations that are refused, or that the core cannot carry out ---- */

static void test_refusals(void **state)
{
	static const struct {
		struct call call;
		int error;
	} cases[] = {
		{{REMOTE_WRITE, 0, LONG_BYTES, 1, 0, 1}, FI_EKEYREJECTED},
		{{REMOTE_READ, 0, LONG_BYTES, 1, 0, 1}, FI_EKEYREJECTED},
		{{REMOTE_WRITE, REACHABLE - LONG_BYTES + 1, LONG_BYTES, KEY, 0, 1}, FI_EACCES},
		{{REMOTE_READ, REACHABLE - LONG_BYTES + 1, LONG_BYTES, KEY, 0, 1}, FI_EACCES},
		{{REMOTE_WRITE, 0, LONG_BYTES, READ_ONLY, 0, 1}, FI_EACCES},
		{{REMOTE_READ, 0, LONG_BYTES, READ_ONLY, 0, 1}, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(begin(&cases[i].call), 0);
		fake_settle(&world);
		struct completion over = fake_next(&a->node.sends);
		assert_int_equal(over.error, cases[i].error);
		assert_int_equal(over.reason != NULL, cases[i].error != 0);
	}
	assert_int_equal(my_writes.errors, 3);
	assert_int_equal(writes.value, 0);
	assert_int_equal(to_b->remote.by_core + from_a->remote.grants, 0);
	assert_int_equal(to_b->peer.state, PEER_PRESENT);
	assert_int_equal(a->end->registered + b->end->registered, 0);
}

/* The core of one end cannot read or expose memory: operations go by requests, with the same result. */
static void test_cores_that_cannot(void **state)
{
	(void)state;
	for (int who = 0; who < 4; who++) {
		a->end->core.reads = who != 0;
		b->end->core.reads = who != 1;
		a->end->exposes_nothing = who == 2;
		b->end->exposes_nothing = who == 3;
		uint64_t requests = to_b->remote.requests;
		fill_bytes(mine, LONG_BYTES, (uint64_t)who);
		assert_int_equal(begin_one(REMOTE_WRITE, 0), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&a->node.sends).error, 0);
		assert_bytes(memory, LONG_BYTES, (uint64_t)who);
		memset(mine, 0, LONG_BYTES);
		assert_int_equal(begin_one(REMOTE_READ, 0), 0);
		fake_settle(&world);
		assert_int_equal(fake_next(&a->node.sends).error, 0);
		assert_bytes(mine, LONG_BYTES, (uint64_t)who);
		assert_true(to_b->remote.requests > requests);
		assert_int_equal(to_b->remote.by_core + from_a->remote.grants, 0);
	}
}

/* ---- failures ---- */

/* The core cannot read exposed memory: that peer is gone, and all operations with it end. */
static void test_reads_that_fail(void **state)
{
	for (int kind = REMOTE_WRITE; kind <= REMOTE_READ; kind++) {
		if (kind != REMOTE_WRITE) {
			(void)close_world(state);
			(void)open_world(state);
		}
		struct far_node *reader = kind == REMOTE_WRITE ? b : a;
		reader->end->read_error = FI_EIO;
		assert_int_equal(begin_one((enum remote_kind)kind, 0), 0);
		assert_int_equal(begin_one((enum remote_kind)kind, LONG_BYTES), 0);
		fake_settle(&world);
		assert_int_equal((kind == REMOTE_WRITE ? from_a : to_b)->peer.failure, -ECONNRESET);
		if (kind == REMOTE_READ)
			assert_int_equal(count_completions(&a->node.sends, FI_ECONNRESET), 2);
		else
			assert_int_equal(registration.grants, 0);
	}
}

/*
 * A peer fails while the core moves bytes. Memory that the core only reads is revoked at once. Memory that
 * the core writes stays until the core is done, as does the operation that owns the buffer.
 */
static void test_peers_that_fail_meanwhile(void **state)
{
	(void)state;
	a->end->holds_reads = b->end->holds_reads = true;
	assert_int_equal(begin_one(REMOTE_WRITE, 0), 0);
	assert_int_equal(begin_one(REMOTE_READ, 0), 0);
	fake_settle(&world);
	assert_int_equal(a->end->held_count + b->end->held_count, 4);
	assert_int_equal(a->end->registered + b->end->registered, 2);
	assert_int_equal(registration.grants, 2);
	transport_fail(fake_transport(a), &to_b->peer, -ECONNRESET, "it is said to be gone");
	transport_fail(fake_transport(b), &from_a->peer, -ECONNRESET, "it is said to be gone");
	fake_settle(&world);
	assert_int_equal(a->end->registered + b->end->registered, 0);
	/* The write has ended. The read's buffer is still being written. */
	assert_int_equal(count_completions(&a->node.sends, FI_ECONNRESET), 1);
	assert_int_equal(registration.grants, 1);
	assert_false(messenger_is_quiet(a->node.messenger, to_b));
	fake_release(a->end);
	fake_release(b->end);
	fake_settle(&world);
	assert_int_equal(count_completions(&a->node.sends, FI_ECONNRESET), 1);
	assert_int_equal(registration.grants, 0);
	assert_int_equal(written.value + writes.value, 0);
	assert_int_equal(a->node.messenger->by_core + b->node.messenger->by_core, 0);
	assert_true(messenger_is_quiet(a->node.messenger, to_b));
}

/*
 * A peer that does not return granted memory loses its connection, and the memory's owner may use it again.
 */
static void test_recall(void **state)
{
	(void)state;
	a->end->holds_reads = true;
	assert_int_equal(begin_one(REMOTE_READ, 0), 0);
	fake_settle(&world);
	assert_int_equal(registration.grants, 1);
	messenger_recall(b->node.messenger, &read_only); /* another registration */
	fake_settle(&world);
	assert_int_equal(from_a->peer.state, PEER_PRESENT);
	messenger_recall(b->node.messenger, &registration);
	fake_settle(&world);
	assert_int_equal(registration.grants, 0);
	assert_int_equal(from_a->peer.state, PEER_FAILED);
	assert_int_equal(to_b->peer.state, PEER_FAILED); /* the peer learned of it */
	fake_release(a->end);
	fake_settle(&world);
	assert_int_equal(count_completions(&a->node.sends, FI_ECONNABORTED), 1);
}

/* An endpoint closes while the core moves bytes: fake_close() finds no registration, and no grant is left. */
static void test_closing_meanwhile(void **state)
{
	(void)state;
	a->end->holds_reads = b->end->holds_reads = true;
	assert_int_equal(begin_one(REMOTE_WRITE, 0), 0);
	assert_int_equal(begin_one(REMOTE_READ, 0), 0);
	fake_settle(&world);
	assert_int_equal(registration.grants, 2);
}

/* ---- invalid slots ---- */

/* A slot from a to b, whatever it means. a does not receive the answer. */
static void say(uint32_t kind, uint64_t word, const uint64_t payload[6])
{
	a->end->sinks = true;
	assert_int_equal(send_make_room(a->node.messenger, to_b, 1), 0);
	remote_push(&to_b->peer, control_word(kind, WIRE_LAST, 0), word, payload, 48, NULL, 0);
	fake_settle(&world);
}

static void assert_violation(const char *what)
{
	if (from_a->peer.state != PEER_FAILED || from_a->peer.failure != -EPROTO)
		fail_msg("this was accepted: %s", what);
	assert_int_equal(registration.grants, 0);
	assert_int_equal(b->end->registered, 0);
}

static void again(void **state)
{
	(void)close_world(state);
	(void)open_world(state);
}

#define SAY(kind, word, ...) say(kind, word, (const uint64_t[6]){__VA_ARGS__})
/* A write of b's memory, read from `mine`. */
#define WRITE_OF(total) KEY, 0, total, 0, total, (uintptr_t)mine

static void test_requests_that_cannot_be(void **state)
{
	static const uint64_t totals[] = {0, UINT64_MAX, UINT64_C(1) << 63};

	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
		SAY(WIRE_CORE_WRITE, 1, WRITE_OF(totals[i]));
		assert_violation("a write of an invalid length");
		again(state);
		SAY(WIRE_CORE_READ, 1, KEY, 0, totals[i]);
		assert_violation("a read of an invalid length");
		again(state);
	}
	for (uint32_t i = 0; i < WIRE_GRANTS_MAX; i++) {
		SAY(WIRE_CORE_READ, i, KEY, 0, 1);
		assert_int_equal(registration.grants, i + 1);
	}
	SAY(WIRE_CORE_READ, 0, KEY, 0, 1);
	assert_violation("one read too many");
	again(state);
	b->end->holds_reads = true;
	for (uint32_t i = 0; i < WIRE_GRANTS_MAX; i++)
		SAY(WIRE_CORE_WRITE, i, WRITE_OF(1));
	SAY(WIRE_CORE_WRITE, 0, WRITE_OF(1));
	fake_release(b->end);
	fake_settle(&world);
	assert_violation("one write too many");
}

static void test_returns_that_cannot_be(void **state)
{
	SAY(WIRE_RETURN, 5, 0);
	assert_violation("a return of nothing");
	again(state);
	SAY(WIRE_CORE_READ, 1, KEY, 0, 100);
	uint64_t id = ((struct remote_grant *)(void *)b->node.messenger->remote_grants.next)->id;
	SAY(WIRE_RETURN, id, 0);
	assert_int_equal(registration.grants, 0);
	assert_int_equal(reads.value, 1);
	SAY(WIRE_RETURN, id, 0);
	assert_violation("a second return");
	again(state);
	/* Grants of another peer. */
	struct far_node *c = &world.nodes[2];
	struct msg_peer *c_to_b = fake_peer(c, b);
	const uint64_t range[3] = {KEY, 0, 100};
	c->end->sinks = true;
	assert_int_equal(send_make_room(c->node.messenger, c_to_b, 1), 0);
	remote_push(&c_to_b->peer, control_word(WIRE_CORE_READ, 0, 0), 1, range, sizeof(range), NULL, 0);
	fake_settle(&world);
	id = ((struct remote_grant *)(void *)b->node.messenger->remote_grants.next)->id;
	SAY(WIRE_RETURN, id, 0);
	assert_int_equal(from_a->peer.failure, -EPROTO);
	assert_int_equal(registration.grants, 1);
	assert_int_equal(fake_peer(b, c)->peer.state, PEER_PRESENT);
}

/* The id of the initiator's operation, by which the target names it. */
static uint64_t my_id(enum remote_kind kind)
{
	b->end->sinks = true; /* the target does not receive it */
	assert_int_equal(begin_one(kind, 0), 0);
	b->end->sinks = false;
	return ((struct remote_operation *)(void *)a->node.messenger->remote_by_core.previous)->id;
}

/* A slot from b to a. */
static void answer(uint32_t kind, uint64_t word, uint64_t first, uint64_t second, uint64_t third)
{
	const uint64_t payload[3] = {first, second, third};

	assert_int_equal(send_make_room(b->node.messenger, from_a, 1), 0);
	remote_push(&from_a->peer, control_word(kind, 0, 0), word, payload, sizeof(payload), NULL, 0);
	fake_settle(&world);
}

static void test_answers_that_cannot_be(void **state)
{
	for (int i = 0; i < 10; i++) {
		if (i > 0)
			again(state);
		uint64_t id = my_id(i < 5 ? REMOTE_WRITE : REMOTE_READ);
		uint64_t grant[2] = {LONG_BYTES, (uintptr_t)memory};
		uint32_t good = 0;
		switch (i) {
		case 0:
			answer(WIRE_ENDED, id + 1, 0, 0, 0);
			break;
		case 1:
			answer(WIRE_ENDED, id, 1, 0, 0); /* an invalid error */
			break;
		case 2:
			answer(WIRE_ENDED, id, UINT64_C(1) << 32 | FI_EACCES, 0, 0);
			break;
		case 3:
			answer(WIRE_GRANT, id, 1, grant[0], grant[1]); /* for a write */
			break;
		case 4:
			answer(WIRE_ENDED, id, 0, 0, 0);
			answer(WIRE_ENDED, id, 0, 0, 0); /* twice */
			good = 1;
			break;
		case 5:
			answer(WIRE_ENDED, id, 0, 0, 0); /* nothing was exposed */
			break;
		case 6:
			answer(WIRE_GRANT, id ^ UINT64_C(1) << 32, 1, grant[0], grant[1]);
			break;
		case 7:
			a->end->holds_reads = true;
			answer(WIRE_GRANT, id, 1, grant[0], grant[1]);
			answer(WIRE_GRANT, id, 1, grant[0], grant[1]); /* twice */
			break;
		case 8:
			a->end->holds_reads = true;
			answer(WIRE_GRANT, id, 1, grant[0], grant[1]);
			answer(WIRE_ENDED, id, FI_EACCES, 0, 0); /* after all */
			break;
		default:
			a->end->holds_reads = true;
			answer(WIRE_GRANT, id, 1, grant[0], grant[1]);
			answer(WIRE_ENDED, id, WIRE_BY_REQUESTS, 0, 0);
			break;
		}
		assert_int_equal(to_b->peer.failure, -EPROTO);
		fake_release(a->end);
		fake_settle(&world);
		uint32_t ends = 0;
		uint32_t successes = 0;
		for (; !completion_is_empty(&a->node.sends); a->node.sends.head++, ends++)
			successes += completion_first(&a->node.sends)->error == 0;
		assert_int_equal(ends, 1);
		assert_int_equal(successes, good);
		assert_int_equal(a->end->registered, 0);
		assert_int_equal(a->node.messenger->by_core, 0);
	}
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_every_length),
		WITH_WORLD(test_remote_data),
		WITH_WORLD(test_what_comes_after_does_not_wait),
		WITH_WORLD(test_many_at_once),
		WITH_WORLD(test_refusals),
		WITH_WORLD(test_cores_that_cannot),
		WITH_WORLD(test_reads_that_fail),
		WITH_WORLD(test_peers_that_fail_meanwhile),
		WITH_WORLD(test_recall),
		WITH_WORLD(test_closing_meanwhile),
		WITH_WORLD(test_requests_that_cannot_be),
		WITH_WORLD(test_returns_that_cannot_be),
		WITH_WORLD(test_answers_that_cannot_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
