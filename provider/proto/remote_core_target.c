/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote_core_target.c - long reads and writes over the network, the target: see remote_core.c. A request for
 * memory that is not registered is refused; an invalid message ends the peer's connection. A registration
 * cannot be closed while the core provider moves bytes to or from it.
 */
#include <limits.h>
#include <stdlib.h>

#include "proto/messenger.h"

static struct remote_grant *new_grant(struct messenger *messenger, struct msg_peer *from,
				      struct registration *registration)
{
	struct remote_grant *grant = calloc(1, sizeof(*grant));

	if (grant == NULL)
		return NULL;
	grant->from = from;
	grant->registration = registration;
	grant->id = OPERATION_NO_ID;
	registration->grants++;
	match_append(&messenger->remote_grants, &grant->link);
	messenger->by_core++;
	from->remote.grants++;
	return grant;
}

/* The caller adjusts the peer's count: that of a failed peer is 0 already. */
static void free_grant(struct messenger *messenger, struct remote_grant *grant)
{
	match_unlink(&grant->link);
	messenger->by_core--;
	network_revoke(&grant->grant);
	if (grant->id != OPERATION_NO_ID)
		operations_remove(&messenger->grant_ids, grant->id);
	grant->registration->grants--;
	free(grant);
}

/* Returns 0, or the error that ends the connection. */
static int tell_ended(struct messenger *messenger, struct msg_peer *to, uint64_t id, uint64_t error)
{
	return rendezvous_send_control(messenger, to,
				       &(struct control_slot){
					       .control = control_word(WIRE_ENDED, 0, 0),
					       .word = id,
					       .error = error,
				       })
		       ? 0
		       : -ENOMEM;
}

/* ---- writes ---- */

static void written(struct messenger *messenger, struct reading *reading)
{
	struct remote_grant *grant =
		(struct remote_grant *)(void *)((char *)reading - offsetof(struct remote_grant, reading));
	struct msg_peer *from = grant->from;

	if (reading->abandoned) {
		free_grant(messenger, grant);
		return;
	}
	remote_report_written(messenger, from, grant->flags, grant->buffer.length, grant->data,
			      grant->registration);
	from->remote.grants--;
	if (tell_ended(messenger, from, grant->initiator_id, 0) != 0)
		transport_fail(messenger->transport, &from->peer, -ENOMEM,
			       "no memory is left to answer the peer");
	free_grant(messenger, grant);
}

/* Looks up the memory and checks the access. Returns 0 and the memory, or the reason for a refusal. */
static uint64_t reach(const struct messenger *messenger, const struct msg_peer *from,
		      const struct wire_core_read *range, uint64_t access, struct registration **registration,
		      struct iovec *piece)
{
	unsigned char *bytes = NULL;
	int error = registrations_reach(messenger->registrations, messenger->owner, range->key,
					range->address, range->total, access, registration, &bytes);

	*piece = (struct iovec){bytes, range->total};
	if (error == 0 && !network_reads(&from->peer))
		return WIRE_BY_REQUESTS;
	return (uint64_t)error;
}

static int begin_write(struct messenger *messenger, struct msg_peer *from, uint64_t id, uint32_t flags,
		       const struct wire_core_write *header)
{
	const struct wire_core_read range = {header->key, header->address, header->total};
	struct registration *registration = NULL;
	struct iovec piece;
	uint64_t error = reach(messenger, from, &range, FI_REMOTE_WRITE, &registration, &piece);
	struct remote_grant *grant = error == 0 ? new_grant(messenger, from, registration) : NULL;

	if (grant == NULL)
		return tell_ended(messenger, from, id, error != 0 ? error : FI_ENOMEM);
	grant->initiator_id = id;
	grant->data = header->data;
	grant->flags = flags;
	buffer_open(&grant->buffer, &piece, 1);
	reading_begin(messenger, &grant->reading, from, &grant->buffer, header->total,
		      &(struct network_grant){.key = header->grant_key, .address = header->grant_address},
		      written);
	return 0;
}

/* ---- reads ---- */

