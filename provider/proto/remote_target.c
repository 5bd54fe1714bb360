/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote_target.c - one-sided operations, the target: checks, executes and answers requests. A request that
 * cannot be granted (no such key, another range) is refused, and the connection stays. An invalid request
 * ends the peer's connection.
 */
#include <limits.h>
#include <stdlib.h>

#include "proto/messenger.h"

/*
 * The most answers that may wait for room. An honest peer waits for at most WIRE_REQUESTS_MAX answers. Once
 * that many wait, refusals that the peer does not wait for are dropped, so only a dishonest peer exceeds it.
 */
#define OWED_MAX (2 * WIRE_REQUESTS_MAX)
/* The largest result that an answer stores. The bytes of longer reads are read later. */
#define OWED_BYTES WIRE_ATOMIC_BYTES
_Static_assert(OWED_BYTES >= REMOTE_WHOLE_BYTES, "ordered reads are answered at once");

/* The known fields of a request. */
struct request {
	struct msg_peer *from;
	uint64_t key;
	uint64_t data;
	uint32_t flags;
	uint32_t length;
};

/* ---- answers ---- */

static void push_done(struct peer *peer, uint64_t sequence, uint32_t error)
{
	const uint64_t header = error;

	remote_push(peer, control_word(WIRE_DONE, 0, 0), sequence, &header, sizeof(header), NULL, 0);
}

/* Pushes a reply, or with WIRE_MORE a part of one. Returns false without room. */
static bool push_reply(struct messenger *messenger, struct msg_peer *to, uint64_t sequence,
		       const unsigned char *bytes, uint32_t length, uint32_t flags)
{
	uint32_t slots = remote_slots(length);
	const struct chunk_pool *pool = to->peer.pool;

	if (slots <= WIRE_SHORT_SLOTS) {
		if (send_make_room(messenger, to, slots) != 0)
			return false;
		remote_push(&to->peer, control_word(WIRE_REPLY, flags, length), sequence, NULL, 0, bytes,
			    length);
		return true;
	}
	if (send_make_room(messenger, to, 1) != 0)
		return false;
	uint32_t chunk = transport_chunk(messenger->transport, &to->peer, length);
	if (chunk == CHUNK_NONE) {
		rendezvous_miss_chunk(messenger);
		return false;
	}
	struct wire_piece header = {chunk, chunk_offset(pool, chunk, bytes)};
	shared_copy_out(pool->section + header.offset, bytes, length);
	remote_push(&to->peer, control_word(WIRE_REPLY_CHUNK, flags, length), sequence, &header,
		    sizeof(header), NULL, 0);
	return true;
}

/* The most bytes of one answer. Before there is a ring, the transport is the region. */
static uint32_t largest_reply(const struct msg_peer *to)
{
	return to->peer.pool->largest;
}

static void list_answering(struct messenger *messenger, struct remote_peer *remote)
{
	if (remote->is_answering)
		return;
	remote->is_answering = true;
	match_append(&messenger->remote_answering, &remote->answering);
	messenger->remote_pending++;
}

/* Stores an answer for which there is no room now. `bytes` are copied unless the answer is `late`. */
static int owe(struct messenger *messenger, struct msg_peer *to, const struct owed_answer *answer,
	       const unsigned char *bytes)
{
	struct remote_peer *remote = &to->remote;
	size_t kept = answer->late ? 0 : answer->length;

	remote->owed_replies += answer->error == 0;
	if (++remote->owed_count > OWED_MAX || remote->owed_replies > WIRE_REPLIES_MAX)
		return -EPROTO; /* more than the peer may have asked for */
	struct owed_answer *owed = malloc(sizeof(*owed) + kept);
	if (owed == NULL)
		return -ENOMEM;
	*owed = *answer;
	owed->next = NULL;
	if (kept > 0 && bytes != NULL)
		memcpy(owed->bytes, bytes, kept);
	if (remote->owed == NULL)
		remote->owed = owed;
	else
		remote->owed_last->next = owed;
	remote->owed_last = owed;
	list_answering(messenger, remote);
	return 0;
}

