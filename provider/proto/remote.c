/* SPDX-License-Identifier: BSD-3-Clause */
/* remote.c - one-sided operations: slots of both sides, progress, failed peers. */
#include "proto/remote.h"

#include <stdlib.h>

#include "proto/messenger.h"

/* In one poll, over all operations, so that arriving slots are not delayed. */
#define PIECES_PER_POLL 4U

static struct msg_peer *of_answering(struct match_link *link)
{
	return (struct msg_peer *)(void *)((char *)link - offsetof(struct msg_peer, remote) -
					   offsetof(struct remote_peer, answering));
}

uint32_t remote_slots(uint32_t length)
{
	if (length <= WIRE_INLINE_BYTES)
		return 1;
	return 1 + (length - WIRE_INLINE_BYTES + WIRE_CONTINUATION_BYTES - 1) / WIRE_CONTINUATION_BYTES;
}

void remote_push(struct peer *peer, uint64_t control, uint64_t word, const void *header,
		 uint32_t header_length, const unsigned char *bytes, uint32_t length)
{
	struct ring_out *ring = &peer->out;
	struct ring_slot *first = ring_next(ring, 0);
	uint32_t part =
		WIRE_INLINE_BYTES - header_length < length ? WIRE_INLINE_BYTES - header_length : length;
	uint32_t slots = 1;

	shared_store_u64(&first->word, word);
	copy_small_out(first->payload, header, header_length);
	copy_small_out(first->payload + header_length, bytes, part);
	for (uint32_t rest = length - part; rest > 0; slots++) {
		bytes += part;
		part = rest < WIRE_CONTINUATION_BYTES ? rest : WIRE_CONTINUATION_BYTES;
		struct ring_slot *slot = ring_next(ring, slots);
		copy_small_out((shared_bytes *)&slot->word, bytes, part);
		ring_stage(ring, slots, control_word(WIRE_CONTINUATION, 0, 0));
		rest -= part;
	}
	ring_push(ring, control, slots);
	transport_wake(peer);
}

int remote_take(const struct ring_in *ring, const struct ring_slot *slot, uint32_t skip, unsigned char *bytes,
		uint32_t length)
{
	uint32_t first = WIRE_INLINE_BYTES - skip < length ? WIRE_INLINE_BYTES - skip : length;

	copy_small_in(bytes, slot->payload + skip, first);
	return read_continuations(ring, bytes, first, length);
}

int remote_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		  const struct ring_slot *slot)
{
	switch (control_kind(control)) {
	case WIRE_WRITE:
	case WIRE_WRITE_CHUNK:
	case WIRE_READ:
	case WIRE_ATOMIC:
	case WIRE_ATOMIC_CHUNK:
		return remote_carry_out(messenger, from, control, slot);
	case WIRE_REPLY:
	case WIRE_REPLY_CHUNK:
	case WIRE_DONE:
		return remote_answered(messenger, from, control, slot);
	case WIRE_CORE_WRITE:
	case WIRE_CORE_READ:
	case WIRE_RETURN:
		return remote_core_arrive(messenger, from, control, slot);
	case WIRE_GRANT:
	case WIRE_ENDED:
		return remote_core_answered(messenger, from, control, slot);
	default:
		return -EPROTO;
	}
}

/* Returns the number of pieces sent. */
uint32_t remote_work(struct messenger *messenger)
{
	uint32_t budget = PIECES_PER_POLL;

	for (struct match_link *link = messenger->remote_answering.next;
	     link != &messenger->remote_answering;) {
		struct msg_peer *to = of_answering(link);
		link = link->next;
		if (!is_failed(to) && remote_answer(messenger, to)) {
			match_unlink(&to->remote.answering);
			to->remote.is_answering = false;
			messenger->remote_pending--;
		}
	}
	for (struct match_link *link = messenger->remote_pumping.next;
	     link != &messenger->remote_pumping && budget > 0;) {
		struct remote_operation *operation = (struct remote_operation *)(void *)link;
		link = link->next;
		if (!is_failed(operation->to))
			budget = remote_pump(messenger, operation, budget);
	}
	return PIECES_PER_POLL - budget;
}

/* ---- failed peers ---- */

void remote_forget(struct messenger *messenger, struct msg_peer *peer)
{
	struct remote_peer *remote = &peer->remote;

	while (remote->owed != NULL) {
		struct owed_answer *owed = remote->owed;
		remote->owed = owed->next;
		free(owed);
	}
	free(remote->expected);
	free(remote->exposed);
	if (remote->is_answering) {
		match_unlink(&remote->answering);
		messenger->remote_pending--;
	}
	*remote = (struct remote_peer){0};
}

static bool fail_operations(struct messenger *messenger, struct match_link *head, const struct msg_peer *to)
{
	bool any = false;

	for (struct match_link *link = head->next; link != head;) {
		struct remote_operation *operation = (struct remote_operation *)(void *)link;
		link = link->next;
		if (operation->to != to)
			continue;
		any = true;
		operation->error = -to->peer.failure;
		operation->outstanding = 0;
		operation->sent_all = true;
		if (head == &messenger->remote_pumping) {
			match_unlink(&operation->link);
			match_append(&messenger->remote_awaiting, &operation->link);
			messenger->remote_pending--;
		}
		remote_end_if_over(messenger, operation, to->peer.reason);
	}
	return any;
}

bool remote_fail(struct messenger *messenger, struct msg_peer *peer)
{
	remote_forget(messenger, peer);
	remote_fail_grants(messenger, peer);
	bool any = remote_core_fail(messenger, peer);
	any |= fail_operations(messenger, &messenger->remote_pumping, peer);
	any |= fail_operations(messenger, &messenger->remote_awaiting, peer);
	return any;
}

static bool concerns(const struct match_link *head, const struct msg_peer *to, bool sends)
{
	for (const struct match_link *link = head->next; link != head; link = link->next)
		if ((sends ? ((const struct send *)(const void *)link)->to
			   : ((const struct remote_operation *)(const void *)link)->to) == to)
			return true;
	return false;
}

bool messenger_is_quiet(const struct messenger *messenger, const struct msg_peer *to)
{
	return to->queue.count == 0 && !concerns(&messenger->pumping, to, true) &&
	       !concerns(&messenger->awaiting, to, true) &&
	       !concerns(&messenger->remote_pumping, to, false) &&
	       !concerns(&messenger->remote_awaiting, to, false) &&
	       !concerns(&messenger->remote_by_core, to, false);
}
