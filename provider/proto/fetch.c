/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fetch.c - large messages over the network: the sender offers its buffer, and the receiver reads it.
 *
 *   sender                                   receiver
 *   OFFER                     ───────────▶   matched? read, straight into the receive's buffer
 *                             ◀── read ───
 *                             ◀───────────   ACKNOWLEDGE, after the last byte
 */
#include "proto/messenger.h"

/* Shorter messages are sent in a frame with their header. Measured: docs/decisions/0010 */
#define OFFER_BYTES ((size_t)CHUNK_LARGE)

bool fetch_offer(const struct send_request *request, struct send *send, uint32_t wire_flags)
{
	struct peer *peer = &request->to->peer;
	struct wire_offer header = {.data = request->data, .id = send->id, .total = request->length};

	if (peer->network == NULL || request->count != 1 || request->length <= OFFER_BYTES ||
	    !network_expose(peer, request->pieces[0].iov_base, request->length, &send->grant))
		return false;
	header.key = send->grant.key;
	header.address = send->grant.address;
	struct ring_slot *slot = ring_next(&peer->out, 0);
	shared_store_u64(&slot->word, request->tag);
	shared_copy_out(slot->payload, &header, sizeof(header));
	ring_push(&peer->out, control_word(WIRE_OFFER, wire_flags & ~(uint32_t)WIRE_ACKNOWLEDGED, 0), 1);
	transport_wake(peer);
	peer->messages++;
	peer->bytes += request->length;
	return true;
}

static void end(struct messenger *messenger, struct receive *receive)
{
	struct msg_peer *from = receive->from;

	match_unlink(&receive->incoming);
	operations_remove(&messenger->receive_ids, receive->id);
	if (!rendezvous_acknowledge(messenger, from, receive->sender_id))
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left to acknowledge the peer's message");
	receive_complete(messenger, receive, from, receive->total, receive->tag, receive->data,
			 receive->wire_flags);
}

/* The sender failed; its slot may have a new owner by now. */
static void fail(struct messenger *messenger, struct receive *receive)
{
	const struct peer *from = &receive->from->peer;

	if (from->state == PEER_FAILED)
		receive_fail(messenger, receive, -from->failure, from->reason);
	else
		receive_fail(messenger, receive, FI_ECONNRESET, "the sender is gone");
}

static void ended(struct messenger *messenger, struct reading *reading)
{
	struct receive *receive =
		(struct receive *)(void *)((char *)reading - offsetof(struct receive, reading));

	receive->fetching = false;
	if (reading->abandoned)
		fail(messenger, receive);
	else
		end(messenger, receive);
}

bool fetch_begin(struct messenger *messenger, struct receive *receive, struct msg_peer *from,
		 const struct wire_offer *offer, uint64_t tag, uint32_t wire_flags)
{
	receive->from = from;
	receive->sender_id = offer->id;
	receive->total = offer->total;
	receive->tag = tag;
	receive->data = offer->data;
	receive->wire_flags = wire_flags;
	receive->expected = receive->total < receive->buffer.length ? receive->total : receive->buffer.length;
	receive->early = receive->total;
	receive->arrived = 0;
	receive->fetching = false;
	receive->copy = NULL;
	receive->id = operations_add(&messenger->receive_ids, receive);
	if (receive->id == OPERATION_NO_ID) {
		receive_fail(messenger, receive, FI_ENOMEM, "no memory is left");
		return false;
	}
	match_append(&messenger->incoming, &receive->incoming);
	if (receive->expected == 0) {
		end(messenger, receive);
		return true;
	}
	receive->fetching = true;
	reading_begin(messenger, &receive->reading, from, &receive->buffer, receive->expected,
		      &(struct network_grant){.key = offer->key, .address = offer->address}, ended);
	return true;
}

bool fetch_abandon(struct messenger *messenger, struct receive *receive)
{
	if (!receive->fetching)
		return false;
	receive->fetching = false;
	return reading_abandon(messenger, &receive->reading);
}
