/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rendezvous.c - large messages: a pipeline of chunks between two private buffers.
 *
 *   sender                                   receiver
 *   RENDEZVOUS + first piece  ───────────▶   matched? copy out at once
 *   EARLY, EARLY, EARLY       ───────────▶   copy out
 *                             ◀───────────   CLEAR, when the receive is there
 *   PIECE, PIECE, ...         ───────────▶   copy out, return the chunk
 *
 * Both cores copy from the first piece on, no poll waits for the peer, and small messages pass between the
 * pieces. A message whose pieces were all sent early needs no CLEAR.
 */
#include "proto/messenger.h"

#include <stdlib.h>

/* The shortest early piece: shorter ones cost more than their overlap saves. */
#define EARLY_PIECE_BYTES 4096U
/* A longer run of messages to a peer that sends none itself is a stream. */
#define STREAK_ALONE 2U
/* With this many chunks at a peer, no message sends more early pieces. */
#define EARLY_CHUNKS_OUT 8U
/*
 * A message that will be copied once sends this much early, so that the receiver can copy while the ends find
 * each other. Measured: docs/decisions/0007.
 */
#define EARLY_PIECES_OFFERED 1U
#define EARLY_PIECE_OFFERED 8192U
/* In one poll, over all messages, so that arriving slots are not delayed. */
#define PIECES_PER_POLL 4U

/* A copy of a large piece lasts a few of the sender's polls, so fewer stalls are normal. */
#define STALLS_BEFORE_ASKING 256U

#define WAITING_CONTROLS_MAX (1U << 20)

/* ---- control slots ---- */

static void push_control(struct peer *peer, const struct control_slot *slot)
{
	struct ring_slot *to = ring_next(&peer->out, 0);

	shared_store_u64(&to->word, slot->word);
	shared_copy_out(to->payload, &slot->clear, sizeof(slot->clear));
	ring_push(&peer->out, slot->control, 1);
	transport_wake(peer);
}

static bool keep_control(struct messenger *messenger, struct msg_peer *to, const struct control_slot *slot)
{
	uint32_t count = to->waiting_tail - to->waiting_head;

	if (count == to->waiting_capacity) {
		/* Bounded, because only a peer that asks and never reads makes the buffer grow. */
		uint32_t capacity = count == 0 ? 16 : count * 2;
		struct control_slot *grown =
			capacity > WAITING_CONTROLS_MAX ? NULL : malloc(capacity * sizeof(*grown));
		if (grown == NULL)
			return false;
		for (uint32_t i = 0; i < count; i++)
			grown[i] = to->waiting[(to->waiting_head + i) & (to->waiting_capacity - 1)];
		free(to->waiting);
		to->waiting = grown;
		to->waiting_capacity = capacity;
		to->waiting_head = 0;
		to->waiting_tail = count;
	}
	to->waiting[to->waiting_tail++ & (to->waiting_capacity - 1)] = *slot;
	messenger->waiting_controls++;
	return true;
}

bool rendezvous_send_control(struct messenger *messenger, struct msg_peer *to,
			     const struct control_slot *slot)
{
	if (is_failed(to))
		return true; /* the peer does not read it any more */
	if (!to->peer.sending && transport_connect(&to->peer) != 0)
		return false;
	if (rendezvous_sent_controls(to) && transport_room(messenger->transport, &to->peer, 1)) {
		push_control(&to->peer, slot);
		return true;
	}
	return keep_control(messenger, to, slot);
}

static void flush_controls(struct messenger *messenger, struct msg_peer *to)
{
	while (to->waiting_head != to->waiting_tail && transport_room(messenger->transport, &to->peer, 1)) {
		push_control(&to->peer, &to->waiting[to->waiting_head++ & (to->waiting_capacity - 1)]);
		messenger->waiting_controls--;
	}
}

bool rendezvous_acknowledge(struct messenger *messenger, struct msg_peer *to, uint64_t sender_id)
{
	return rendezvous_send_control(messenger, to,
				       &(struct control_slot){
					       .control = control_word(WIRE_ACKNOWLEDGE, 0, 0),
					       .word = sender_id,
				       });
}

void rendezvous_switch(void *context, struct peer *peer)
{
	(void)context;
	push_control(peer, &(struct control_slot){.control = control_word(WIRE_SWITCH, 0, 0)});
}

