/* SPDX-License-Identifier: BSD-3-Clause */
/* send.c - chooses a protocol for a message, and sends small messages. */
#include "proto/messenger.h"

#include <limits.h>

void send_complete(struct messenger *messenger, void *context, uint64_t flags, uint64_t tag, int error,
		   const char *reason)
{
	messenger_count(messenger, messenger->send_counter, error);
	if ((error == 0 && (flags & FI_COMPLETION) == 0) || messenger->send_completions == NULL)
		return;
	struct completion *entry = completion_add(messenger->send_completions);
	if (entry == NULL)
		return;
	*entry = (struct completion){
		.context = context,
		.flags = FI_SEND | (flags & (FI_TAGGED | FI_MSG)),
		.tag = tag,
		.source = COMPLETION_NO_SOURCE,
		.error = error,
		.reason = reason,
	};
}

void send_end(struct messenger *messenger, struct send *send, int error, const char *reason)
{
	match_unlink(&send->link);
	operations_remove(&messenger->send_ids, send->id);
	if (send->copy != NULL)
		single_copy_release(messenger, send->copy);
	if (send->grant.mr != NULL)
		network_revoke(&send->grant);
	send_complete(messenger, send->context, send->flags, send->tag, error, reason);
	pool_give(&messenger->send_pool, send);
}

struct send *send_begin(struct messenger *messenger, const struct send_request *request)
{
	struct send *send = pool_take(&messenger->send_pool);

	if (send == NULL)
		return NULL;
	*send = (struct send){
		.to = request->to,
		.context = request->context,
		.flags = request->flags,
		.tag = request->tag,
		.sent = request->length,
		.accepted = request->length,
	};
	send->id = operations_add(&messenger->send_ids, send);
	if (send->id == OPERATION_NO_ID) {
		pool_give(&messenger->send_pool, send);
		return NULL;
	}
	match_append(&messenger->awaiting, &send->link);
	return send;
}

/* Writes [data] [id] before the bytes. Returns their length. */
static uint32_t write_prefix(shared_bytes *payload, const struct send_request *request, uint32_t wire_flags,
			     uint64_t id)
{
	uint32_t prefix = 0;

	if (wire_flags & WIRE_DATA) {
		shared_copy_out(payload, &request->data, 8);
		prefix = 8;
	}
	if (wire_flags & WIRE_ACKNOWLEDGED) {
		shared_copy_out(payload + prefix, &id, 8);
		prefix += 8;
	}
	return prefix;
}

size_t send_gather(const struct send_request *request, unsigned char *bytes)
{
	const unsigned char *begin = bytes;

	for (size_t i = 0; i < request->count; i++) {
		if (request->pieces[i].iov_len > 0)
			memcpy(bytes, request->pieces[i].iov_base, request->pieces[i].iov_len);
		bytes += request->pieces[i].iov_len;
	}
	return (size_t)(bytes - begin);
}

/* INLINE and SHORT: the bytes are in slots of the ring. */
static void send_in_slots(const struct send_request *request, uint32_t wire_flags, uint32_t slots,
			  uint64_t id)
{
	struct peer *peer = &request->to->peer;
	struct ring_out *ring = &peer->out;
	struct ring_slot *first = ring_next(ring, 0);
	unsigned char gathered[WIRE_SHORT_BYTES];
	const unsigned char *bytes = gathered;
	size_t length = request->length;

	if (request->count == 1)
		bytes = request->pieces[0].iov_base;
	else
		length = send_gather(request, gathered);
	shared_store_u64(&first->word, request->tag);
	uint32_t prefix = write_prefix(first->payload, request, wire_flags, id);
	size_t part = WIRE_INLINE_BYTES - prefix < length ? WIRE_INLINE_BYTES - prefix : length;
	copy_small_out(first->payload + prefix, bytes, part);
	for (uint32_t ahead = 1; ahead < slots; ahead++) {
		bytes += part;
		length -= part;
		part = length < WIRE_CONTINUATION_BYTES ? length : WIRE_CONTINUATION_BYTES;
		struct ring_slot *slot = ring_next(ring, ahead);
		copy_small_out((shared_bytes *)&slot->word, bytes, part);
		ring_stage(ring, ahead, control_word(WIRE_CONTINUATION, 0, 0));
	}
	ring_push(ring,
		  control_word(slots == 1 ? WIRE_INLINE : WIRE_SHORT, wire_flags, (uint32_t)request->length),
		  slots);
	transport_wake(peer);
}

