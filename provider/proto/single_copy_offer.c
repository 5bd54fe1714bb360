/* SPDX-License-Identifier: BSD-3-Clause */
/* single_copy_offer.c - which messages are copied once, and how: see single_copy.h. */
#include "proto/messenger.h"

#include <stdlib.h>
#include <unistd.h>

/*
 * A single copy through the kernel by both ends is faster than two overlapping copies only if it takes less
 * than this many times a plain copy. An estimate: on the machine of the measurements it takes five times as
 * long, and was slower (docs/decisions/0007). No machine with a smaller factor was available.
 */
#define WORTH_AT_MOST 3.5

enum process_state { PROCESS_UNKNOWN, PROCESS_PROVED, PROCESS_OFF };

int single_copy_open(struct messenger *messenger, enum single_copy_policy policy)
{
	if (policy == SINGLE_COPY_OFF)
		return 0;
	struct single_copies *single = calloc(1, sizeof(*single));
	if (single == NULL)
		return -ENOMEM;
	single->pulling.next = &single->pulling;
	single->pulling.previous = &single->pulling;
	for (uint32_t index = REGION_TRANSFERS; index-- > 0;)
		single->free[single->free_count++] = (uint8_t)index;
	single->process = policy == SINGLE_COPY_ON || process_measure() <= WORTH_AT_MOST;
	/* A process that cannot publish its record, for example without locks, is only not found by peers. */
	if (single->process)
		(void)process_offer_open(&single->offer, messenger->transport->attachments[0].member);
	messenger->single = single;
	return 0;
}

void single_copy_close(struct messenger *messenger)
{
	if (messenger->single == NULL)
		return;
	/*
	 * From here on, buffers belong to the application. A peer that still copies notices the closed lines.
	 */
	const struct transport *transport = messenger->transport;
	for (uint32_t index = 0;
	     transport->attachments[0].member->process == getpid() &&
	     attachment_holds_slot(&transport->attachments[0]) && index < REGION_TRANSFERS;
	     index++)
		transfer_close(section_transfer(transport->attachments[0].region,
						transport->attachments[0].member->slot, index));
	process_offer_close(&messenger->single->offer);
	free(messenger->single);
	messenger->single = NULL;
}

/* ---- the table ---- */

static uint32_t index_of(const struct messenger *messenger, const struct single_copy *copy)
{
	return (uint32_t)(copy - messenger->single->copies);
}

static struct single_copy *take(struct messenger *messenger, const struct msg_peer *peer)
{
	struct single_copies *single = messenger->single;

	if (single->free_count == 0)
		return NULL;
	uint32_t index = single->free[--single->free_count];
	struct single_copy *copy = &single->copies[index];
	/* 24 bits, and never 0: an id is reused after 2^24 messages. */
	uint32_t generation = (copy->generation & 0xffffffU) + 1;
	if (generation > 0xffffffU)
		generation = 1;
	*copy = (struct single_copy){
		.generation = generation,
		.own = transfer_id(index, generation),
		.slot = peer->peer.slot,
		.epoch = peer->peer.tenure,
	};
	return copy;
}

/*
 * Whether this endpoint is still in the region, and the peer in the slot, in which the transfer began. A peer
 * that left and came back elsewhere has a slot of another region, in which these words mean nothing.
 */
static bool is_where_it_began(const struct messenger *messenger, const struct single_copy *copy,
			      const struct peer *peer)
{
	const struct attachment *home = &messenger->transport->attachments[0];

	return peer->attachment == home && !peer->alias && !home->region->left && !home->evicted &&
	       peer->slot == copy->slot && peer->tenure == copy->epoch;
}

/* Publishes this end's line in both places where the other end may look. */
static void show(struct messenger *messenger, const struct single_copy *copy, const struct msg_peer *peer,
		 uint64_t operation, const struct buffer *buffer, uint64_t claimed, uint64_t done,
		 uint64_t offset)
{
	const struct transport *transport = messenger->transport;
	uint32_t index = index_of(messenger, copy);

	uint64_t other = (uint64_t)peer->peer.epoch << 32 | peer->peer.slot;
	const struct transfer_words words = {
		.claimed = claimed, .done = done, .offset = offset, .peer = other};

	transfer_open(section_transfer(transport->attachments[0].region,
				       transport->attachments[0].member->slot, index),
		      copy->own, &words);
	if (messenger->single->offer.record == NULL)
		return;
	struct process_transfer *transfer = &messenger->single->offer.record->transfers[index];
	transfer->member = other;
	transfer->operation = operation;
	transfer->bytes = buffer->length;
	transfer->count = buffer->count;
	for (size_t i = 0; i < buffer->count; i++)
		transfer->pieces[i] = buffer->pieces[i];
	atomic_store_explicit(&transfer->line.claimed, claimed, memory_order_relaxed);
	atomic_store_explicit(&transfer->line.done, done, memory_order_relaxed);
	atomic_store_explicit(&transfer->line.id, copy->own, memory_order_release);
}

