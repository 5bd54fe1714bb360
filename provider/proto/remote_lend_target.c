/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote_lend_target.c - long reads and writes over the network, the target: see remote_lend.c. A peer that
 * asks for what is not registered is refused; one that says what cannot be loses its path. A registration
 * stays as long as the core moves bytes to or from it.
 */
#include <limits.h>
#include <stdlib.h>

#include "proto/messenger.h"

static struct remote_loan *new_loan(struct messenger *messenger, struct correspondent *from,
				    struct registration *registration)
{
	struct remote_loan *loan = calloc(1, sizeof(*loan));

	if (loan == NULL)
		return NULL;
	loan->from = from;
	loan->registration = registration;
	loan->id = OPERATION_NO_ID;
	registration->loans++;
	match_append(&messenger->remote_loans, &loan->link);
	messenger->lends++;
	from->remote.loans++;
	return loan;
}

/* Its peer's count is the caller's to see to: a peer that failed begins at 0. */
static void free_loan(struct messenger *messenger, struct remote_loan *loan)
{
	match_unlink(&loan->link);
	messenger->lends--;
	network_take_back(&loan->loan);
	if (loan->id != OPERATION_NO_ID)
		operations_remove(&messenger->loan_ids, loan->id);
	loan->registration->loans--;
	free(loan);
}