static int begin_read(struct messenger *messenger, struct msg_peer *from, uint64_t id,
		      const struct wire_core_read *range)
{
	struct registration *registration = NULL;
	struct iovec piece;
	uint64_t error = reach(messenger, from, range, FI_REMOTE_READ, &registration, &piece);
	struct remote_grant *grant = error == 0 ? new_grant(messenger, from, registration) : NULL;

	if (grant == NULL)
		return tell_ended(messenger, from, id, error != 0 ? error : FI_ENOMEM);
	grant->reads = true;
	if (network_expose(&from->peer, piece.iov_base, piece.iov_len, &grant->grant))
		grant->id = operations_add(&messenger->grant_ids, grant);
	if (grant->id == OPERATION_NO_ID) {
		from->remote.grants--;
		free_grant(messenger, grant);
		return tell_ended(messenger, from, id, WIRE_BY_REQUESTS);
	}
	return rendezvous_send_control(messenger, from,
				       &(struct control_slot){
					       .control = control_word(WIRE_GRANT, 0, 0),
					       .word = id,
					       .grant = {grant->id, grant->grant.key, grant->grant.address},
				       })
		       ? 0
		       : -ENOMEM;
}

static int returned(struct messenger *messenger, struct msg_peer *from, uint64_t id)
{
	struct remote_grant *grant = operations_find(&messenger->grant_ids, id);

	if (grant == NULL || grant->from != from)
		return -EPROTO;
	messenger_count(messenger, messenger->remote_read_counter, 0);
	from->remote.grants--;
	free_grant(messenger, grant);
	return 0;
}

int remote_core_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		       const struct ring_slot *slot)
{
	uint64_t id = shared_load_u64(&slot->word);
	struct wire_core_write header = {0};
	int result = 0;

	if (control_length(control) != 0)
		return -EPROTO;
	if (control_kind(control) == WIRE_RETURN) {
		result = returned(messenger, from, id);
		return result < 0 ? result : 1;
	}
	bool writes = control_kind(control) == WIRE_CORE_WRITE;
	shared_copy_in(&header, slot->payload, writes ? sizeof(header) : sizeof(struct wire_core_read));
	if (!from->peer.framed || header.total == 0 || header.total > SSIZE_MAX ||
	    from->remote.grants == WIRE_GRANTS_MAX)
		return -EPROTO;
	if (writes)
		result = begin_write(messenger, from, id, control_flags(control), &header);
	else
		result = begin_read(messenger, from, id,
				    &(struct wire_core_read){header.key, header.address, header.total});
	return result < 0 ? result : 1;
}

/* ---- failed peers, closed registrations, close ---- */

void remote_fail_grants(struct messenger *messenger, const struct msg_peer *from)
{
	for (struct match_link *link = messenger->remote_grants.next; link != &messenger->remote_grants;) {
		struct remote_grant *grant = (struct remote_grant *)(void *)link;
		link = link->next;
		if (grant->from != from || (!grant->reads && grant->reading.abandoned))
			continue;
		if (grant->reads || !reading_abandon(messenger, &grant->reading))
			free_grant(messenger, grant);
	}
}

void messenger_recall(struct messenger *messenger, const struct registration *registration)
{
	for (struct match_link *link = messenger->remote_grants.next; link != &messenger->remote_grants;
	     link = link->next) {
		const struct remote_grant *grant = (const struct remote_grant *)(const void *)link;
		if (grant->registration == registration && grant->reads)
			transport_fail(messenger->transport, &grant->from->peer, -EPROTO,
				       "the peer did not end its reads of memory that was deregistered");
	}
}

void remote_revoke_grants(struct messenger *messenger)
{
	for (struct match_link *link = messenger->remote_by_core.next; link != &messenger->remote_by_core;
	     link = link->next)
		network_revoke(&((struct remote_operation *)(void *)link)->grant);
	for (struct match_link *link = messenger->remote_grants.next; link != &messenger->remote_grants;
	     link = link->next)
		network_revoke(&((struct remote_grant *)(void *)link)->grant);
}

void remote_free_grants(struct messenger *messenger)
{
	for (struct match_link *link = messenger->remote_grants.next; link != &messenger->remote_grants;) {
		struct remote_grant *grant = (struct remote_grant *)(void *)link;
		link = link->next;
		free_grant(messenger, grant);
	}
	operations_close(&messenger->grant_ids);
}
