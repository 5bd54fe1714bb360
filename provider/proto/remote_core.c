/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote_core.c - long reads and writes over the network, the initiator. The core provider of the side that
 * receives the bytes reads them, directly from one application's memory to the other's.
 *
 *   initiator                               target
 *   CORE_WRITE               ───────────▶   checked against its registrations
 *                            ◀── read ───   straight into the registered memory
 *                            ◀───────────   ENDED
 *
 *   CORE_READ                ───────────▶   checked against its registrations
 *                            ◀───────────   GRANT
 *                            ─── read ──▶   straight into the initiator's buffer
 *   RETURN                   ───────────▶
 *
 * Only the core provider of a memory's own process writes to it, at that process's request. So each side
 * knows when its memory belongs to its application again, whatever the other side does. A write by the target
 * into the initiator's buffer would save half a round trip. But if the target were given up during the write,
 * the initiator's core provider might already have begun to store bytes in the buffer, and it does not report
 * when it is done.
 *
 * These operations are not counted as requests, because they may end in any order, and later requests are
 * answered meanwhile. They are identified by an id of the side that created it.
 */
#include "proto/messenger.h"

/* Shorter operations use requests. Measured: docs/decisions/0010 */
#define CORE_BYTES_MIN ((size_t)128 << 10)

bool remote_core_may_move(const struct remote_request *request)
{
	const struct peer *peer = &request->to->peer;

	return peer->network != NULL && request->length > CORE_BYTES_MIN && request->range_count == 1 &&
	       (request->kind == REMOTE_READ || request->count == 1) && network_reads(peer);
}

/* ---- the beginning of an operation ---- */

static void push(struct remote_operation *operation)
{
	struct peer *peer = &operation->to->peer;
	const struct fi_rma_iov *range = &operation->ranges[0];
	const struct wire_core_write header = {
		.key = range->key,
		.address = range->addr,
		.total = operation->buffer.length,
		.data = operation->data,
		.grant_key = operation->grant.key,
		.grant_address = operation->grant.address,
	};
	_Static_assert(offsetof(struct wire_core_write, data) == sizeof(struct wire_core_read),
		       "a write begins with the fields of a read");
	bool reads = operation->kind == REMOTE_READ;
	uint32_t flags = WIRE_LAST | ((operation->flags & FI_REMOTE_CQ_DATA) != 0 ? WIRE_DATA : 0U);

	remote_push(peer, control_word(reads ? WIRE_CORE_READ : WIRE_CORE_WRITE, reads ? 0 : flags, 0),
		    operation->id, &header, reads ? sizeof(struct wire_core_read) : sizeof(header), NULL, 0);
}

/* The operation continues by requests. */
static bool give_up(struct remote_operation *operation)
{
	operation->by_core = false;
	return false;
}

bool remote_core_begin(struct messenger *messenger, struct remote_operation *operation)
{
	struct msg_peer *to = operation->to;

	/* The peer's transport may have changed since the call. */
	if (to->peer.network == NULL || !network_reads(&to->peer))
		return give_up(operation);
	/* The target counts these operations too, so it must receive the RETURN of an earlier one first. */
	if (to->remote.by_core == WIRE_GRANTS_MAX || !rendezvous_sent_controls(to) ||
	    send_make_room(messenger, to, 1) != 0)
		return false;
	operation->grant = (struct network_grant){0};
	operation->id = operations_add(&messenger->remote_ids, operation);
	if (operation->id == OPERATION_NO_ID)
		return give_up(operation);
	if (operation->kind == REMOTE_WRITE &&
	    !network_expose(&to->peer, operation->buffer.pieces[0].iov_base, operation->buffer.length,
			    &operation->grant)) {
		operations_remove(&messenger->remote_ids, operation->id);
		return give_up(operation);
	}
	operation->reading = false;
	push(operation);
	match_unlink(&operation->link);
	messenger->remote_pending--;
	match_append(&messenger->remote_by_core, &operation->link);
	messenger->by_core++;
	to->remote.by_core++;
	return true;
}

/* ---- the end of an operation ---- */