void rendezvous_resize(void *context, struct peer *peer, uint32_t offset, uint32_t slots)
{
	(void)context;
	push_control(peer, &(struct control_slot){
				   .control = control_word(WIRE_RESIZE, 0, slots),
				   .word = offset,
			   });
}

void rendezvous_ask_chunks(struct messenger *messenger)
{
	struct transport *transport = messenger->transport;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct msg_peer *peer = (struct msg_peer *)(void *)transport->peers[source];
		if (peer == NULL || peer->peer.account.outstanding == 0 || is_failed(peer))
			continue;
		/* One RECLAIM covers all chunks that the peer holds now: it answers by returning them. */
		if (peer->peer.account.taken_at_reclaim == peer->peer.account.taken_count ||
		    !transport_room(transport, &peer->peer, 1))
			continue;
		peer->peer.account.taken_at_reclaim = peer->peer.account.taken_count;
		push_control(&peer->peer,
			     &(struct control_slot){.control = control_word(WIRE_RECLAIM, 0, 0)});
	}
}

void rendezvous_miss_chunk(struct messenger *messenger)
{
	if (++messenger->chunk_misses % STALLS_BEFORE_ASKING == 0)
		rendezvous_ask_chunks(messenger);
}

/* ---- the sender ---- */

static uint32_t longest_piece(const struct messenger *messenger, const struct chunk_pool *pool)
{
	uint32_t most = messenger->thresholds.piece_bytes;

	return pool->largest < most ? pool->largest : most;
}

/*
 * The length of an early piece. A single message arrives soonest in up to four pieces of equal length, none
 * of them too short. In a stream the copies overlap anyway, and long pieces cost less for each byte.
 */
static uint32_t early_piece_length(uint32_t longest, uint64_t total, uint32_t streak)
{
	uint64_t length = streak > STREAK_ALONE ? total : (total + WIRE_EARLY_PIECES - 1) / WIRE_EARLY_PIECES;
	uint32_t most = streak > STREAK_ALONE || longest < CHUNK_MEDIUM ? longest : CHUNK_MEDIUM;

	length = (length + REGION_LINE - 1) / REGION_LINE * REGION_LINE;
	if (length < EARLY_PIECE_BYTES)
		return EARLY_PIECE_BYTES;
	return length > most ? most : (uint32_t)length;
}

/* Copies the next piece into a chunk. Returns the flag that tells the receiver the copy method. */
static uint32_t copy_piece(struct send *send, shared_bytes *to, uint32_t length)
{
	struct copy_methods *methods = &send->to->copy_methods;
	enum copy_method method = methods->method;

	if (send->buffer.count != 1 || length < COPY_METHODS_BYTES) {
		buffer_to_region(&send->buffer, send->sent, to, length);
		return 0;
	}
	const char *from = buffer_at(&send->buffer, send->sent);
	uint64_t began = copy_methods_clock();
	if (method == COPY_PAST_CACHE)
		copy_past_cache_out(to, from, length);
	else
		shared_copy_out(to, from, length);
	if (length >= COPY_METHODS_MEASURED_BYTES)
		copy_methods_copied(methods, copy_methods_clock() - began, length);
	return copy_method_wire_flags(method);
}

static void push_piece(struct send *send, uint32_t kind, uint64_t word, uint32_t chunk, uint32_t length)
{
	struct peer *peer = &send->to->peer;
	const struct chunk_pool *pool = peer->pool;
	const char *from =
		send->buffer.count == 1 ? (char *)send->buffer.pieces[0].iov_base + send->sent : NULL;
	struct wire_piece header = {.chunk = chunk, .offset = chunk_offset(pool, chunk, from)};

	uint32_t wire_flags = copy_piece(send, pool->section + header.offset, length);
	send->sent += length;
	struct ring_slot *slot = ring_next(&peer->out, 0);
	shared_store_u64(&slot->word, word);
	shared_copy_out(slot->payload, &header, sizeof(header));
	ring_push(&peer->out, control_word(kind, wire_flags, length), 1);
	transport_wake(peer);
}

