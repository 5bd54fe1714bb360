/* SPDX-License-Identifier: BSD-3-Clause */
/* remote_request.c - one-sided operations, the initiator: requests, whole and in pieces. */
#include <stdlib.h>

#include "proto/messenger.h"

/*
 * A piece of a long operation is short enough that two copies overlap, and long enough to be worth its cost.
 */
#define PIECE_BYTES 16384U
#define PIECE_BYTES_LONG WIRE_REMOTE_BYTES
#define LONG_BYTES (256U * 1024U)
/* This many requests of one long operation in flight keep both sides busy. */
#define REQUESTS_IN_FLIGHT 8U
/* Fewer if they have large chunks, so that the chunks stay in cache, as with large messages. */
#define LARGE_CHUNKS_IN_FLIGHT 4U
/* A request of a whole operation takes at most this share of the ring, so that four fit. */
#define RING_SHARE 4U

/* ---- expected answers ---- */

/* Makes room for `count` expectations, `replies` of them with bytes. */
static ssize_t make_expectations(struct remote_peer *remote, uint32_t count, uint32_t replies)
{
	uint32_t there = remote->expected_tail - remote->expected_head;

	if (there + count > WIRE_REQUESTS_MAX || remote->replies_expected + replies > WIRE_REPLIES_MAX)
		return -EAGAIN;
	if (__builtin_expect(there + count <= remote->expected_capacity, 1))
		return 0;
	uint32_t capacity = remote->expected_capacity == 0 ? 16 : remote->expected_capacity * 2;
	struct expectation *grown = malloc(capacity * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < there; i++)
		grown[i] = remote->expected[(remote->expected_head + i) & (remote->expected_capacity - 1)];
	free(remote->expected);
	remote->expected = grown;
	remote->expected_capacity = capacity;
	remote->expected_head = 0;
	remote->expected_tail = there;
	return 0;
}

/* Adds the expectation for the last pushed request. */
static void expect(struct remote_peer *remote, struct remote_operation *operation, uint64_t position,
		   uint32_t length, bool reply)
{
	remote->expected[remote->expected_tail++ & (remote->expected_capacity - 1)] = (struct expectation){
		.operation = operation,
		.sequence = remote->requests,
		.position = position,
		.length = length,
		.reply = reply,
	};
	remote->replies_expected += reply;
	operation->outstanding++;
}

/* ---- one request ---- */

/* How a request will be pushed. */
struct plan {
	uint32_t length; /* bytes of the peer's memory */
	uint32_t bytes;  /* bytes that the request carries */
	uint32_t slots;
	uint32_t chunk;
	uint32_t flags; /* enum wire_flags */
	uint64_t rest;  /* of the range, for later requests */
};

static void push_write(const struct remote_request *request, const struct fi_rma_iov *range, uint64_t offset,
		       const struct plan *plan)
{
	struct peer *peer = &request->to->peer;
	const struct chunk_pool *pool = peer->pool;

	if (plan->chunk == CHUNK_NONE) {
		unsigned char scratch[WIRE_SHORT_BYTES];
		const uint64_t header[2] = {range->addr, request->data};
		remote_push(peer, control_word(WIRE_WRITE, plan->flags, plan->length), range->key, header,
			    plan->flags & WIRE_DATA ? 16 : 8,
			    buffer_in_a_row(request->pieces, request->count, offset, plan->length, scratch),
			    plan->length);
		return;
	}
	struct buffer buffer;
	buffer_open(&buffer, request->pieces, request->count);
	struct wire_write header = {
		.address = range->addr,
		.rest = plan->rest,
		.data = request->data,
		.chunk = plan->chunk,
		.offset = chunk_offset(pool, plan->chunk,
				       request->count == 1 ? (char *)request->pieces[0].iov_base + offset
							   : NULL),
	};
	buffer_to_region(&buffer, offset, pool->section + header.offset, plan->length);
	remote_push(peer, control_word(WIRE_WRITE_CHUNK, plan->flags, plan->length), range->key, &header,
		    sizeof(header), NULL, 0);
}