void single_copy_release(struct messenger *messenger, struct single_copy *copy)
{
	struct single_copies *single = messenger->single;
	const struct transport *transport = messenger->transport;
	uint32_t index = index_of(messenger, copy);

	/* Before the caller gives the buffer back to the application. */
	if (attachment_holds_slot(&transport->attachments[0]))
		transfer_close(section_transfer(transport->attachments[0].region,
						transport->attachments[0].member->slot, index));
	if (single->offer.record != NULL)
		atomic_store_explicit(&single->offer.record->transfers[index].line.id, 0,
				      memory_order_seq_cst);
	single->free[single->free_count++] = (uint8_t)index;
}

/* ---- through the kernel ---- */

/* Forgets what was learned of a former member of the slot. */
static void forget_former(struct msg_peer *peer)
{
	if (peer->process_epoch == peer->peer.epoch)
		return;
	peer->process_epoch = peer->peer.epoch;
	peer->process_state = PROCESS_UNKNOWN;
	peer->process_tries = 0;
	peer->takes_single = false;
}

static bool process_is_proved(struct messenger *messenger, struct msg_peer *peer)
{
	struct single_copies *single = messenger->single;

	if (!single->process)
		return false;
	if (peer->process_state != PROCESS_UNKNOWN)
		return peer->process_state == PROCESS_PROVED;
	/* The peer may not have published its record yet: try again, less and less often. */
	uint32_t tries = ++peer->process_tries;
	if ((tries & (tries - 1)) != 0)
		return false;
	process_offer_relock(&single->offer);
	if (!process_prove(messenger->transport->attachments[0].member, peer->peer.slot, peer->peer.epoch,
			   peer->peer.nonce, &peer->process))
		return false;
	peer->process_state = PROCESS_PROVED;
	return true;
}

void single_copy_refuse_process(struct msg_peer *peer)
{
	peer->process_state = PROCESS_OFF;
}

/*
 * Reads the other's transfer from its own memory, and checks that it is for this end and this message. The
 * transfer can name any memory of the other process.
 */
static bool read_theirs(struct messenger *messenger, struct single_copy *copy, struct msg_peer *peer,
			uint32_t id, uint64_t operation, uint64_t bytes)
{
	const struct member *self = messenger->transport->attachments[0].member;
	struct process_transfer theirs;
	uint64_t sum = 0;

	if (transfer_index(id) >= REGION_TRANSFERS)
		return false;
	enum process_result result = process_read_transfer(&peer->process, transfer_index(id), &theirs);
	if (result == PROCESS_REFUSED)
		single_copy_refuse_process(peer);
	if (result != PROCESS_GOOD || atomic_load_explicit(&theirs.line.id, memory_order_relaxed) != id ||
	    theirs.member != ((uint64_t)self->epoch << 32 | self->slot) || theirs.operation != operation ||
	    theirs.bytes < bytes || theirs.count > BUFFER_PIECES)
		return false;
	for (uint64_t i = 0; i < theirs.count; i++) {
		if (theirs.pieces[i].iov_len > SSIZE_MAX - sum)
			return false;
		sum += theirs.pieces[i].iov_len;
	}
	if (sum < bytes)
		return false;
	copy->process = peer->process;
	buffer_open(&copy->there, theirs.pieces, (size_t)theirs.count);
	return true;
}

/* ---- the sender ---- */

/*
 * The section offset of a buffer in this endpoint's heap, or 0: offset 0 has the section's header and no
 * buffer.
 */
static uint64_t heap_offset_of(const struct messenger *messenger, const struct buffer *buffer,
			       uint64_t length)
{
	if (buffer->count != 1)
		return 0;
	uint64_t offset = heap_find(messenger->transport->heap, buffer->pieces[0].iov_base, length);
	return offset == HEAP_NONE ? 0 : offset;
}