/* Removes the operation from its list; the target can no longer name it. */
static void leave(struct messenger *messenger, struct remote_operation *operation)
{
	match_unlink(&operation->link);
	messenger->by_core--;
	network_revoke(&operation->grant);
	if (operation->id != OPERATION_NO_ID)
		operations_remove(&messenger->remote_ids, operation->id);
}

static void end(struct messenger *messenger, struct remote_operation *operation, int error,
		const char *reason)
{
	leave(messenger, operation);
	remote_complete(messenger, operation->kind, false, operation->context, operation->flags, error,
			error != 0 && reason == NULL ? remote_reason_of(error) : reason);
	pool_give(&messenger->remote_pool, operation);
}

static void read_ended(struct messenger *messenger, struct reading *reading)
{
	struct remote_operation *operation =
		(struct remote_operation *)(void *)((char *)reading -
						    offsetof(struct remote_operation, read));
	struct msg_peer *to = operation->to;

	if (reading->abandoned) {
		end(messenger, operation, operation->error, operation->reason);
		return;
	}
	if (!rendezvous_send_control(messenger, to,
				     &(struct control_slot){
					     .control = control_word(WIRE_RETURN, 0, 0),
					     .word = operation->grant_id,
				     }))
		transport_fail(messenger->transport, &to->peer, -ENOMEM,
			       "no memory is left to answer the peer");
	to->remote.by_core--;
	end(messenger, operation, 0, NULL);
}

/* The core provider of one side cannot move the bytes. */
static void go_on_by_requests(struct messenger *messenger, struct remote_operation *operation)
{
	leave(messenger, operation);
	operation->by_core = false;
	match_append(&messenger->remote_pumping, &operation->link);
	messenger->remote_pending++;
}

static int take_grant(struct messenger *messenger, struct remote_operation *operation,
		      const struct ring_slot *slot)
{
	struct wire_grant header;

	shared_copy_in(&header, slot->payload, sizeof(header));
	if (operation->kind != REMOTE_READ || operation->reading)
		return -EPROTO;
	operation->reading = true;
	operation->grant_id = header.id;
	reading_begin(messenger, &operation->read, operation->to, &operation->buffer,
		      operation->buffer.length,
		      &(struct network_grant){.key = header.key, .address = header.address}, read_ended);
	return 1;
}

static int take_ended(struct messenger *messenger, struct remote_operation *operation,
		      const struct ring_slot *slot)
{
	uint64_t error = 0;

	shared_copy_in(&error, slot->payload, sizeof(error));
	if ((error != 0 && error != WIRE_BY_REQUESTS && !remote_is_an_error(error)) || operation->reading ||
	    (error == 0 && operation->kind == REMOTE_READ))
		return -EPROTO;
	operation->to->remote.by_core--;
	if (error == WIRE_BY_REQUESTS)
		go_on_by_requests(messenger, operation);
	else
		end(messenger, operation, (int)error, NULL);
	return 1;
}

int remote_core_answered(struct messenger *messenger, struct msg_peer *from, uint64_t control,
			 const struct ring_slot *slot)
{
	struct remote_operation *operation =
		operations_find(&messenger->remote_ids, shared_load_u64(&slot->word));

	if (operation == NULL || operation->to != from || control_length(control) != 0)
		return -EPROTO;
	return control_kind(control) == WIRE_GRANT ? take_grant(messenger, operation, slot)
						   : take_ended(messenger, operation, slot);
}

bool remote_core_fail(struct messenger *messenger, const struct msg_peer *to)
{
	bool any = false;

	for (struct match_link *link = messenger->remote_by_core.next; link != &messenger->remote_by_core;) {
		struct remote_operation *operation = (struct remote_operation *)(void *)link;
		link = link->next;
		/* An operation that was abandoned before has no id. */
		if (operation->to != to || operation->id == OPERATION_NO_ID)
			continue;
		any = true;
		if (!operation->reading || !reading_abandon(messenger, &operation->read)) {
			end(messenger, operation, -to->peer.failure, to->peer.reason);
			continue;
		}
		/* The buffer belongs to the core provider until the last read has ended. */
		operations_remove(&messenger->remote_ids, operation->id);
		operation->id = OPERATION_NO_ID;
		operation->error = -to->peer.failure;
		operation->reason = to->peer.reason;
	}
	return any;
}
