/* SPDX-License-Identifier: BSD-3-Clause */
/* receive.c - posts receives, searches unexpected messages, delivers and cancels. */
#include "proto/messenger.h"

#include <stdlib.h>

static void add_completion(struct messenger *messenger, const struct completion *completion)
{
	if (messenger->receive_completions == NULL)
		return;
	struct completion *entry = completion_add(messenger->receive_completions);
	if (entry != NULL)
		*entry = *completion;
}

static uint64_t receive_flags(uint32_t wire_flags)
{
	return FI_RECV | (wire_flags & WIRE_TAGGED ? FI_TAGGED : FI_MSG) |
	       (wire_flags & WIRE_DATA ? FI_REMOTE_CQ_DATA : 0);
}

/*
 * A part of a multi-receive buffer ended. Returns FI_MULTI_RECV if the part was the last, and the buffer
 * belongs to the application again.
 */
static uint64_t end_part(struct messenger *messenger, struct receive *parent)
{
	parent->parts--;
	if (!parent->withdrawn || parent->parts > 0)
		return 0;
	pool_give(&messenger->receive_pool, parent);
	return FI_MULTI_RECV;
}

static struct match_queue *receive_queue(struct messenger *messenger, const struct receive *receive)
{
	return receive->flags & FI_TAGGED ? &messenger->tagged : &messenger->untagged;
}

struct receive *receive_part(struct messenger *messenger, struct receive *parent, uint64_t length)
{
	struct receive *part = pool_take(&messenger->receive_pool);
	struct iovec *rest = &parent->buffer.pieces[0];
	size_t taken = length < rest->iov_len ? (size_t)length : rest->iov_len;

	if (part == NULL)
		return NULL;
	memset(part, 0, sizeof(*part));
	buffer_open(&part->buffer, &(struct iovec){rest->iov_base, taken}, 1);
	part->context = parent->context;
	part->flags = parent->flags & ~FI_MULTI_RECV;
	part->parent = parent;
	parent->parts++;
	rest->iov_base = (char *)rest->iov_base + taken;
	rest->iov_len -= taken;
	parent->buffer.length = rest->iov_len;
	if (rest->iov_len < messenger->multi_receive_minimum) {
		match_withdraw(receive_queue(messenger, parent), &parent->match);
		parent->withdrawn = true;
	}
	return part;
}

void receive_complete(struct messenger *messenger, struct receive *receive, struct msg_peer *from,
		      uint64_t total, uint64_t tag, uint64_t data, uint32_t wire_flags)
{
	bool truncated = total > receive->buffer.length && !receive->sink;

	if (!receive->sink)
		messenger_count(messenger, messenger->receive_counter, truncated ? FI_ETRUNC : 0);
	uint64_t released = receive->parent != NULL ? end_part(messenger, receive->parent) : 0;
	if ((receive->flags & FI_COMPLETION) != 0 || truncated || released != 0)
		add_completion(messenger, &(struct completion){
						  .context = receive->context,
						  .flags = receive_flags(wire_flags) | released,
						  .length = truncated ? receive->buffer.length : total,
						  .buffer = receive->buffer.pieces[0].iov_base,
						  .data = data,
						  .tag = tag,
						  .source = msg_peer_source(from),
						  .vector = messenger->vector,
						  .overflow = truncated ? total - receive->buffer.length : 0,
						  .error = truncated ? FI_ETRUNC : 0,
						  .reason = "the message is longer than the receive's buffer",
					  });
	pool_give(&messenger->receive_pool, receive);
}

void receive_fail(struct messenger *messenger, struct receive *receive, int error, const char *reason)
{
	if (!receive->sink)
		messenger_count(messenger, messenger->receive_counter, error);
	/* With FI_MULTI_RECV, the application gets its buffer back: a whole one, or with its last part. */
	uint64_t released = receive->flags & FI_MULTI_RECV;
	if (receive->parent != NULL)
		released = end_part(messenger, receive->parent);
	if (!receive->sink)
		add_completion(messenger,
			       &(struct completion){
				       .context = receive->context,
				       .flags = FI_RECV | (receive->flags & (FI_TAGGED | FI_MSG)) | released,
				       .buffer = receive->buffer.pieces[0].iov_base,
				       .tag = receive->from != NULL ? receive->tag : receive->match.key.tag,
				       .source = COMPLETION_NO_SOURCE,
				       .error = error,
				       .reason = reason,
			       });
	pool_give(&messenger->receive_pool, receive);
}

/* The private memory that a detached message needs: room for all its early bytes. */
static uint64_t detached_bytes(const struct message *message)
{
	return message->kind == WIRE_RENDEZVOUS ? message->early : message->total;
}

