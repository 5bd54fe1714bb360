/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arrive.c - handles what arrives in a ring. Each word is from a peer that may be hostile, so it is copied
 * into private memory once and checked there. An invalid slot costs the peer its connection: the caller gets
 * a negative errno.
 */
#include "proto/messenger.h"

#include <limits.h>
#include <stdlib.h>

/* The slot's payload, copied once. */
struct arrival {
	struct msg_peer *from;
	uint64_t tag;
	uint64_t data;
	uint64_t id;
	uint32_t flags;
	uint32_t length;
};

static struct message *new_message(struct messenger *messenger, const struct arrival *arrival, uint32_t kind)
{
	struct message *message = pool_take(&messenger->message_pool);

	if (message == NULL)
		return NULL;
	/* `match` and `bytes` are not cleared: they are written before they are used. */
	memset(&message->from, 0, offsetof(struct message, bytes) - offsetof(struct message, from));
	message->match.key.tag = arrival->tag;
	message->match.key.source = arrival->from->peer.source;
	message->from = arrival->from;
	message->data = arrival->data;
	message->sender_id = arrival->id;
	message->total = arrival->length;
	message->kind = kind;
	message->wire_flags = arrival->flags;
	return message;
}

/*
 * Whether another message of the peer may wait here. If not, its slot stays unread, nothing of it was
 * processed, and the next poll tries it again.
 */
static inline bool may_keep(struct messenger *messenger, struct msg_peer *from)
{
	return __builtin_expect(from->kept + messenger->kept.messages < messenger->kept.messages_max, 1) ||
	       pause_admits_message(messenger, from);
}

static int hold_back(const struct msg_peer *from)
{
	return from->peer.framed ? -ENOMEM : TRANSPORT_HOLDS;
}

/* Drops a message that names a chunk of another message. It was not kept yet. */
static int refuse(struct messenger *messenger, struct message *message)
{
	pool_give(&messenger->message_pool, message);
	return -EPROTO;
}

static void keep(struct messenger *messenger, struct message *message)
{
	message->from->kept++;
	messenger->kept.messages++;
	match_keep(messenger_queue(messenger, message->wire_flags), &message->match);
}

/* Finds the receive that takes this message, and withdraws it. Returns NULL if there is none. */
static struct receive *find_receive(struct messenger *messenger, const struct arrival *arrival,
				    uint64_t total, bool *no_memory)
{
	struct match_queue *queue = messenger_queue(messenger, arrival->flags);
	struct receive *receive =
		(struct receive *)(void *)match_arrival(queue, arrival->from->peer.source, arrival->tag);

	if (receive == NULL)
		return NULL;
	if (receive->flags & FI_MULTI_RECV) {
		receive = receive_part(messenger, receive, total);
		*no_memory = receive == NULL;
	} else {
		match_withdraw(queue, &receive->match);
	}
	return receive;
}

/* All bytes are in the receive's buffer. The receive completes even if the sender cannot be told. */
static int complete(struct messenger *messenger, struct receive *receive, const struct arrival *arrival)
{
	bool told = (arrival->flags & WIRE_ACKNOWLEDGED) == 0 ||
		    rendezvous_acknowledge(messenger, arrival->from, arrival->id);

	receive_complete(messenger, receive, arrival->from, arrival->length, arrival->tag, arrival->data,
			 arrival->flags);
	return told ? 0 : -ENOMEM;
}

/* Takes a message whose bytes are already in private memory. */
static int take_bytes(struct messenger *messenger, const struct arrival *arrival, const unsigned char *bytes,
		      uint32_t kind)
{
	bool no_memory = false;
	struct receive *receive = find_receive(messenger, arrival, arrival->length, &no_memory);

	if (receive != NULL) {
		(void)buffer_from_memory(&receive->buffer, 0, bytes, arrival->length);
		return complete(messenger, receive, arrival);
	}
	if (!no_memory && !may_keep(messenger, arrival->from))
		return hold_back(arrival->from);
	struct message *message = no_memory ? NULL : new_message(messenger, arrival, kind);
	if (message == NULL)
		return -ENOMEM;
	unsigned char *to = message->bytes;
	if (arrival->length > sizeof(message->bytes)) {
		message->copy = malloc(arrival->length);
		to = message->copy;
		if (to == NULL) {
			pool_give(&messenger->message_pool, message);
			return -ENOMEM;
		}
		message->from->copied += arrival->length;
		messenger->kept.bytes += arrival->length;
	}
	memcpy(to, bytes, arrival->length);
	message->copied = arrival->length;
	keep(messenger, message);
	return 0;
}