static int refuse(struct messenger *messenger, struct msg_peer *to, uint32_t flags, int error)
{
	struct remote_peer *remote = &to->remote;

	if (remote->owed == NULL && send_make_room(messenger, to, 1) == 0) {
		push_done(&to->peer, remote->taken, (uint32_t)error);
		remote->told = remote->taken;
		return 0;
	}
	if ((flags & WIRE_ACKNOWLEDGED) == 0 && remote->owed_count >= WIRE_REQUESTS_MAX)
		return 0;
	return owe(messenger, to, &(struct owed_answer){.sequence = remote->taken, .error = (uint32_t)error},
		   NULL);
}

static int reply(struct messenger *messenger, struct msg_peer *to, const unsigned char *bytes,
		 uint32_t length, uint64_t key, uint64_t address)
{
	struct remote_peer *remote = &to->remote;

	if (remote->owed == NULL && length <= largest_reply(to) &&
	    push_reply(messenger, to, remote->taken, bytes, length, 0)) {
		remote->told = remote->taken;
		return 0;
	}
	return owe(messenger, to,
		   &(struct owed_answer){
			   .sequence = remote->taken,
			   .length = length,
			   .late = length > OWED_BYTES,
			   .key = key,
			   .address = address,
		   },
		   bytes);
}

/*
 * Sends the bytes of a long read. Sends them in parts if the transport to the initiator has changed since the
 * request, and now has smaller chunks. Returns false if there is no room for all of them.
 */
static bool give_late(struct messenger *messenger, struct msg_peer *to, struct owed_answer *owed,
		      const unsigned char *bytes)
{
	while (owed->length > largest_reply(to)) {
		uint32_t part = largest_reply(to);
		if (!push_reply(messenger, to, owed->sequence, bytes, part, WIRE_MORE))
			return false;
		bytes += part;
		owed->address += part;
		owed->length -= part;
	}
	return push_reply(messenger, to, owed->sequence, bytes, owed->length, 0);
}

/* Sends a stored answer. The registration of a long read may be closed by now. */
static bool give(struct messenger *messenger, struct msg_peer *to, struct owed_answer *owed)
{
	struct registration *registration = NULL;
	unsigned char *bytes = NULL;
	uint32_t error = owed->error;

	if (error == 0 && !owed->late)
		return push_reply(messenger, to, owed->sequence, owed->bytes, owed->length, 0);
	if (error == 0) {
		error = (uint32_t)registrations_reach(messenger->registrations, messenger->owner, owed->key,
						      owed->address, owed->length, FI_REMOTE_READ,
						      &registration, &bytes);
		if (error == 0)
			return give_late(messenger, to, owed, bytes);
	}
	if (send_make_room(messenger, to, 1) != 0)
		return false;
	push_done(&to->peer, owed->sequence, error);
	return true;
}

bool remote_answer(struct messenger *messenger, struct msg_peer *to)
{
	struct remote_peer *remote = &to->remote;

	while (remote->owed != NULL) {
		struct owed_answer *owed = remote->owed;
		if (!give(messenger, to, owed))
			return false;
		remote->told = owed->sequence;
		remote->owed_count--;
		remote->owed_replies -= owed->error == 0;
		remote->owed = owed->next;
		free(owed);
	}
	if (remote->acknowledge && remote->told < remote->taken) {
		if (send_make_room(messenger, to, 1) != 0)
			return false;
		push_done(&to->peer, remote->taken, 0);
		remote->told = remote->taken;
	}
	remote->acknowledge = false;
	return true;
}

/* ---- execution ---- */

void remote_report_written(struct messenger *messenger, const struct msg_peer *from, uint32_t flags,
			   uint64_t length, uint64_t data, const struct registration *registration)
{
	if ((flags & WIRE_LAST) == 0)
		return;
	messenger_count(messenger, messenger->remote_write_counter, 0);
	if (registration != NULL)
		messenger_count(messenger, registration->counter, 0);
	if ((flags & WIRE_DATA) == 0 || messenger->receive_completions == NULL)
		return;
	struct completion *entry = completion_add(messenger->receive_completions);
	if (entry != NULL)
		*entry = (struct completion){
			.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
			.length = length,
			.data = data,
			.source = msg_peer_source(from),
			.vector = messenger->vector,
		};
}

static void tell_written(struct messenger *messenger, const struct request *request,
			 const struct registration *registration)
{
	remote_report_written(messenger, request->from, request->flags, request->length, request->data,
			      registration);
}