bool message_hold(struct message *message, const struct message_piece *piece)
{
	uint64_t *word = &message->from->held[piece->chunk / 64];
	uint64_t bit = UINT64_C(1) << piece->chunk % 64;

	if ((*word & bit) != 0)
		return false;
	*word |= bit;
	if (message->pieces == 0) {
		message->next_holding = message->from->holding;
		message->holding_link = &message->from->holding;
		if (message->next_holding != NULL)
			message->next_holding->holding_link = &message->next_holding;
		message->from->holding = message;
	}
	message->piece[message->pieces++] = *piece;
	return true;
}

void message_release(struct message *message)
{
	if (message->pieces == 0)
		return;
	for (uint32_t piece = 0; piece < message->pieces; piece++) {
		uint32_t chunk = message->piece[piece].chunk;
		message->from->held[chunk / 64] &= ~(UINT64_C(1) << chunk % 64);
	}
	message->pieces = 0;
	*message->holding_link = message->next_holding;
	if (message->next_holding != NULL)
		message->next_holding->holding_link = message->holding_link;
}

void message_free(struct messenger *messenger, struct message *message)
{
	message_release(message);
	message->from->kept--;
	messenger->kept.messages--;
	if (message->copy != NULL) {
		message->from->copied -= detached_bytes(message);
		messenger->kept.bytes -= detached_bytes(message);
	}
	free(message->copy);
	pool_give(&messenger->message_pool, message);
	if (__builtin_expect(!match_is_empty(&messenger->kept.pausing), 0))
		pause_end_some(messenger);
}

/* The bytes of a waiting message that are in private memory. */
static const unsigned char *message_bytes(const struct message *message)
{
	return message->copy != NULL ? message->copy : message->bytes;
}

static const shared_bytes *piece_bytes(const struct message *message, uint32_t piece)
{
	/* Checked on arrival. A section's bounds do not change while messages hold pieces of it. */
	return transport_view(&message->from->peer, message->piece[piece].offset,
			      message->piece[piece].length);
}

bool message_detach(struct messenger *messenger, struct message *message)
{
	if (message->pieces == 0)
		return true;
	if (message->copy == NULL) {
		uint64_t room = detached_bytes(message);
		if (message->from->copied + room + messenger->kept.bytes > messenger->kept.bytes_max &&
		    !pause_admits_bytes(messenger, message->from, room))
			return false;
		message->copy = malloc(room);
		if (message->copy == NULL)
			return false;
		message->from->copied += room;
		messenger->kept.bytes += room;
	}
	for (uint32_t piece = 0; piece < message->pieces; piece++) {
		shared_copy_in(message->copy + message->copied, piece_bytes(message, piece),
			       message->piece[piece].length);
		message->copied += message->piece[piece].length;
		transport_return_chunk(&message->from->peer, message->piece[piece].chunk);
	}
	message_release(message);
	return transport_intact(&message->from->peer);
}

bool message_survives(struct messenger *messenger, struct message *message)
{
	bool whole = message->kind != WIRE_OFFER &&
		     (message->kind != WIRE_RENDEZVOUS || message->arrived == message->total);

	/* The failed sender waits for no acknowledgement, and its successor must not get one. */
	message->wire_flags &= ~(uint32_t)WIRE_ACKNOWLEDGED;
	return whole && (message->pieces == 0 || message_detach(messenger, message));
}

/* Delivers the waiting beginning of a large message to its receive. */
static void deliver_rendezvous(struct messenger *messenger, struct receive *receive, struct message *message)
{
	struct msg_peer *from = message->from;

	receive->from = from;
	receive->sender_id = message->sender_id;
	receive->total = message->total;
	receive->early = message->early;
	receive->tag = message->match.key.tag;
	receive->data = message->data;
	receive->wire_flags = message->wire_flags;
	receive->offered = message->offered;
	if (from->early_message == message)
		from->early_message = NULL;
	if (is_failed(from) && message->arrived < message->total) {
		receive_fail(messenger, receive, -from->peer.failure, from->peer.reason);
		return;
	}
	if (!rendezvous_begin(messenger, receive)) {
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left for the peer's message");
		return;
	}
	if (message->arrived < message->early)
		from->early_receive = receive;
	if (message->copied > 0) {
		(void)buffer_from_memory(&receive->buffer, 0, message_bytes(message), message->copied);
		receive->arrived = message->copied;
	}
	for (uint32_t piece = 0; piece < message->pieces; piece++) {
		bool taken = rendezvous_piece(receive, piece_bytes(message, piece),
					      message->piece[piece].length, COPY_METHODS);
		transport_return_chunk(&from->peer, message->piece[piece].chunk);
		/*
		 * The length cannot be wrong, because arrive.c checked each piece against `early`. So the
		 * sender's section has a new owner.
		 */
		if (!taken) {
			transport_break(messenger->transport, &from->peer, -ECONNRESET,
					"the peer is gone, and another member has its slot");
			return;
		}
	}
	rendezvous_end_if_complete(messenger, receive);
}