static void push_atomic(const struct remote_request *request, const struct fi_rma_iov *range, uint64_t offset,
			const struct plan *plan)
{
	struct peer *peer = &request->to->peer;
	const struct chunk_pool *pool = peer->pool;
	unsigned char operands[2 * WIRE_ATOMIC_BYTES];
	const unsigned char *bytes = operands;
	struct {
		struct wire_atomic atomic;
		struct wire_piece piece;
	} header = {
		.atomic =
			{
				.address = range->addr,
				.count = (uint16_t)(plan->length / atomic_element_bytes(request->datatype)),
				.datatype = (uint8_t)request->datatype,
				.operation = (uint8_t)request->operation,
				.form = (uint8_t)request->form,
			},
	};

	if (plan->bytes > 0)
		bytes = buffer_in_a_row(request->pieces, request->count, offset, plan->length, operands);
	if (request->form == ATOMIC_COMPARE) {
		if (bytes != operands)
			memcpy(operands, bytes, plan->length);
		unsigned char *second = operands + plan->length;
		const unsigned char *compares = buffer_in_a_row(request->compares, request->compare_count,
								offset, plan->length, second);
		if (compares != second)
			memcpy(second, compares, plan->length);
		bytes = operands;
	}
	if (plan->chunk == CHUNK_NONE) {
		remote_push(peer, control_word(WIRE_ATOMIC, plan->flags, plan->bytes), range->key,
			    &header.atomic, sizeof(header.atomic), bytes, plan->bytes);
		return;
	}
	header.piece = (struct wire_piece){plan->chunk, chunk_offset(pool, plan->chunk, NULL)};
	shared_copy_out(pool->section + header.piece.offset, bytes, plan->bytes);
	remote_push(peer, control_word(WIRE_ATOMIC_CHUNK, plan->flags, plan->bytes), range->key, &header,
		    sizeof(header), NULL, 0);
}

static void push_request(const struct remote_request *request, const struct fi_rma_iov *range,
			 uint64_t offset, const struct plan *plan)
{
	switch (request->kind) {
	case REMOTE_WRITE:
		push_write(request, range, offset, plan);
		break;
	case REMOTE_READ:
		remote_push(&request->to->peer, control_word(WIRE_READ, plan->flags, plan->length),
			    range->key, &range->addr, sizeof(range->addr), NULL, 0);
		break;
	default:
		push_atomic(request, range, offset, plan);
		break;
	}
	request->to->remote.requests++;
}

/* ---- whole operations ---- */

static struct remote_operation *new_operation(struct messenger *messenger,
					      const struct remote_request *request)
{
	struct remote_operation *operation = pool_take(&messenger->remote_pool);

	if (operation == NULL)
		return NULL;
	operation->to = request->to;
	operation->context = request->context;
	operation->flags = request->flags;
	operation->kind = request->kind;
	operation->fetches = request->kind == REMOTE_ATOMIC && request->form != ATOMIC_BASE;
	operation->outstanding = 0;
	operation->error = 0;
	if (operation->fetches)
		buffer_open(&operation->buffer, request->results, request->result_count);
	else if (request->kind != REMOTE_ATOMIC)
		buffer_open(&operation->buffer, request->pieces, request->count);
	return operation;
}

/* The bytes that a request for `length` bytes of the peer's memory carries. */
static uint32_t bytes_along(const struct remote_request *request, uint32_t length)
{
	if (request->kind == REMOTE_READ ||
	    (request->kind == REMOTE_ATOMIC && request->operation == FI_ATOMIC_READ))
		return 0;
	return request->form == ATOMIC_COMPARE ? 2 * length : length;
}

static void plan_request(const struct remote_request *request, uint32_t length, uint32_t flags,
			 uint32_t most_slots, struct plan *plan)
{
	uint32_t header =
		request->kind == REMOTE_ATOMIC ? sizeof(struct wire_atomic) : (flags & WIRE_DATA ? 16 : 8);

	*plan = (struct plan){
		.length = length,
		.bytes = bytes_along(request, length),
		.chunk = CHUNK_NONE,
		.flags = flags,
	};
	plan->slots = plan->bytes == 0 ? 1 : remote_slots(header + plan->bytes);
	if (plan->slots > most_slots)
		plan->slots = 0; /* the bytes go in a chunk: see take_chunks() */
}

static void untake_chunks(const struct msg_peer *to, const struct plan *plans, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (plans[i].chunk != CHUNK_NONE)
			chunk_untake(to->peer.pool, plans[i].chunk);
}

static bool take_chunks(struct messenger *messenger, struct msg_peer *to, struct plan *plans, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (plans[i].slots != 0)
			continue;
		plans[i].chunk = transport_chunk(messenger->transport, &to->peer, plans[i].bytes);
		if (plans[i].chunk == CHUNK_NONE) {
			untake_chunks(to, plans, i);
			rendezvous_miss_chunk(messenger);
			return false;
		}
		plans[i].slots = 1;
	}
	return true;
}

