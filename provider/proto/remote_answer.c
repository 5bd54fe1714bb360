/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote_answer.c - one-sided operations, the initiator: answers, and the end of operations. Answers are from
 * a peer that may be hostile: each must be the next one expected.
 */
#include <stdlib.h>

#include "proto/messenger.h"

const char *remote_reason_of(int error)
{
	switch (error) {
	case FI_EKEYREJECTED:
		return "the target has no memory registered under this key";
	case FI_EACCES:
		return "the target's registration does not contain this range, or does not allow this access";
	case FI_EINVAL:
		return "the address is not aligned for this datatype";
	case FI_EOPNOTSUPP:
		return "the target does not support this atomic operation";
	default:
		return "the target had no memory for the answer";
	}
}

/* Accepts only errors that remote_target.c sends. */
bool remote_is_an_error(uint64_t error)
{
	return error == FI_EKEYREJECTED || error == FI_EACCES || error == FI_EINVAL ||
	       error == FI_EOPNOTSUPP || error == FI_ENOMEM;
}

void remote_complete(struct messenger *messenger, enum remote_kind kind, bool fetches, void *context,
		     uint64_t flags, int error, const char *reason)
{
	bool reads = kind == REMOTE_READ || fetches;
	struct completion_counter *counter = reads ? messenger->read_counter : messenger->write_counter;

	messenger_count(messenger, counter, error);
	if ((error == 0 && (flags & FI_COMPLETION) == 0) || messenger->send_completions == NULL)
		return;
	struct completion *entry = completion_add(messenger->send_completions);
	if (entry == NULL)
		return;
	*entry = (struct completion){
		.context = context,
		.flags = (kind == REMOTE_ATOMIC ? FI_ATOMIC : FI_RMA) | (reads ? FI_READ : FI_WRITE),
		.source = COMPLETION_NO_SOURCE,
		.error = error,
		.reason = reason,
	};
}

void remote_end_if_over(struct messenger *messenger, struct remote_operation *operation, const char *reason)
{
	if (!operation->sent_all || operation->outstanding > 0)
		return;
	match_unlink(&operation->link);
	remote_complete(messenger, operation->kind, operation->fetches, operation->context, operation->flags,
			operation->error, reason != NULL ? reason : remote_reason_of(operation->error));
	pool_give(&messenger->remote_pool, operation);
}

/* Ends the first expectation, with an error if the target refused. */
static void meet(struct messenger *messenger, struct remote_peer *remote, int error)
{
	struct expectation *first =
		&remote->expected[remote->expected_head++ & (remote->expected_capacity - 1)];
	struct remote_operation *operation = first->operation;

	remote->replies_expected -= first->reply;
	operation->outstanding--;
	if (error != 0 && operation->error == 0) {
		operation->error = error;
		if (!operation->sent_all) {
			/* The rest of the operation is not sent. */
			operation->sent_all = true;
			match_unlink(&operation->link);
			match_append(&messenger->remote_awaiting, &operation->link);
			messenger->remote_pending--;
		}
	}
	remote_end_if_over(messenger, operation, NULL);
}

static struct expectation *first_expected(const struct remote_peer *remote)
{
	if (remote->expected_head == remote->expected_tail)
		return NULL;
	return &remote->expected[remote->expected_head & (remote->expected_capacity - 1)];
}

/* An answer to `sequence` means that all earlier requests were executed. None of them may expect bytes. */
static bool meet_before(struct messenger *messenger, struct remote_peer *remote, uint64_t sequence)
{
	const struct expectation *first = NULL;

	if (sequence <= remote->answered || sequence > remote->requests)
		return false;
	while ((first = first_expected(remote)) != NULL && first->sequence < sequence) {
		if (first->reply)
			return false;
		meet(messenger, remote, 0);
	}
	remote->answered = sequence;
	return true;
}

static int take_done(struct messenger *messenger, struct msg_peer *from, uint64_t sequence,
		     const struct ring_slot *slot)
{
	struct remote_peer *remote = &from->remote;
	uint64_t error = 0;

	shared_copy_in(&error, slot->payload, sizeof(error));
	if ((error != 0 && !remote_is_an_error(error)) || !meet_before(messenger, remote, sequence))
		return -EPROTO;
	const struct expectation *first = first_expected(remote);
	if (first != NULL && first->sequence == sequence) {
		if (error == 0 && first->reply)
			return -EPROTO;
		meet(messenger, remote, (int)error);
	} else if (error != 0) {
		/*
		 * The operation was complete when its bytes had left, so there is no context for the error.
		 */
		remote_complete(messenger, REMOTE_WRITE, false, NULL, 0, (int)error,
				remote_reason_of((int)error));
	}
	return 1;
}

static int take_reply(struct messenger *messenger, struct msg_peer *from, uint64_t control, uint64_t sequence,
		      const struct ring_slot *slot)
{
	struct remote_peer *remote = &from->remote;
	uint32_t length = control_length(control);
	int slots = 1;

	if (!meet_before(messenger, remote, sequence))
		return -EPROTO;
	struct expectation *first = first_expected(remote);
	bool more = (control_flags(control) & WIRE_MORE) != 0;
	if (first == NULL || first->sequence != sequence || !first->reply ||
	    (more ? length == 0 || length >= first->length : length != first->length))
		return -EPROTO;
	const struct buffer *buffer = &first->operation->buffer;
	if (control_kind(control) == WIRE_REPLY) {
		unsigned char bytes[WIRE_SHORT_BYTES];
		if (length > WIRE_SHORT_BYTES)
			return -EPROTO;
		slots = remote_take(&from->peer.in, slot, 0, bytes, length);
		if (slots < 0)
			return slots;
		(void)buffer_from_memory(buffer, first->position, bytes, length);
	} else {
		struct wire_piece header;
		shared_copy_in(&header, slot->payload, sizeof(header));
		const shared_bytes *bytes = chunk_view(from, header.chunk, header.offset, length);
		if (bytes == NULL)
			return -EPROTO;
		(void)buffer_from_region(buffer, first->position, bytes, length);
		chunk_return(&from->peer.returns, header.chunk);
		if (!transport_intact(&from->peer))
			return -ECONNRESET;
	}
	if (more) {
		first->position += length;
		first->length -= length;
		remote->answered = sequence - 1; /* the next part answers the same request */
		return slots;
	}
	meet(messenger, remote, 0);
	return slots;
}

int remote_answered(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		    const struct ring_slot *slot)
{
	uint64_t sequence = shared_load_u64(&slot->word);

	if (control_kind(control) == WIRE_DONE)
		return take_done(messenger, from, sequence, slot);
	return take_reply(messenger, from, control, sequence, slot);
}