/* Reads the words before the bytes of an INLINE or SHORT. Returns how many bytes they take. */
static uint32_t read_prefix(struct arrival *arrival, const struct ring_slot *slot)
{
	uint32_t prefix = 0;

	if (arrival->flags & WIRE_DATA) {
		shared_copy_in(&arrival->data, slot->payload, 8);
		prefix = 8;
	}
	if (arrival->flags & WIRE_ACKNOWLEDGED) {
		shared_copy_in(&arrival->id, slot->payload + prefix, 8);
		prefix += 8;
	}
	return prefix;
}

static int arrive_inline(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	uint32_t prefix = read_prefix(arrival, slot);

	arrival->from->streak = 0;
	if (arrival->length > WIRE_INLINE_BYTES - prefix)
		return -EPROTO;

	/* The fast path: a posted receive with one piece of sufficient length, and no acknowledgement. */
	struct match_queue *queue = messenger_queue(messenger, arrival->flags);
	struct receive *receive =
		(struct receive *)(void *)match_arrival(queue, arrival->from->peer.source, arrival->tag);
	if (__builtin_expect(receive != NULL && (receive->flags & FI_MULTI_RECV) == 0 &&
				     receive->buffer.count == 1 &&
				     receive->buffer.length >= arrival->length &&
				     (arrival->flags & WIRE_ACKNOWLEDGED) == 0,
			     1)) {
		match_withdraw(queue, &receive->match);
		copy_small_in(receive->buffer.pieces[0].iov_base, slot->payload + prefix, arrival->length);
		receive_complete(messenger, receive, arrival->from, arrival->length, arrival->tag,
				 arrival->data, arrival->flags);
		return 1;
	}
	unsigned char bytes[WIRE_INLINE_BYTES];
	copy_small_in(bytes, slot->payload + prefix, arrival->length);
	int result = take_bytes(messenger, arrival, bytes, WIRE_INLINE);
	return result < 0 ? result : 1;
}

static int arrive_short(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	unsigned char bytes[WIRE_SHORT_BYTES];
	uint32_t prefix = read_prefix(arrival, slot);
	uint32_t length = arrival->length;

	arrival->from->streak = 0;
	if (length > WIRE_SHORT_BYTES - prefix || length <= WIRE_INLINE_BYTES - prefix)
		return -EPROTO;
	uint32_t first = WIRE_INLINE_BYTES - prefix;
	copy_small_in(bytes, slot->payload + prefix, first);
	int slots = read_continuations(&arrival->from->peer.in, bytes, first, length);
	if (slots < 0)
		return slots;
	int result = take_bytes(messenger, arrival, bytes, WIRE_SHORT);
	return result < 0 ? result : slots;
}

static int arrive_eager(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	struct msg_peer *from = arrival->from;
	struct wire_eager header;
	bool no_memory = false;

	shared_copy_in(&header, slot->payload, sizeof(header));
	const shared_bytes *bytes = chunk_view(from, header.chunk, header.offset, arrival->length);
	if (bytes == NULL)
		return -EPROTO;
	from->streak = 0;
	arrival->data = header.data;
	arrival->id = header.id;
	struct receive *receive = find_receive(messenger, arrival, arrival->length, &no_memory);
	if (receive != NULL) {
		(void)buffer_from_region(&receive->buffer, 0, bytes, arrival->length);
		chunk_return(&from->peer.returns, header.chunk);
		if (!transport_intact(&from->peer)) {
			receive_fail(messenger, receive, FI_ECONNRESET,
				     "the sender is gone, and its message is lost");
			return -ECONNRESET;
		}
		int result = complete(messenger, receive, arrival);
		return result < 0 ? result : 1;
	}
	if (!no_memory && !may_keep(messenger, from))
		return hold_back(from);
	struct message *message = no_memory ? NULL : new_message(messenger, arrival, WIRE_EAGER);
	if (message == NULL)
		return -ENOMEM;
	if (!message_hold(message, &(struct message_piece){header.chunk, header.offset, arrival->length}))
		return refuse(messenger, message);
	keep(messenger, message);
	return 1;
}