/* Whether the operation ends with an answer, or when its bytes have left. */
static bool wants_answer(const struct remote_request *request)
{
	const uint64_t later = FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE;
	const uint64_t at_once = FI_INJECT | FI_INJECT_COMPLETE;

	return request->kind == REMOTE_READ || request->form != ATOMIC_BASE ||
	       (request->flags & later) != 0 || (request->flags & at_once) == 0;
}

static ssize_t request_whole(struct messenger *messenger, const struct remote_request *request)
{
	struct msg_peer *to = request->to;
	bool answered = wants_answer(request);
	bool told = answered || to->remote.asks; /* of all requests so far */
	bool reply = request->kind == REMOTE_READ || request->form != ATOMIC_BASE;
	struct plan plans[REMOTE_RANGES];
	uint32_t count = (uint32_t)request->range_count;
	uint32_t slots = 0;
	struct remote_operation *operation = NULL;

	if (!to->peer.sending) { /* the length of the ring is known once it exists */
		ssize_t connected = send_make_room(messenger, to, 1);
		if (connected != 0)
			return connected;
	}
	uint32_t most_slots = count == 1 ? WIRE_SHORT_SLOTS : (to->peer.out.mask + 1) / RING_SHARE;
	if (most_slots > WIRE_SHORT_SLOTS)
		most_slots = WIRE_SHORT_SLOTS;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t flags = told ? WIRE_ACKNOWLEDGED : 0;
		if (i + 1 == count)
			flags |= WIRE_LAST | (request->flags & FI_REMOTE_CQ_DATA ? WIRE_DATA : 0U);
		plan_request(request, (uint32_t)request->ranges[i].len, flags, most_slots, &plans[i]);
		slots += plans[i].slots == 0 ? 1 : plans[i].slots;
	}
	ssize_t result = send_make_room(messenger, to, slots);
	if (result == 0 && answered)
		result = make_expectations(&to->remote, count, reply ? count : 0);
	if (result != 0)
		return result;
	if (!take_chunks(messenger, to, plans, count))
		return -EAGAIN;
	if (answered) {
		operation = new_operation(messenger, request);
		if (operation == NULL) {
			untake_chunks(to, plans, count);
			return -ENOMEM;
		}
		operation->sent_all = true;
		match_append(&messenger->remote_awaiting, &operation->link);
	}
	to->remote.asks = false;
	uint64_t offset = 0;
	for (uint32_t i = 0; i < count; i++) {
		push_request(request, &request->ranges[i], offset, &plans[i]);
		if (answered)
			expect(&to->remote, operation, offset, plans[i].length, reply);
		offset += plans[i].length;
	}
	to->peer.messages++;
	to->peer.bytes += request->length;
	if (!answered)
		remote_complete(messenger, request->kind, false, request->context, request->flags, 0, NULL);
	return 0;
}

/* ---- long operations ---- */

static void finish_sending(struct messenger *messenger, struct remote_operation *operation)
{
	operation->sent_all = true;
	match_unlink(&operation->link);
	match_append(&messenger->remote_awaiting, &operation->link);
	messenger->remote_pending--;
	remote_end_if_over(messenger, operation, NULL);
}

/* A chunk for the next piece of a long write. Keeps few large chunks in flight. */
static uint32_t piece_chunk(struct messenger *messenger, struct msg_peer *to, uint32_t length)
{
	struct transport *transport = messenger->transport;
	struct chunk_account *account = &to->peer.account;

	if (account->outstanding_of[CHUNK_CLASS_LARGE] >= LARGE_CHUNKS_IN_FLIGHT) {
		if (chunk_collect(to->peer.pool, account) < 0)
			transport_fail(transport, &to->peer, -EPROTO,
				       "the peer returned a chunk that it does not have");
		if (account->outstanding_of[CHUNK_CLASS_LARGE] >= LARGE_CHUNKS_IN_FLIGHT)
			return CHUNK_NONE;
	}
	uint32_t chunk = transport_chunk(transport, &to->peer, length);
	if (chunk == CHUNK_NONE)
		rendezvous_miss_chunk(messenger);
	return chunk;
}