/* The caller has made room for one slot. */
ssize_t rendezvous_send(struct messenger *messenger, const struct send_request *request, uint32_t wire_flags)
{
	struct transport *transport = messenger->transport;
	struct msg_peer *to = request->to;
	struct peer *peer = &to->peer;
	uint32_t piece =
		early_piece_length(longest_piece(messenger, peer->pool), request->length, to->streak++);
	uint32_t chunks[WIRE_EARLY_PIECES];
	uint32_t pieces = 0;
	uint32_t most = WIRE_EARLY_PIECES;
	struct wire_rendezvous header = {.data = request->data, .total = request->length};
	struct send *send = send_begin(messenger, request);

	if (send == NULL)
		return -ENOMEM;
	buffer_open(&send->buffer, request->pieces, request->count);
	send->sent = 0;
	if (peer->network != NULL && fetch_offer(request, send, wire_flags))
		return 0;
	if (messenger->single != NULL && request->length > messenger->thresholds.single_copy_bytes &&
	    peer->mapped && single_copy_offer(messenger, send, &header)) {
		most = EARLY_PIECES_OFFERED;
		piece = EARLY_PIECE_OFFERED;
	}
	if (peer->account.outstanding >= EARLY_CHUNKS_OUT && chunk_collect(peer->pool, &peer->account) < 0)
		transport_fail(transport, peer, -EPROTO, "the peer returned a chunk that it does not have");
	/* `early` promises only pieces that have a chunk and a slot. */
	for (uint64_t covered = 0; pieces < most && covered < request->length; covered += piece) {
		if (peer->account.outstanding >= EARLY_CHUNKS_OUT ||
		    peer->account.outstanding_of[CHUNK_CLASS_LARGE] >=
			    messenger->thresholds.pieces_in_flight ||
		    (pieces > 0 && !transport_room(transport, peer, pieces + 1)))
			break;
		chunks[pieces] = transport_chunk(transport, peer, piece);
		if (chunks[pieces] == CHUNK_NONE)
			break;
		pieces++;
	}
	uint64_t early =
		(uint64_t)pieces * piece < request->length ? (uint64_t)pieces * piece : request->length;
	uint32_t first = early < piece ? (uint32_t)early : piece;
	header.id = send->id;
	header.early = (uint32_t)early;
	header.taking = copy_methods_own_costs(&to->copy_methods);
	if (pieces > 0) {
		header.chunk = chunks[0];
		header.offset = chunk_offset(peer->pool, chunks[0], request->pieces[0].iov_base);
		wire_flags |= copy_piece(send, peer->pool->section + header.offset, first);
		send->sent = first;
	}
	struct ring_slot *slot = ring_next(&peer->out, 0);
	shared_store_u64(&slot->word, request->tag);
	shared_copy_out(slot->payload, &header, sizeof(header));
	ring_push(&peer->out, control_word(WIRE_RENDEZVOUS, wire_flags, first), 1);
	transport_wake(peer);
	for (uint32_t i = 1; i < pieces; i++) {
		uint64_t rest = early - send->sent;
		push_piece(send, WIRE_EARLY, send->id, chunks[i], rest < piece ? (uint32_t)rest : piece);
	}
	to->peer.messages++;
	to->peer.bytes += request->length;
	send->acknowledged = (wire_flags & WIRE_ACKNOWLEDGED) == 0;
	send->waits_for_clear = early < request->length;
	if (!send->waits_for_clear && send->acknowledged)
		send_end(messenger, send, 0, NULL);
	return 0;
}

/* All accepted bytes were copied. */
static void finish_copying(struct messenger *messenger, struct send *send)
{
	if (send->acknowledged) {
		send_end(messenger, send, 0, NULL);
		return;
	}
	match_unlink(&send->link);
	match_append(&messenger->awaiting, &send->link);
}

/*
 * There is no room, which is normal while the receiver copies. If it continues, this endpoint's chunks hold
 * messages that nobody receives, so ask for them.
 */
static uint32_t stall(struct messenger *messenger, struct send *send, uint32_t budget)
{
	messenger->transport->short_of_room = true;
	if (++send->stalls % STALLS_BEFORE_ASKING == 0)
		rendezvous_ask_chunks(messenger);
	return budget;
}

/*
 * Copies at most `budget` pieces of a cleared message. Without room it stops, and continues at a later poll.
 * Returns the remaining budget.
 */