bool single_copy_offer(struct messenger *messenger, struct send *send, struct wire_rendezvous *header)
{
	uint64_t offset = heap_offset_of(messenger, &send->buffer, send->buffer.length);
	struct single_copy *copy = take(messenger, send->to);

	if (copy == NULL)
		return false;
	show(messenger, copy, send->to, send->id, &send->buffer, send->buffer.length, send->buffer.length,
	     offset);
	send->copy = copy;
	header->transfer = copy->own;
	forget_former(send->to);
	/* The peer most likely answers as it did last time. */
	return offset != 0 || process_is_proved(messenger, send->to) || send->to->takes_single;
}

int single_copy_answered(struct messenger *messenger, struct send *send, const struct wire_clear *clear)
{
	struct single_copy *copy = send->copy;
	struct msg_peer *to = send->to;

	to->takes_single = clear->method != WIRE_BY_PIECES;
	if (clear->method == WIRE_BY_PIECES) {
		if (copy != NULL)
			single_copy_release(messenger, copy);
		send->copy = NULL;
		return 0;
	}
	if (copy == NULL || transfer_index(clear->transfer) >= REGION_TRANSFERS ||
	    clear->accepted <= send->sent || !is_where_it_began(messenger, copy, &to->peer))
		return -EPROTO;
	copy->other = clear->transfer;
	copy->first = send->sent;
	copy->end = clear->accepted;
	copy->mine = clear->accepted;
	copy->theirs_claimed = copy->first;
	switch (clear->method) {
	case WIRE_BY_REGION:
		if (clear->offset != 0) {
			copy->view = transfer_view(messenger->transport->attachments[0].region, copy->slot,
						   clear->offset, clear->accepted);
			if (copy->view == NULL)
				return -EPROTO;
			copy->copies = true;
		} else if (heap_offset_of(messenger, &send->buffer, send->buffer.length) == 0) {
			return -EPROTO; /* neither end could copy */
		}
		copy->method = WIRE_BY_REGION;
		break;
	case WIRE_BY_PROCESS:
		copy->copies = process_is_proved(messenger, to) &&
			       read_theirs(messenger, copy, to, clear->transfer, send->id, clear->accepted);
		copy->method = WIRE_BY_PROCESS;
		break;
	default:
		return -EPROTO;
	}
	send->acknowledged = false; /* it completes with the receiver's acknowledgement */
	return 0;
}

/* ---- the receiver ---- */

bool single_copy_accept(struct messenger *messenger, struct receive *receive, uint64_t accepted,
			struct wire_clear *clear)
{
	struct single_copies *single = messenger->single;
	struct msg_peer *from = receive->from;

	if (single == NULL || single->stopped || receive->offered == 0 || accepted <= receive->early ||
	    !from->peer.mapped || !transport_holds_slot(&from->peer))
		return false;
	forget_former(from);
	struct single_copy *copy = take(messenger, from);
	if (copy == NULL)
		return false;
	uint64_t offset = heap_offset_of(messenger, &receive->buffer, accepted);
	copy->view = transfer_source(messenger->transport->attachments[0].region, from->peer.slot,
				     receive->offered, receive->total);
	if (copy->view != NULL || offset != 0) {
		copy->copies = copy->view != NULL;
		copy->method = WIRE_BY_REGION;
	} else if (process_is_proved(messenger, from) &&
		   read_theirs(messenger, copy, from, receive->offered, receive->sender_id, receive->total)) {
		copy->copies = true;
		copy->method = WIRE_BY_PROCESS;
	} else {
		single->free[single->free_count++] = (uint8_t)index_of(messenger, copy);
		return false;
	}
	copy->receive = receive;
	copy->other = receive->offered;
	copy->first = receive->early;
	copy->end = accepted;
	copy->mine = copy->first;
	copy->theirs_claimed = accepted;
	copy->theirs_done = accepted;
	show(messenger, copy, from, receive->sender_id, &receive->buffer, copy->first, 0, 0);
	receive->copy = copy;
	match_append(&single->pulling, &copy->link);
	messenger->copying++;
	clear->method = copy->method;
	clear->transfer = copy->own;
	clear->offset = offset;
	return true;
}