/* One DONE answers all requests of a poll: remote_work() sends it when the poll ends. */
static void acknowledge(struct messenger *messenger, const struct request *request)
{
	if ((request->flags & WIRE_ACKNOWLEDGED) == 0)
		return;
	request->from->remote.acknowledge = true;
	list_answering(messenger, &request->from->remote);
}

/* Finds the memory of a request. A request without bytes accesses no memory and needs no key. */
static int reach(struct messenger *messenger, const struct request *request, uint64_t address,
		 uint64_t length, uint64_t access, struct registration **registration, unsigned char **bytes)
{
	if (length == 0)
		return 0;
	return registrations_reach(messenger->registrations, messenger->owner, request->key, address, length,
				   access, registration, bytes);
}

static int carry_out_write(struct messenger *messenger, struct request *request, const struct ring_slot *slot)
{
	uint32_t header = request->flags & WIRE_DATA ? 16 : 8;
	struct registration *registration = NULL;
	unsigned char *to = NULL;
	uint64_t address = 0;
	int slots = 1;

	if (request->length > WIRE_SHORT_BYTES - header)
		return -EPROTO;
	shared_copy_in(&address, slot->payload, sizeof(address));
	if (request->flags & WIRE_DATA)
		shared_copy_in(&request->data, slot->payload + 8, sizeof(request->data));
	int error = reach(messenger, request, address, request->length, FI_REMOTE_WRITE, &registration, &to);
	if (request->length <= WIRE_INLINE_BYTES - header) {
		if (error == 0)
			copy_small_in(to, slot->payload + header, request->length);
	} else {
		unsigned char bytes[WIRE_SHORT_BYTES];
		slots = remote_take(&request->from->peer.in, slot, header, bytes, request->length);
		if (slots < 0)
			return slots;
		if (error == 0)
			memcpy(to, bytes, request->length);
	}
	if (__builtin_expect(error != 0, 0)) {
		int refused = refuse(messenger, request->from, request->flags, error);
		return refused < 0 ? refused : slots;
	}
	tell_written(messenger, request, registration);
	acknowledge(messenger, request);
	return slots;
}

static int carry_out_write_chunk(struct messenger *messenger, struct request *request,
				 const struct ring_slot *slot)
{
	struct msg_peer *from = request->from;
	struct registration *registration = NULL;
	unsigned char *to = NULL;
	struct wire_write header;

	shared_copy_in(&header, slot->payload, sizeof(header));
	const shared_bytes *bytes = chunk_view(from, header.chunk, header.offset, request->length);
	if (bytes == NULL || header.rest > SSIZE_MAX)
		return -EPROTO;
	request->data = header.data;
	int error = reach(messenger, request, header.address, request->length + header.rest, FI_REMOTE_WRITE,
			  &registration, &to);
	if (error == 0 && to != NULL)
		shared_copy_in(to, bytes, request->length);
	chunk_return(&from->peer.returns, header.chunk);
	if (!transport_intact(&from->peer))
		return -ECONNRESET;
	if (error != 0) {
		int refused = refuse(messenger, from, request->flags, error);
		return refused < 0 ? refused : 1;
	}
	tell_written(messenger, request, registration);
	acknowledge(messenger, request);
	return 1;
}

static int carry_out_read(struct messenger *messenger, const struct request *request,
			  const struct ring_slot *slot)
{
	static const unsigned char nothing[1];
	struct registration *registration = NULL;
	unsigned char *bytes = NULL;
	uint64_t address = 0;

	if (request->length > WIRE_REMOTE_BYTES)
		return -EPROTO;
	shared_copy_in(&address, slot->payload, sizeof(address));
	int error =
		reach(messenger, request, address, request->length, FI_REMOTE_READ, &registration, &bytes);
	int result = error != 0 ? refuse(messenger, request->from, WIRE_ACKNOWLEDGED, error)
				: reply(messenger, request->from, request->length > 0 ? bytes : nothing,
					request->length, request->key, address);
	if (error == 0 && (request->flags & WIRE_LAST) != 0)
		messenger_count(messenger, messenger->remote_read_counter, 0);
	return result < 0 ? result : 1;
}

/* ---- atomics ---- */

static uint64_t access_of(const struct wire_atomic *header)
{
	if (header->operation == FI_ATOMIC_READ)
		return FI_REMOTE_READ;
	return header->form == ATOMIC_BASE ? FI_REMOTE_WRITE : FI_REMOTE_READ | FI_REMOTE_WRITE;
}