static uint32_t pump(struct messenger *messenger, struct send *send, uint32_t budget)
{
	struct transport *transport = messenger->transport;
	struct peer *peer = &send->to->peer;
	struct chunk_pool *pool = peer->pool;
	uint32_t longest = longest_piece(messenger, pool);

	for (; budget > 0 && send->sent < send->accepted; budget--) {
		uint64_t rest = send->accepted - send->sent;
		uint32_t length = rest < longest ? (uint32_t)rest : longest;

		if (peer->account.outstanding_of[CHUNK_CLASS_LARGE] >=
		    messenger->thresholds.pieces_in_flight) {
			if (chunk_collect(pool, &peer->account) < 0) {
				transport_fail(transport, peer, -EPROTO,
					       "the peer returned a chunk that it does not have");
				return budget;
			}
			if (peer->account.outstanding_of[CHUNK_CLASS_LARGE] >=
			    messenger->thresholds.pieces_in_flight)
				return stall(messenger, send, budget);
		}
		uint32_t chunk = transport_room(transport, peer, 1) ? transport_chunk(transport, peer, length)
								    : CHUNK_NONE;
		if (chunk == CHUNK_NONE)
			return stall(messenger, send, budget);
		send->stalls = 0;
		push_piece(send, WIRE_PIECE, send->receiver_id, chunk, length);
	}
	if (send->sent >= send->accepted)
		finish_copying(messenger, send);
	return budget;
}

int rendezvous_clear(struct messenger *messenger, struct msg_peer *from, uint64_t id,
		     const struct wire_clear *clear)
{
	struct send *send = operations_find(&messenger->send_ids, id);

	if (send == NULL || send->to != from || !send->waits_for_clear || clear->accepted > send->accepted)
		return -EPROTO;
	if (single_copy_answered(messenger, send, clear) != 0)
		return -EPROTO;
	send->waits_for_clear = false;
	send->receiver_id = clear->id;
	send->accepted = clear->accepted;
	match_unlink(&send->link);
	match_append(&messenger->pumping, &send->link);
	return 0;
}

/* The receiver cannot continue a single copy: the rest is sent in pieces. */
int rendezvous_resumed(struct messenger *messenger, struct msg_peer *from, uint64_t id,
		       const struct wire_resume *resume)
{
	struct send *send = operations_find(&messenger->send_ids, id);

	if (send == NULL || send->to != from || send->waits_for_clear || send->copy == NULL ||
	    resume->from < send->sent || resume->from > send->accepted)
		return -EPROTO;
	/* From here on, nothing writes to the receive's buffer, and the receiver relies on that. */
	single_copy_release(messenger, send->copy);
	send->copy = NULL;
	send->acknowledged = (send->flags & FI_DELIVERY_COMPLETE) == 0;
	send->receiver_id = resume->id;
	send->sent = resume->from;
	match_unlink(&send->link);
	match_append(&messenger->pumping, &send->link);
	return 0;
}

int rendezvous_acknowledged(struct messenger *messenger, struct msg_peer *from, uint64_t id)
{
	struct send *send = operations_find(&messenger->send_ids, id);

	if (send == NULL || send->to != from || send->acknowledged || send->waits_for_clear)
		return -EPROTO;
	/*
	 * A single copy, or a message read over the network, is always acknowledged: the acknowledgement
	 * tells the sender that its buffer is free.
	 */
	if (send->copy == NULL && send->grant.mr == NULL &&
	    (send->sent < send->accepted || (send->flags & FI_DELIVERY_COMPLETE) == 0))
		return -EPROTO;
	send_end(messenger, send, 0, NULL);
	return 0;
}

/* Returns the number of copied pieces. */
uint32_t rendezvous_work(struct messenger *messenger)
{
	struct transport *transport = messenger->transport;

	if (messenger->waiting_controls > 0)
		for (uint32_t source = 0; source < transport->peer_end; source++) {
			struct msg_peer *to = (struct msg_peer *)(void *)transport->peers[source];
			if (to != NULL && to->waiting_head != to->waiting_tail)
				flush_controls(messenger, to);
		}
	/* The first cleared message goes first: so it ends earlier, and its buffer stays in cache. */
	uint32_t budget = PIECES_PER_POLL;
	for (struct match_link *link = messenger->pumping.next; link != &messenger->pumping && budget > 0;) {
		struct send *send = (struct send *)(void *)link;
		link = link->next;
		if (is_failed(send->to))
			continue;
		budget = send->copy != NULL ? single_copy_push(messenger, send, budget)
					    : pump(messenger, send, budget);
	}
	if (messenger->readings_wait)
		(void)reading_work(messenger);
	if (messenger->copying > 0)
		return PIECES_PER_POLL - budget + single_copy_work(messenger, PIECES_PER_POLL);
	return PIECES_PER_POLL - budget;
}