uint32_t remote_pump(struct messenger *messenger, struct remote_operation *operation, uint32_t budget)
{
	struct msg_peer *to = operation->to;
	bool reads = operation->kind == REMOTE_READ;

	if (operation->by_core && remote_core_begin(messenger, operation))
		return budget - 1;
	if (operation->by_core)
		return budget;
	for (; budget > 0 && operation->sent < operation->buffer.length; budget--) {
		const struct fi_rma_iov *range = &operation->ranges[operation->range];
		uint64_t rest = range->len - operation->range_sent;
		if (rest == 0) {
			operation->range++;
			operation->range_sent = 0;
			budget++;
			continue;
		}
		/*
		 * The peer's transport may have changed since the operation began, and its chunks may be
		 * smaller.
		 */
		uint32_t most =
			operation->piece < to->peer.pool->largest ? operation->piece : to->peer.pool->largest;
		uint32_t length = rest < most ? (uint32_t)rest : most;
		bool last = operation->sent + length == operation->buffer.length;
		if (operation->outstanding >= REQUESTS_IN_FLIGHT || send_make_room(messenger, to, 1) != 0 ||
		    make_expectations(&to->remote, 1, reads) != 0)
			return budget;
		struct plan plan = {
			.length = length,
			.chunk = reads ? CHUNK_NONE : piece_chunk(messenger, to, length),
			.flags = WIRE_ACKNOWLEDGED | (last ? (uint32_t)WIRE_LAST : 0U),
			.rest = rest - length,
		};
		if (!reads && plan.chunk == CHUNK_NONE)
			return budget;
		if (last && (operation->flags & FI_REMOTE_CQ_DATA) != 0)
			plan.flags |= WIRE_DATA;
		push_request(
			&(struct remote_request){
				.kind = operation->kind,
				.pieces = operation->buffer.pieces,
				.count = operation->buffer.count,
				.to = to,
				.data = operation->data,
			},
			&(struct fi_rma_iov){range->addr + operation->range_sent, length, range->key},
			operation->sent, &plan);
		expect(&to->remote, operation, operation->sent, length, reads);
		operation->sent += length;
		operation->range_sent += length;
	}
	if (operation->sent == operation->buffer.length)
		finish_sending(messenger, operation);
	return budget;
}

static ssize_t request_long(struct messenger *messenger, const struct remote_request *request)
{
	struct msg_peer *to = request->to;
	ssize_t result = send_make_room(messenger, to, 1);
	struct remote_operation *operation = result == 0 ? new_operation(messenger, request) : NULL;

	if (operation == NULL)
		return result == 0 ? -ENOMEM : result;
	/* Over the network each piece is a frame, and a call of the core provider. */
	bool by_network = to->peer.network != NULL;
	uint32_t piece = request->length < LONG_BYTES && !by_network ? PIECE_BYTES : PIECE_BYTES_LONG;
	uint32_t largest = to->peer.pool->largest;
	operation->sent_all = false;
	operation->data = request->data;
	operation->sent = 0;
	operation->range_sent = 0;
	operation->range = 0;
	operation->range_count = (uint32_t)request->range_count;
	operation->by_core = remote_core_may_move(request);
	/* The target's chunks are as long as the initiator's, because all members' sections have one size. */
	operation->piece = piece < largest ? piece : largest;
	memcpy(operation->ranges, request->ranges, request->range_count * sizeof(*request->ranges));
	match_append(&messenger->remote_pumping, &operation->link);
	messenger->remote_pending++;
	to->peer.messages++;
	to->peer.bytes += request->length;
	(void)remote_pump(messenger, operation, REQUESTS_IN_FLIGHT);
	return 0;
}

ssize_t messenger_remote(struct messenger *messenger, const struct remote_request *request)
{
	struct msg_peer *to = request->to;

	if (!is_present(to))
		return transport_refuse(&to->peer);
	if ((request->flags & FI_FENCE) != 0 && !messenger_is_quiet(messenger, to))
		return -EAGAIN;
	if ((request->flags & FI_INJECT) != 0 && request->length > MESSENGER_INJECT_BYTES)
		return -EINVAL;
	if (messenger->reaches && to->peer.mapped) {
		if (direct_carry_out(messenger, request))
			return 0;
		if (is_failed(to)) /* the direct attempt has just detected the failure */
			return to->peer.failure;
	}
	if (__builtin_expect(to->peer.waits, 0)) /* it must not overtake waiting messages */
		return -EAGAIN;
	if (request->length <= REMOTE_WHOLE_BYTES)
		return request_whole(messenger, request);
	if (request->kind == REMOTE_ATOMIC)
		return -EMSGSIZE;
	return request_long(messenger, request);
}