/*
 * All operands are in private memory: checks and applies the operation. Returns 0, or the error that ends the
 * connection.
 */
static int apply(struct messenger *messenger, const struct request *request, const struct wire_atomic *header,
		 const unsigned char *operands)
{
	size_t bytes = header->count * atomic_element_bytes(header->datatype);
	size_t along = header->operation == FI_ATOMIC_READ ? 0
		       : header->form == ATOMIC_COMPARE    ? 2 * bytes
							   : bytes;
	unsigned char result[WIRE_ATOMIC_BYTES];
	struct registration *registration = NULL;
	unsigned char *target = NULL;
	int error = 0;

	if (!atomic_is_valid(header->datatype, header->operation, header->form))
		error = FI_EOPNOTSUPP;
	else if (bytes > WIRE_ATOMIC_BYTES || request->length != along)
		return -EPROTO;
	else
		error = reach(messenger, request, header->address, bytes, access_of(header), &registration,
			      &target);
	if (error == 0 && (uintptr_t)target % atomic_alignment(header->datatype) != 0)
		error = FI_EINVAL;
	if (error != 0)
		return refuse(messenger, request->from, request->flags, error);
	bool fetches = header->form != ATOMIC_BASE;
	if (bytes > 0)
		atomic_apply(header->datatype, header->operation, target, operands,
			     header->form == ATOMIC_COMPARE ? operands + bytes : NULL,
			     fetches ? result : NULL, header->count);
	if (!fetches) {
		tell_written(messenger, request, registration);
		acknowledge(messenger, request);
		return 0;
	}
	if (header->operation != FI_ATOMIC_READ && registration != NULL && (request->flags & WIRE_LAST) != 0)
		messenger_count(messenger, registration->counter, 0);
	if (request->flags & WIRE_LAST)
		messenger_count(messenger, messenger->remote_read_counter, 0);
	return reply(messenger, request->from, result, (uint32_t)bytes, 0, 0);
}

static int carry_out_atomic(struct messenger *messenger, const struct request *request,
			    const struct ring_slot *slot)
{
	unsigned char operands[WIRE_SHORT_BYTES];
	struct wire_atomic header;

	if (request->length > WIRE_SHORT_BYTES - sizeof(header))
		return -EPROTO;
	shared_copy_in(&header, slot->payload, sizeof(header));
	int slots = remote_take(&request->from->peer.in, slot, sizeof(header), operands, request->length);
	if (slots < 0)
		return slots;
	int result = apply(messenger, request, &header, operands);
	return result < 0 ? result : slots;
}

static int carry_out_atomic_chunk(struct messenger *messenger, const struct request *request,
				  const struct ring_slot *slot)
{
	struct msg_peer *from = request->from;
	unsigned char operands[2 * WIRE_ATOMIC_BYTES];
	struct wire_atomic header;
	struct wire_piece piece;

	if (request->length > sizeof(operands))
		return -EPROTO;
	shared_copy_in(&header, slot->payload, sizeof(header));
	shared_copy_in(&piece, slot->payload + sizeof(header), sizeof(piece));
	const shared_bytes *bytes = chunk_view(from, piece.chunk, piece.offset, request->length);
	if (bytes == NULL)
		return -EPROTO;
	shared_copy_in(operands, bytes, request->length);
	chunk_return(&from->peer.returns, piece.chunk);
	if (!transport_intact(&from->peer))
		return -ECONNRESET;
	int result = apply(messenger, request, &header, operands);
	return result < 0 ? result : 1;
}

int remote_carry_out(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		     const struct ring_slot *slot)
{
	struct request request = {
		.from = from,
		.key = shared_load_u64(&slot->word),
		.flags = control_flags(control),
		.length = control_length(control),
	};

	from->remote.taken++;
	switch (control_kind(control)) {
	case WIRE_WRITE:
		return carry_out_write(messenger, &request, slot);
	case WIRE_WRITE_CHUNK:
		return carry_out_write_chunk(messenger, &request, slot);
	case WIRE_READ:
		return carry_out_read(messenger, &request, slot);
	case WIRE_ATOMIC:
		return carry_out_atomic(messenger, &request, slot);
	default:
		return carry_out_atomic_chunk(messenger, &request, slot);
	}
}