static int arrive_rendezvous(struct messenger *messenger, struct arrival *arrival,
			     const struct ring_slot *slot)
{
	struct msg_peer *from = arrival->from;
	struct wire_rendezvous header;
	bool no_memory = false;

	shared_copy_in(&header, slot->payload, sizeof(header));
	const shared_bytes *bytes = chunk_view(from, header.chunk, header.offset, arrival->length);
	if (bytes == NULL || header.early > header.total || arrival->length > header.early ||
	    header.early > (uint64_t)WIRE_EARLY_PIECES * CHUNK_LARGE || header.total > SSIZE_MAX ||
	    transfer_index(header.transfer) >= REGION_TRANSFERS ||
	    (header.transfer != 0 && from->peer.framed) || from->early_receive != NULL ||
	    from->early_message != NULL)
		return -EPROTO;
	from->streak = 0;
	copy_methods_peer_costs(&from->copy_methods, &header.taking);
	arrival->data = header.data;
	arrival->id = header.id;
	uint32_t first = arrival->length;
	bool more = header.early > first;
	struct receive *receive = find_receive(messenger, arrival, header.total, &no_memory);
	if (receive != NULL) {
		receive->from = from;
		receive->sender_id = header.id;
		receive->total = header.total;
		receive->early = header.early;
		receive->tag = arrival->tag;
		receive->data = header.data;
		receive->wire_flags = arrival->flags;
		receive->offered = header.transfer;
		if (!rendezvous_begin(messenger, receive))
			return -ENOMEM;
		from->early_receive = more ? receive : NULL;
		if (first > 0) {
			bool taken =
				rendezvous_piece(receive, bytes, first, copy_method_of_flags(arrival->flags));
			chunk_return(&from->peer.returns, header.chunk);
			if (!taken)
				return -EPROTO;
		}
		rendezvous_end_if_complete(messenger, receive);
		return 1;
	}
	if (!no_memory && !may_keep(messenger, from))
		return hold_back(from);
	struct message *message = no_memory ? NULL : new_message(messenger, arrival, WIRE_RENDEZVOUS);
	if (message == NULL)
		return -ENOMEM;
	message->total = header.total;
	message->early = header.early;
	message->offered = header.transfer;
	message->arrived = first;
	if (first > 0 && !message_hold(message, &(struct message_piece){header.chunk, header.offset, first}))
		return refuse(messenger, message);
	from->early_message = more ? message : NULL;
	keep(messenger, message);
	return 1;
}

/* A large message of a network peer, which offers its buffer for reading. */
static int arrive_offer(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	struct msg_peer *from = arrival->from;
	struct wire_offer header;
	bool no_memory = false;

	shared_copy_in(&header, slot->payload, sizeof(header));
	if (!from->peer.framed || arrival->length != 0 || header.total == 0 || header.total > SSIZE_MAX ||
	    from->early_receive != NULL || from->early_message != NULL)
		return -EPROTO;
	from->streak = 0;
	arrival->data = header.data;
	arrival->id = header.id;
	struct receive *receive = find_receive(messenger, arrival, header.total, &no_memory);
	if (receive != NULL) {
		bool begun = fetch_begin(messenger, receive, from, &header, arrival->tag, arrival->flags);
		return begun ? 1 : -ENOMEM;
	}
	if (!no_memory && !may_keep(messenger, from))
		return hold_back(from);
	struct message *message = no_memory ? NULL : new_message(messenger, arrival, WIRE_OFFER);
	if (message == NULL)
		return -ENOMEM;
	message->total = header.total;
	message->key = header.key;
	message->address = header.address;
	keep(messenger, message);
	return 1;
}

/* A piece that was sent without waiting for CLEAR. It belongs to the last message of this peer. */
static int arrive_early(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	struct msg_peer *from = arrival->from;
	struct wire_piece header;

	shared_copy_in(&header, slot->payload, sizeof(header));
	const shared_bytes *bytes = chunk_view(from, header.chunk, header.offset, arrival->length);
	if (bytes == NULL || arrival->length == 0)
		return -EPROTO;
	if (from->early_receive != NULL) {
		struct receive *receive = from->early_receive;
		if (arrival->length > receive->early - receive->arrived)
			return -EPROTO;
		if (receive->arrived + arrival->length == receive->early)
			from->early_receive = NULL;
		bool taken = rendezvous_piece(receive, bytes, arrival->length,
					      copy_method_of_flags(arrival->flags));
		chunk_return(&from->peer.returns, header.chunk);
		if (!taken)
			return -EPROTO;
		rendezvous_end_if_complete(messenger, receive);
		return 1;
	}
	struct message *message = from->early_message;
	if (message == NULL || message->pieces == WIRE_EARLY_PIECES ||
	    arrival->length > message->early - message->arrived)
		return -EPROTO;
	if (!message_hold(message, &(struct message_piece){header.chunk, header.offset, arrival->length}))
		return -EPROTO;
	message->arrived += arrival->length;
	if (message->arrived == message->early)
		from->early_message = NULL;
	return 1;
}