/* Delivers a message that the receiver reads over the network. */
static void deliver_offer(struct messenger *messenger, struct receive *receive, const struct message *message)
{
	struct msg_peer *from = message->from;

	const struct wire_offer offer = {
		.data = message->data,
		.id = message->sender_id,
		.total = message->total,
		.key = message->key,
		.address = message->address,
	};

	if (is_failed(from))
		receive_fail(messenger, receive, -from->peer.failure, from->peer.reason);
	else if (!fetch_begin(messenger, receive, from, &offer, message->match.key.tag, message->wire_flags))
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left for the peer's message");
}

void receive_deliver(struct messenger *messenger, struct receive *receive, struct message *message)
{
	struct msg_peer *from = message->from;

	if (message->lost) {
		receive_fail(messenger, receive, FI_ECONNRESET,
			     "the sender failed before its message was complete");
		message_free(messenger, message);
		return;
	}
	if (message->kind == WIRE_OFFER) {
		deliver_offer(messenger, receive, message);
		message_free(messenger, message);
		return;
	}
	if (message->kind == WIRE_RENDEZVOUS) {
		deliver_rendezvous(messenger, receive, message);
		message_free(messenger, message);
		return;
	}
	if (message->pieces > 0) {
		(void)buffer_from_region(&receive->buffer, 0, piece_bytes(message, 0),
					 message->piece[0].length);
		transport_return_chunk(&from->peer, message->piece[0].chunk);
		if (!transport_intact(&from->peer)) {
			receive_fail(messenger, receive, FI_ECONNRESET,
				     "the sender is gone, and its message is lost");
			message_free(messenger, message);
			return;
		}
	} else {
		(void)buffer_from_memory(&receive->buffer, 0, message_bytes(message), message->copied);
	}
	if (message->wire_flags & WIRE_ACKNOWLEDGED && !is_failed(from) &&
	    !rendezvous_acknowledge(messenger, from, message->sender_id))
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left to acknowledge the peer's message");
	receive_complete(messenger, receive, from, message->total, message->match.key.tag, message->data,
			 message->wire_flags);
	message_free(messenger, message);
}

/* Drops a waiting message: a receive without a buffer takes it, so that its sender completes. */
static int discard(struct messenger *messenger, struct message *message)
{
	struct receive *sink = pool_take(&messenger->receive_pool);

	if (sink == NULL)
		return -ENOMEM;
	memset(sink, 0, sizeof(*sink));
	sink->sink = true;
	receive_deliver(messenger, sink, message);
	return 0;
}

static void complete_peek(struct messenger *messenger, const struct receive_request *request,
			  const struct message *message)
{
	if (message == NULL) {
		add_completion(messenger, &(struct completion){
						  .context = request->context,
						  .flags = FI_RECV | (request->flags & (FI_TAGGED | FI_MSG)),
						  .tag = request->tag,
						  .source = COMPLETION_NO_SOURCE,
						  .error = FI_ENOMSG,
						  .reason = "no such message is waiting",
					  });
		return;
	}
	if (request->flags & FI_COMPLETION)
		add_completion(messenger, &(struct completion){
						  .context = request->context,
						  .flags = receive_flags(message->wire_flags),
						  .length = message->total,
						  .data = message->data,
						  .tag = message->match.key.tag,
						  .source = msg_peer_source(message->from),
						  .vector = messenger->vector,
					  });
}

static ssize_t peek(struct messenger *messenger, struct match_queue *queue,
		    const struct receive_request *request)
{
	(void)messenger_progress(messenger);
	struct message *message = (struct message *)(void *)match_waiting(queue, request->source,
									  request->tag, request->ignore);

	complete_peek(messenger, request, message);
	if (message == NULL || (request->flags & (FI_CLAIM | FI_DISCARD)) == 0)
		return 0;
	match_take(queue, &message->match);
	if (request->flags & FI_DISCARD)
		return discard(messenger, message);
	message->claimer = request->context;
	match_append(&messenger->claimed, &message->claimed);
	return 0;
}

static struct message *find_claimed(struct messenger *messenger, const void *context)
{
	for (struct match_link *link = messenger->claimed.next; link != &messenger->claimed;
	     link = link->next) {
		struct message *message =
			(struct message *)(void *)((char *)link - offsetof(struct message, claimed));
		if (message->claimer == context)
			return message;
	}
	return NULL;
}

static struct receive *new_receive(struct messenger *messenger, const struct receive_request *request)
{
	struct receive *receive = pool_take(&messenger->receive_pool);