static void send_eager(const struct send_request *request, uint32_t wire_flags, uint32_t chunk, uint64_t id)
{
	struct peer *peer = &request->to->peer;
	const struct chunk_pool *pool = peer->pool;
	struct ring_slot *slot = ring_next(&peer->out, 0);
	struct wire_eager header = {
		.data = request->data,
		.id = id,
		.chunk = chunk,
		.offset = chunk_offset(pool, chunk, request->pieces[0].iov_base),
	};
	shared_bytes *to = pool->section + header.offset;

	for (size_t i = 0; i < request->count; i++) {
		if (request->pieces[i].iov_len > 0)
			shared_copy_out(to, request->pieces[i].iov_base, request->pieces[i].iov_len);
		to += request->pieces[i].iov_len;
	}
	shared_store_u64(&slot->word, request->tag);
	shared_copy_out(slot->payload, &header, sizeof(header));
	ring_push(&peer->out, control_word(WIRE_EAGER, wire_flags, (uint32_t)request->length), 1);
	transport_wake(peer);
}

ssize_t send_make_room(struct messenger *messenger, struct msg_peer *to, uint32_t slots)
{
	if (transport_room(messenger->transport, &to->peer, slots))
		return 0;
	if (is_failed(to))
		return to->peer.failure;
	if (to->peer.sending)
		return -EAGAIN;
	int result = transport_connect(&to->peer);
	if (result != 0)
		return result;
	return transport_room(messenger->transport, &to->peer, slots) ? 0 : -EAGAIN;
}

static inline __attribute__((always_inline)) ssize_t try_to_send(struct messenger *messenger,
								 const struct send_request *request)
{
	struct msg_peer *to = request->to;
	uint32_t wire_flags = (request->flags & FI_TAGGED ? (uint32_t)WIRE_TAGGED : 0U) |
			      (request->flags & FI_REMOTE_CQ_DATA ? (uint32_t)WIRE_DATA : 0U);
	uint32_t prefix = wire_flags & WIRE_DATA ? 8 : 0;
	bool acknowledged = (request->flags & FI_DELIVERY_COMPLETE) != 0;
	uint32_t slots = 1;
	uint32_t chunk = CHUNK_NONE;
	uint64_t id = 0;

	if (acknowledged) {
		wire_flags |= WIRE_ACKNOWLEDGED;
		prefix += 8;
	}
	bool in_slots = request->length <=
			messenger->thresholds.short_bytes -
				prefix; /* no sum, which could overflow: any length may be requested */
	if (in_slots && request->length + prefix > WIRE_INLINE_BYTES)
		slots = 1 + (uint32_t)(request->length + prefix - WIRE_INLINE_BYTES +
				       WIRE_CONTINUATION_BYTES - 1) /
				    WIRE_CONTINUATION_BYTES;
	ssize_t result = send_make_room(messenger, to, slots);
	if (result != 0)
		return result;
	if (!in_slots) {
		if (request->length > SSIZE_MAX)
			return -EMSGSIZE;
		if (request->length <=
		    (to->peer.network == NULL ? messenger->thresholds.eager_bytes : to->peer.pool->largest))
			chunk = transport_chunk(messenger->transport, &to->peer, (uint32_t)request->length);
		if (chunk == CHUNK_NONE && (request->flags & FI_INJECT) != 0) {
			rendezvous_miss_chunk(messenger);
			return -EAGAIN;
		}
		if (chunk == CHUNK_NONE)
			return rendezvous_send(messenger, request, wire_flags);
	}
	if (acknowledged) {
		struct send *send = send_begin(messenger, request);
		if (send == NULL) {
			if (chunk != CHUNK_NONE)
				chunk_untake(to->peer.pool, chunk);
			return -ENOMEM;
		}
		id = send->id;
	}
	if (in_slots)
		send_in_slots(request, wire_flags, slots, id);
	else
		send_eager(request, wire_flags, chunk, id);
	to->peer.messages++;
	to->peer.bytes += request->length;
	if (!acknowledged)
		send_complete(messenger, request->context, request->flags, request->tag, 0, NULL);
	return 0;
}

ssize_t send_now(struct messenger *messenger, const struct send_request *request)
{
	return try_to_send(messenger, request);
}

ssize_t messenger_send(struct messenger *messenger, const struct send_request *request)
{
	struct msg_peer *to = request->to;

	if (!is_present(to))
		return transport_refuse(&to->peer);
	if ((request->flags & FI_INJECT) != 0 && request->length > MESSENGER_INJECT_BYTES)
		return -EINVAL;
	if (__builtin_expect(to->peer.waits, 0))
		return send_queue_add(messenger, request);
	ssize_t result = try_to_send(messenger, request);
	return __builtin_expect(result == -EAGAIN, 0) ? send_queue_add(messenger, request) : result;
}