static int arrive_piece(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	struct msg_peer *from = arrival->from;
	struct receive *receive = operations_find(&messenger->receive_ids, arrival->tag);
	struct wire_piece header;

	shared_copy_in(&header, slot->payload, sizeof(header));
	const shared_bytes *bytes = chunk_view(from, header.chunk, header.offset, arrival->length);
	if (bytes == NULL || receive == NULL || receive->from != from || receive->arrived < receive->early ||
	    arrival->length == 0 || (receive->copy != NULL && !receive->copy->resumed))
		return -EPROTO;
	bool taken = rendezvous_piece(receive, bytes, arrival->length, copy_method_of_flags(arrival->flags));
	chunk_return(&from->peer.returns, header.chunk);
	if (!taken)
		return -EPROTO;
	rendezvous_end_if_complete(messenger, receive);
	return 1;
}

static int arrive_clear(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	struct wire_clear header;

	shared_copy_in(&header, slot->payload, sizeof(header));
	copy_methods_peer_costs(&arrival->from->copy_methods, &header.taking);
	int result = rendezvous_clear(messenger, arrival->from, arrival->tag, &header);
	return result < 0 ? result : 1;
}

static int arrive_resume(struct messenger *messenger, struct arrival *arrival, const struct ring_slot *slot)
{
	struct wire_resume header;

	shared_copy_in(&header, slot->payload, sizeof(header));
	int result = rendezvous_resumed(messenger, arrival->from, arrival->tag, &header);
	return result < 0 ? result : 1;
}

/*
 * The peer is out of chunks. Its unexpected messages move to private memory, as far as there is room. The
 * peer asks again, or waits until some are received.
 */
static int arrive_reclaim(struct messenger *messenger, struct msg_peer *from)
{
	while (from->holding != NULL && message_detach(messenger, from->holding))
		continue;
	return 1;
}

/* The peer sends over another transport from here on. It may not switch in the middle of a message. */
static int arrive_switch(const struct arrival *arrival)
{
	const struct msg_peer *from = arrival->from;

	if (arrival->length != 0 || arrival->flags != 0 || arrival->tag != 0 || from->early_receive != NULL ||
	    from->early_message != NULL)
		return -EPROTO;
	return TRANSPORT_SWITCHES;
}

static int arrive_pause(struct messenger *messenger, const struct arrival *arrival)
{
	if (arrival->length != 0 || arrival->flags != 0)
		return -EPROTO;
	int result = pause_arrive(messenger, arrival->from, arrival->tag);
	return result < 0 ? result : 1;
}

/* The peer's ring goes on in other memory. */
static int arrive_resize(const struct arrival *arrival)
{
	if (arrival->flags != 0)
		return -EPROTO;
	return transport_take_resize(&arrival->from->peer, arrival->tag, arrival->length);
}

int arrive(void *context, struct peer *peer, uint64_t control)
{
	struct messenger *messenger = context;
	const struct ring_slot *slot = ring_at(&peer->in, 0);
	struct arrival arrival = {
		.from = (struct msg_peer *)(void *)peer,
		.tag = shared_load_u64(&slot->word),
		.flags = control_flags(control),
		.length = control_length(control),
	};
	int result = 0;

	switch (control_kind(control)) {
	case WIRE_INLINE:
		return arrive_inline(messenger, &arrival, slot);
	case WIRE_SHORT:
		return arrive_short(messenger, &arrival, slot);
	case WIRE_EAGER:
		return arrive_eager(messenger, &arrival, slot);
	case WIRE_RENDEZVOUS:
		return arrive_rendezvous(messenger, &arrival, slot);
	case WIRE_OFFER:
		return arrive_offer(messenger, &arrival, slot);
	case WIRE_EARLY:
		return arrive_early(messenger, &arrival, slot);
	case WIRE_PIECE:
		return arrive_piece(messenger, &arrival, slot);
	case WIRE_CLEAR:
		return arrive_clear(messenger, &arrival, slot);
	case WIRE_RESUME:
		return arrive_resume(messenger, &arrival, slot);
	case WIRE_ACKNOWLEDGE:
		result = rendezvous_acknowledged(messenger, arrival.from, arrival.tag);
		return result < 0 ? result : 1;
	case WIRE_RECLAIM:
		return arrive_reclaim(messenger, arrival.from);
	case WIRE_SWITCH:
		return arrive_switch(&arrival);
	case WIRE_PAUSE:
		return arrive_pause(messenger, &arrival);
	case WIRE_RESIZE:
		return arrive_resize(&arrival);
	default:
		return remote_arrive(messenger, arrival.from, control, slot);
	}
}