/* ---- the receiver ---- */

/*
 * The caller has filled in the header's fields of `receive`. Returns false without memory: then the receive
 * has failed.
 */
bool rendezvous_begin(struct messenger *messenger, struct receive *receive)
{
	uint64_t accepted = receive->total < receive->buffer.length ? receive->total : receive->buffer.length;

	struct control_slot slot = {
		.control = control_word(WIRE_CLEAR, 0, 0),
		.word = receive->sender_id,
		.clear = {.accepted = accepted},
	};

	receive->arrived = 0;
	receive->copy = NULL;
	receive->fetching = false;
	receive->expected = accepted > receive->early ? accepted : receive->early;
	receive->id = operations_add(&messenger->receive_ids, receive);
	if (receive->id == OPERATION_NO_ID) {
		receive_fail(messenger, receive, FI_ENOMEM, "no memory is left");
		return false;
	}
	match_append(&messenger->incoming, &receive->incoming);
	if (receive->early == receive->total || is_failed(receive->from))
		return true;
	slot.clear.id = receive->id;
	slot.clear.taking = copy_methods_own_costs(&receive->from->copy_methods);
	(void)single_copy_accept(messenger, receive, accepted, &slot.clear);
	if (!rendezvous_send_control(messenger, receive->from, &slot))
		transport_fail(messenger->transport, &receive->from->peer, -ENOMEM,
			       "no memory is left to answer the peer");
	return true;
}

static void take_piece(struct receive *receive, const shared_bytes *from, uint64_t length,
		       enum copy_method method)
{
	/* Bytes beyond the buffer are dropped, and the completion reports the truncation. */
	if (!buffer_in_one(&receive->buffer, receive->arrived, length))
		(void)buffer_from_region(&receive->buffer, receive->arrived, from, length);
	else if (method == COPY_LINEWISE)
		copy_linewise_in(buffer_at(&receive->buffer, receive->arrived), from, length);
	else
		shared_copy_in(buffer_at(&receive->buffer, receive->arrived), from, length);
}

/*
 * Takes the next `length` bytes, copied by `method`. COPY_METHODS means that the piece has waited, so its
 * timing says nothing about a method. Returns false if fewer bytes are expected, or if the sender's section
 * has a new owner.
 */
bool rendezvous_piece(struct receive *receive, const shared_bytes *from, uint32_t length,
		      enum copy_method method)
{
	struct msg_peer *sender = receive->from;

	if (length > receive->expected - receive->arrived)
		return false;
	uint64_t began = copy_methods_clock();
	take_piece(receive, from, length, method);
	if (length >= COPY_METHODS_MEASURED_BYTES && method < COPY_METHODS)
		copy_methods_taken(&sender->copy_methods, method, copy_methods_clock() - began, length);
	receive->arrived += length;
	return transport_intact(&sender->peer);
}

void rendezvous_end_if_complete(struct messenger *messenger, struct receive *receive)
{
	struct msg_peer *from = receive->from;
	struct single_copy *copy = receive->copy;
	bool acknowledge = (receive->wire_flags & WIRE_ACKNOWLEDGED) != 0;

	if (copy != NULL && copy->finished) {
		if (receive->arrived < receive->early)
			return;
		receive->arrived = receive->expected;
		acknowledge = true;
	} else if (copy != NULL && copy->resumed && receive->arrived == receive->early) {
		receive->arrived = copy->mine; /* early pieces that arrived late belong before `mine` */
	}
	if (receive->arrived < receive->expected)
		return;
	match_unlink(&receive->incoming);
	operations_remove(&messenger->receive_ids, receive->id);
	if (copy != NULL)
		single_copy_release(messenger, copy);
	if (acknowledge && !rendezvous_acknowledge(messenger, from, receive->sender_id))
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left to acknowledge the peer's message");
	receive_complete(messenger, receive, from, receive->total, receive->tag, receive->data,
			 receive->wire_flags);
}

/* The receiver cannot continue a single copy at `from`: asks for the rest in pieces. */
bool rendezvous_resume(struct messenger *messenger, struct receive *receive, uint64_t from)
{
	return rendezvous_send_control(messenger, receive->from,
				       &(struct control_slot){
					       .control = control_word(WIRE_RESUME, 0, 0),
					       .word = receive->sender_id,
					       .resume = {.id = receive->id, .from = from},
				       });
}
