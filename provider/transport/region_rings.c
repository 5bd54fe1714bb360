/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_rings.c - rings of a region that grow while they are too short, and shrink again.
 *
 * A ring that is often full costs its sender turns: ranks that share a core move one ring in each turn.
 * So a sender whose ring was full repeatedly pushes RESIZE, which names a longer ring elsewhere in its
 * arena, and goes on there. When the longer ring was not full for a while, the sender goes back by a
 * RESIZE to the first one, and other peers may use the memory.
 *
 *      first ring    ... │ slot │ slot │ RESIZE │
 *                                          │ position p
 *      long ring                           └──▶ │ slot p + 1 │ slot p + 2 │ ...
 *
 * Positions, laps and credit go on as if nothing happened, so a receiver needs no state for it. A sender
 * moves on only when the receiver has left the memory before.
 *
 * Receivers that never read make no ring grow: a ring is full at most once at each position.
 */
#include "transport/region_transport.h"

/*
 * 512 slots: 32 KiB stay in a first-level cache. Messages between two ranks with a core each take as long as
 * with 128 (docs/decisions/0022); 4 or 8 ranks that share two cores move 1.1 to 1.4 times as many (0037).
 */
#define RING_SLOTS_LONG 512U
/*
 * A ring grows when it was full this often, with fewer than so many periods of LIVENESS_INTERVAL between. It
 * shrinks when it was not full for as long.
 */
#define FULLS_TO_GROW 2U
#define PERIODS_TO_FORGET 4U
/* After a ring has grown, each member without one can still get one of this length, half of the usual. */
#define RING_SLOTS_KEPT 64U

static bool is_long(const struct peer *peer)
{
	return peer->long_ring.slots != 0 && peer->out.mask + 1 == peer->long_ring.slots;
}

/* Has the receiver left the memory before the last move? According to the last known credit. */
static bool has_moved(struct peer *peer)
{
	if (peer->moving && peer->out.position - peer->moved >= ring_unread(&peer->out))
		peer->moving = false;
	return !peer->moving;
}

/* ---- memory ---- */

/* Takes a spare ring, or room behind the last ring. Returns false if there is neither. */
static bool take_memory(struct attachment *attachment, struct peer *peer)
{
	uint64_t others = attachment->region->members - attachment->rings;
	uint64_t kept = others * RING_SLOTS_KEPT * sizeof(struct ring_slot);
	uint64_t room = attachment->ring_end - attachment->ring_next;
	uint32_t slots = RING_SLOTS_LONG;

	for (uint32_t i = attachment->spare_count; i-- > 0;)
		if (attachment->spare_rings[i].slots > peer->out.mask + 1) {
			peer->long_ring = attachment->spare_rings[i];
			attachment->spare_rings[i] = attachment->spare_rings[--attachment->spare_count];
			return true;
		}
	while (slots > peer->out.mask + 1 && slots * sizeof(struct ring_slot) + kept > room)
		slots /= 2;
	if (slots <= peer->out.mask + 1)
		return false;
	peer->long_ring = (struct long_ring){.offset = attachment->ring_next, .slots = slots};
	attachment->ring_next += slots * (uint32_t)sizeof(struct ring_slot);
	attachment->ring_slots_kept = RING_SLOTS_KEPT;
	transport_publish_arena_used(attachment);
	return true;
}

void transport_drop_long_ring(struct peer *peer)
{
	peer->moving = false;
	peer->fulls = 0;
	if (peer->long_ring.slots == 0)
		return;
	struct attachment *attachment = peer->attachment;
	/* Always true, unless more rings were too short for their next user than there are members. */
	if (attachment->spare_count < attachment->region->members)
		attachment->spare_rings[attachment->spare_count++] = peer->long_ring;
	peer->long_ring.slots = 0;
	attachment->transport->long_rings--;
}

/* ---- the sender ---- */

static void move(struct transport *transport, struct peer *peer, uint32_t offset, uint32_t slots)
{
	const struct attachment *attachment = peer->attachment;
	struct ring_slot *memory = (struct ring_slot *)(void *)section_view(
		attachment->region, attachment->member->slot, offset, slots * sizeof(struct ring_slot));

	ring_clear(memory, slots, peer->out.position + 1);
	transport->user->resize(transport->context, peer, offset, slots);
	ring_out_move(&peer->out, memory, slots);
	peer->moved = peer->out.position;
	peer->moving = true;
	transport->next_slot = NULL;
}

void transport_note_full(struct transport *transport, struct peer *peer)
{
	if (transport->period - peer->full_period >= PERIODS_TO_FORGET)
		peer->fulls = 0;
	else if (peer->fulls > 0 && peer->full_at == peer->out.position)
		return;
	peer->full_period = transport->period;
	peer->full_at = peer->out.position;
	peer->fulls++;
}

void transport_lengthen(struct transport *transport, struct peer *peer)
{
	struct attachment *attachment = peer->attachment;

	/* Without room for the RESIZE, the next call moves the ring. */
	if (peer->fulls < FULLS_TO_GROW || !ring_has_room(&peer->out, 1))
		return;
	peer->fulls = 0;
	if (peer->network != NULL || attachment == NULL || is_long(peer) || !has_moved(peer) ||
	    !attachment_holds_slot(attachment))
		return;
	if (peer->long_ring.slots == 0) {
		if (!take_memory(attachment, peer))
			return;
		transport->long_rings++;
	}
	move(transport, peer, peer->long_ring.offset, peer->long_ring.slots);
}

static void shorten(struct transport *transport, struct peer *peer)
{
	const struct attachment *attachment = peer->attachment;
	uint32_t slots = attachment->ring_slots_of[peer->slot];

	if (transport->period - peer->full_period < PERIODS_TO_FORGET || !attachment_holds_slot(attachment) ||
	    ring_credit(&peer->out) != RING_CREDIT_OK || !has_moved(peer))
		return;
	if (!is_long(peer))
		transport_drop_long_ring(peer);
	else if (ring_unread(&peer->out) < slots)
		move(transport, peer, attachment->ring_of[peer->slot], slots);
}

void transport_shorten_rings(struct transport *transport)
{
	uint32_t left = transport->long_rings;

	transport->period++;
	for (uint32_t source = 0; source < transport->peer_end && left > 0; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer == NULL || peer->long_ring.slots == 0)
			continue;
		left--;
		if (peer->sending && peer->state == PEER_PRESENT && !peer->switching &&
		    peer->network == NULL && !transport_is_failing_over(peer))
			shorten(transport, peer);
	}
}

/* ---- the receiver ---- */

int transport_take_resize(struct peer *peer, uint64_t offset, uint32_t slots)
{
	const struct ring_slot *memory = NULL;

	if (!peer->framed && peer->attachment != NULL)
		memory = transport_named_ring(peer->attachment->region, peer->slot, offset, slots);
	if (memory == NULL)
		return -EPROTO;
	ring_in_move(&peer->in, memory, slots);
	return 1;
}
