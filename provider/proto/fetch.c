/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fetch.c - large messages over the network: the sender offers its buffer, and the receiver reads it.
 *
 *   sender                                   receiver
 *   OFFER                     ───────────▶   matched? read, straight into the receive's buffer
 *                             ◀── read ───
 *                             ◀───────────   ACKNOWLEDGE, when all is there
 *
 * It reads in pieces, a few at a time, so that what else comes by the same connection passes between
 * them; and no more than it has room for.
 */
#include "proto/messenger.h"

/* Shorter ones go in a frame with their header. Measured: docs/network.md */
#define OFFER_BYTES ((size_t)CHUNK_LARGE)
#define FETCH_BYTES ((uint64_t)1 << 20)
#define FETCHES_AT_ONCE 2U

bool fetch_offer(const struct send_request *request, struct send *send, uint32_t wire_flags)
{
	struct peer *peer = &request->to->peer;
	struct wire_offer header = {.data = request->data, .id = send->id, .total = request->length};

	if (peer->network == NULL || request->count != 1 || request->length <= OFFER_BYTES ||
	    !network_lend(peer, request->pieces[0].iov_base, request->length, &send->loan))
		return false;
	header.key = send->loan.key;
	header.address = send->loan.address;
	struct ring_slot *slot = ring_next(&peer->out, 0);
	shared_store_u64(&slot->word, request->tag);
	shared_copy_out(slot->payload, &header, sizeof(header));
	ring_push(&peer->out, control_word(WIRE_OFFER, wire_flags & ~(uint32_t)WIRE_ACKNOWLEDGED, 0), 1);
	path_wake(peer);
	peer->messages++;
	peer->bytes += request->length;
	return true;
}

static void end(struct messenger *messenger, struct receive *receive)
{
	struct correspondent *from = receive->from;

	match_unlink(&receive->incoming);
	operations_remove(&messenger->receive_ids, receive->id);
	if (!rendezvous_acknowledge(messenger, from, receive->sender_id))
		path_fail(messenger->path, &from->peer, -ENOMEM,
			  "no memory is left to acknowledge its message");
	receive_complete(messenger, receive, from, receive->total, receive->tag, receive->data,
			 receive->wire_flags);
}

/* The next piece that lies in a row in the receive's buffer. */
static struct iovec next_piece(const struct receive *receive)
{
	uint64_t offset = receive->asked;
	uint64_t rest = receive->expected - receive->asked;

	for (size_t i = 0; i < receive->buffer.count; i++) {
		const struct iovec *piece = &receive->buffer.pieces[i];
		if (offset >= piece->iov_len) {
			offset -= piece->iov_len;
			continue;
		}
		uint64_t length = piece->iov_len - offset < rest ? piece->iov_len - offset : rest;
		return (struct iovec){(char *)piece->iov_base + offset,
				      length < FETCH_BYTES ? length : FETCH_BYTES};
	}
	return (struct iovec){0};
}

/* Ask for more, as far as there is room. */
static uint32_t ask(struct messenger *messenger, struct receive *receive)
{
	struct correspondent *from = receive->from;
	uint32_t asked = 0;

	while (receive->asked < receive->expected && receive->fetches < FETCHES_AT_ONCE && !is_failed(from)) {
		struct iovec piece = next_piece(receive);
		int result = network_fetch(&from->peer, &receive->loan, receive->asked, piece.iov_base,
					   piece.iov_len, receive);
		if (result == -EAGAIN) {
			messenger->fetches_wait = true;
			break;
		}
		if (result != 0) {
			path_fail(messenger->path, &from->peer, -ECONNRESET,
				  "the network connection to it broke");
			break;
		}
		receive->asked += piece.iov_len;
		receive->fetches++;
		asked++;
	}
	return asked;
}

bool fetch_begin(struct messenger *messenger, struct receive *receive, struct correspondent *from,
		 const struct wire_offer *offer, uint64_t tag, uint32_t wire_flags)
{
	receive->from = from;
	receive->sender_id = offer->id;
	receive->total = offer->total;
	receive->tag = tag;
	receive->data = offer->data;
	receive->wire_flags = wire_flags;
	receive->loan = (struct network_loan){.key = offer->key, .address = offer->address};
	receive->expected = receive->total < receive->buffer.length ? receive->total : receive->buffer.length;
	receive->early = receive->total;
	receive->arrived = 0;
	receive->asked = 0;
	receive->fetches = 0;
	receive->abandoned = false;
	receive->copy = NULL;
	receive->id = operations_add(&messenger->receive_ids, receive);
	if (receive->id == OPERATION_NO_ID) {
		receive_fail(messenger, receive, FI_ENOMEM, "no memory is left");
		return false;
	}
	match_append(&messenger->incoming, &receive->incoming);
	receive->fetching = true;
	if (receive->expected == 0) {
		receive->fetching = false;
		end(messenger, receive);
		return true;
	}
	(void)ask(messenger, receive);
	return true;
}

/* Its sender failed; another may have its slot by now. */
static void fail(struct messenger *messenger, struct receive *receive)
{
	const struct peer *from = &receive->from->peer;

	if (from->state == PEER_FAILED)
		receive_fail(messenger, receive, -from->failure, from->reason);
	else
		receive_fail(messenger, receive, FI_ECONNRESET, "its sender is gone");
}

void fetch_ended(void *context, void *cookie, size_t length, int error)
{
	struct messenger *messenger = context;
	struct receive *receive = cookie;

	receive->fetches--;
	if (error == 0)
		receive->arrived += length;
	if (receive->abandoned) {
		if (receive->fetches == 0)
			fail(messenger, receive);
		return;
	}
	if (error != 0)
		return; /* its peer failed: fetch_abandon() comes */
	if (receive->arrived < receive->expected) {
		(void)ask(messenger, receive);
		return;
	}
	receive->fetching = false;
	end(messenger, receive);
}

bool fetch_abandon(struct receive *receive)
{
	if (!receive->fetching)
		return false;
	receive->fetching = false;
	receive->abandoned = receive->fetches > 0;
	return receive->abandoned;
}

uint32_t fetch_work(struct messenger *messenger)
{
	uint32_t asked = 0;

	messenger->fetches_wait = false;
	for (struct match_link *link = messenger->incoming.next; link != &messenger->incoming;) {
		struct receive *receive =
			(struct receive *)(void *)((char *)link - offsetof(struct receive, incoming));
		link = link->next;
		if (receive->fetching)
			asked += ask(messenger, receive);
	}
	return asked;
}