	if (__builtin_expect(receive == NULL, 0))
		return NULL;
	buffer_open(&receive->buffer, request->pieces, request->count);
	if (request->count == 0)
		receive->buffer.pieces[0] = (struct iovec){0};
	receive->context = request->context;
	receive->flags = request->flags;
	receive->match.key.tag = request->tag;
	receive->match.ignore = request->ignore;
	receive->match.key.source = request->source;
	receive->parent = NULL;
	receive->parts = 0;
	receive->withdrawn = false;
	receive->from = NULL;
	receive->sink = false;
	return receive;
}

/* A failed sender sends nothing any more, so a receive for it must not stay posted. */
static void fail_if_gone(struct messenger *messenger, struct receive *receive)
{
	uint32_t source = receive->match.key.source;
	const struct peer *peer = source == MATCH_ANY_SOURCE ? NULL : messenger->transport->peers[source];

	if (peer == NULL || peer->state != PEER_FAILED)
		return;
	match_withdraw(receive_queue(messenger, receive), &receive->match);
	receive_fail(messenger, receive, -peer->failure, peer->reason);
}

bool messenger_may_receive(struct messenger *messenger, const struct msg_peer *from,
			   const struct receive_request *request)
{
	struct match_queue *queue = request->flags & FI_TAGGED ? &messenger->tagged : &messenger->untagged;

	if (is_present(from))
		return true;
	if ((request->flags & (FI_PEEK | FI_CLAIM)) == FI_CLAIM)
		return from->kept > 0;
	return match_waiting(queue, from->peer.source, request->tag, request->ignore) != NULL;
}

/* Takes all waiting messages that fit into a multi-receive buffer, then posts the rest of the buffer. */
static ssize_t post_several(struct messenger *messenger, struct match_queue *queue, struct receive *receive)
{
	match_post(queue, &receive->match);
	while (!receive->withdrawn) {
		struct match_message *waiting = match_waiting(queue, receive->match.key.source,
							      receive->match.key.tag, receive->match.ignore);
		if (waiting == NULL) {
			fail_if_gone(messenger, receive);
			return 0;
		}
		struct message *message = (struct message *)(void *)waiting;
		struct receive *part = receive_part(messenger, receive, message->total);
		if (part == NULL)
			return 0; /* the receive stays posted, and the message keeps waiting */
		bool last = receive->withdrawn;
		match_take(queue, waiting);
		receive_deliver(messenger, part, message);
		if (last)
			return 0; /* the receive may be freed */
	}
	return 0;
}

static ssize_t take_claimed(struct messenger *messenger, const struct receive_request *request)
{
	struct message *message = find_claimed(messenger, request->context);

	if (message == NULL)
		return -ENOMSG;
	if (request->flags & FI_DISCARD) {
		match_unlink(&message->claimed);
		complete_peek(messenger, request, message);
		return discard(messenger, message);
	}
	struct receive *receive = new_receive(messenger, request);
	if (receive == NULL)
		return -ENOMEM;
	match_unlink(&message->claimed);
	receive_deliver(messenger, receive, message);
	return 0;
}

ssize_t messenger_receive(struct messenger *messenger, const struct receive_request *request)
{
	struct match_queue *queue = request->flags & FI_TAGGED ? &messenger->tagged : &messenger->untagged;

	if (__builtin_expect((request->flags & (FI_PEEK | FI_CLAIM)) != 0, 0))
		return request->flags & FI_PEEK ? peek(messenger, queue, request)
						: take_claimed(messenger, request);

	struct receive *receive = new_receive(messenger, request);
	if (__builtin_expect(receive == NULL, 0))
		return -ENOMEM;
	if (__builtin_expect((request->flags & FI_MULTI_RECV) != 0, 0))
		return post_several(messenger, queue, receive);
	struct match_message *waiting = match_waiting(queue, request->source, request->tag, request->ignore);
	if (waiting == NULL) {
		match_post(queue, &receive->match);
		return 0;
	}
	match_take(queue, waiting);
	receive_deliver(messenger, receive, (struct message *)(void *)waiting);
	return 0;
}

static bool cancel_in(struct messenger *messenger, struct match_queue *queue, void *context)
{
	struct match_receive *match = NULL;

	while ((match = match_each_receive(queue, match)) != NULL) {
		struct receive *receive = (struct receive *)(void *)match;
		if (receive->context != context)
			continue;
		match_withdraw(queue, match);
		if (receive->parts > 0) {
			/* Parts are in progress: the last one to end releases the buffer. */
			receive->withdrawn = true;
			return true;
		}
		if (receive->flags & FI_MULTI_RECV)
			receive->flags |= FI_COMPLETION;
		receive_fail(messenger, receive, FI_ECANCELED, "the receive was cancelled");
		return true;
	}
	return false;
}

int messenger_cancel(struct messenger *messenger, void *context)
{
	if (cancel_in(messenger, &messenger->tagged, context) ||
	    cancel_in(messenger, &messenger->untagged, context))
		return 0;
	return -ENOENT;
}