/* 0, or what the path ends with. */
static int tell_ended(struct messenger *messenger, struct correspondent *to, uint64_t id, uint64_t error)
{
	return rendezvous_tell(messenger, to,
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
	struct remote_loan *loan =
		(struct remote_loan *)(void *)((char *)reading - offsetof(struct remote_loan, reading));
	struct correspondent *from = loan->from;

	if (reading->abandoned) {
		free_loan(messenger, loan);
		return;
	}
	remote_tell_written(messenger, from, loan->flags, loan->buffer.length, loan->data,
			    loan->registration);
	from->remote.loans--;
	if (tell_ended(messenger, from, loan->initiator_id, 0) != 0)
		transport_fail(messenger->transport, &from->peer, -ENOMEM, "no memory is left to answer it");
	free_loan(messenger, loan);
}

/* What is asked for, found and allowed: 0 and where it is, or why it is refused. */
static uint64_t reach(const struct messenger *messenger, const struct correspondent *from,
		      const struct wire_lend_read *range, uint64_t access, struct registration **registration,
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

static int lend_write(struct messenger *messenger, struct correspondent *from, uint64_t id, uint32_t flags,
		      const struct wire_lend_write *header)
{
	const struct wire_lend_read range = {header->key, header->address, header->total};
	struct registration *registration = NULL;
	struct iovec piece;
	uint64_t error = reach(messenger, from, &range, FI_REMOTE_WRITE, &registration, &piece);
	struct remote_loan *loan = error == 0 ? new_loan(messenger, from, registration) : NULL;

	if (loan == NULL)
		return tell_ended(messenger, from, id, error != 0 ? error : FI_ENOMEM);
	loan->initiator_id = id;
	loan->data = header->data;
	loan->flags = flags;
	buffer_open(&loan->buffer, &piece, 1);
	reading_begin(messenger, &loan->reading, from, &loan->buffer, header->total,
		      &(struct network_loan){.key = header->loan_key, .address = header->loan_address},
		      written);
	return 0;
}

/* ---- reads ---- */

static int lend_read(struct messenger *messenger, struct correspondent *from, uint64_t id,
		     const struct wire_lend_read *range)
{
	struct registration *registration = NULL;
	struct iovec piece;
	uint64_t error = reach(messenger, from, range, FI_REMOTE_READ, &registration, &piece);
	struct remote_loan *loan = error == 0 ? new_loan(messenger, from, registration) : NULL;

	if (loan == NULL)
		return tell_ended(messenger, from, id, error != 0 ? error : FI_ENOMEM);
	loan->reads = true;
	if (network_lend(&from->peer, piece.iov_base, piece.iov_len, &loan->loan))
		loan->id = operations_add(&messenger->loan_ids, loan);
	if (loan->id == OPERATION_NO_ID) {
		from->remote.loans--;
		free_loan(messenger, loan);
		return tell_ended(messenger, from, id, WIRE_BY_REQUESTS);
	}
	return rendezvous_tell(messenger, from,
			       &(struct control_slot){
				       .control = control_word(WIRE_LENT, 0, 0),
				       .word = id,
				       .lent = {loan->id, loan->loan.key, loan->loan.address},
			       })
		       ? 0
		       : -ENOMEM;
}

static int returned(struct messenger *messenger, struct correspondent *from, uint64_t id)
{
	struct remote_loan *loan = operations_find(&messenger->loan_ids, id);

	if (loan == NULL || loan->from != from)
		return -EPROTO;
	messenger_count(messenger, messenger->remote_read_counter, 0);
	from->remote.loans--;
	free_loan(messenger, loan);
	return 0;
}

int remote_lend_arrive(struct messenger *messenger, struct correspondent *from, uint64_t control,
		       const struct ring_slot *slot)
{
	uint64_t id = shared_load_u64(&slot->word);
	struct wire_lend_write header = {0};
	int result = 0;

	if (control_length(control) != 0)
		return -EPROTO;
	if (control_kind(control) == WIRE_RETURN) {
		result = returned(messenger, from, id);
		return result < 0 ? result : 1;
	}
	bool writes = control_kind(control) == WIRE_LEND_WRITE;
	shared_copy_in(&header, slot->payload, writes ? sizeof(header) : sizeof(struct wire_lend_read));
	if (!from->peer.framed || header.total == 0 || header.total > SSIZE_MAX ||
	    from->remote.loans == WIRE_LENDS_MOST)
		return -EPROTO;
	if (writes)
		result = lend_write(messenger, from, id, control_flags(control), &header);
	else
		result = lend_read(messenger, from, id,
				   &(struct wire_lend_read){header.key, header.address, header.total});
	return result < 0 ? result : 1;
}

/* ---- the end of a peer, of a registration, and of all ---- */

void remote_fail_loans(struct messenger *messenger, const struct correspondent *from)
{
	for (struct match_link *link = messenger->remote_loans.next; link != &messenger->remote_loans;) {
		struct remote_loan *loan = (struct remote_loan *)(void *)link;
		link = link->next;
		if (loan->from != from || (!loan->reads && loan->reading.abandoned))
			continue;
		if (loan->reads || !reading_abandon(messenger, &loan->reading))
			free_loan(messenger, loan);
	}
}

void messenger_recall(struct messenger *messenger, const struct registration *registration)
{
	for (struct match_link *link = messenger->remote_loans.next; link != &messenger->remote_loans;
	     link = link->next) {
		const struct remote_loan *loan = (const struct remote_loan *)(const void *)link;
		if (loan->registration == registration && loan->reads)
			transport_fail(messenger->transport, &loan->from->peer, -EPROTO,
				       "it did not give back memory that it read");
	}
}

void remote_take_back_loans(struct messenger *messenger)
{
	for (struct match_link *link = messenger->remote_lending.next; link != &messenger->remote_lending;
	     link = link->next)
		network_take_back(&((struct remote_operation *)(void *)link)->loan);
	for (struct match_link *link = messenger->remote_loans.next; link != &messenger->remote_loans;
	     link = link->next)
		network_take_back(&((struct remote_loan *)(void *)link)->loan);
}

void remote_free_loans(struct messenger *messenger)
{
	for (struct match_link *link = messenger->remote_loans.next; link != &messenger->remote_loans;) {
		struct remote_loan *loan = (struct remote_loan *)(void *)link;
		link = link->next;
		free_loan(messenger, loan);
	}
	operations_close(&messenger->loan_ids);
}
