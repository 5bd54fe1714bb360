/* SPDX-License-Identifier: BSD-3-Clause */
/* region_connect.c - rings of a region: offering a ring to a peer, and accepting offered rings. */
#include "transport/network.h"
#include "transport/region_transport.h"

#include <sys/random.h>

/* A ring of 128 slots holds a window of 64 small messages twice. Later peers get smaller rings. */
#define RING_SLOTS_USUAL 128U

/*
 * Is there room for a ring of `count` slots, with the slots left that are kept for each member that
 * has no ring?
 */
static bool ring_fits(const struct attachment *attachment, uint32_t count)
{
	uint64_t others = attachment->region->members - attachment->rings - 1;
	uint64_t needed = (count + others * attachment->ring_slots_kept) * sizeof(struct ring_slot);

	return needed <= attachment->ring_end - attachment->ring_next;
}

const struct ring_slot *transport_named_ring(const struct region *region, uint32_t slot, uint64_t offset,
					     uint32_t slots)
{
	if (slots < RING_SLOTS_MIN || slots > RING_SLOTS_MAX || (slots & (slots - 1)) != 0 ||
	    offset % REGION_LINE != 0)
		return NULL;
	return (const struct ring_slot *)(const void *)section_view(region, slot, offset,
								    slots * sizeof(struct ring_slot));
}

int transport_connect(struct peer *peer)
{
	if (peer->network != NULL)
		return network_connect(peer);

	struct attachment *attachment = peer->attachment;
	struct region *region = attachment->region;
	uint32_t self = attachment->member->slot;
	struct connection_line *line = section_connection(region, self, peer->slot);

	if (!transport_holds_slot(peer))
		return -EAGAIN;
	uint32_t slots = RING_SLOTS_USUAL;
	uint32_t id = 0;

	if (attachment->ring_of[peer->slot] == 0) {
		while (slots > RING_SLOTS_MIN && !ring_fits(attachment, slots))
			slots /= 2;
		if (attachment->ring_end - attachment->ring_next < slots * sizeof(struct ring_slot))
			return -ENOMEM;
		attachment->ring_of[peer->slot] = attachment->ring_next;
		attachment->ring_slots_of[peer->slot] = slots;
		attachment->ring_next += slots * (uint32_t)sizeof(struct ring_slot);
		attachment->rings++;
		transport_publish_arena_used(attachment);
	}
	slots = attachment->ring_slots_of[peer->slot];
	transport_drop_long_ring(peer);
	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		id = (uint32_t)monotonic_now();
	id |= CONNECTION_OPEN; /* never zero */

	/*
	 * Withdraw the ring that was offered to a former occupant of the slot, then offer the new
	 * ring.
	 */
	shared_store_u32(&line->id, 0);
	shared_fence_stores();
	shared_bytes *memory =
		section_view(region, self, attachment->ring_of[peer->slot], slots * sizeof(struct ring_slot));
	shared_clear(memory, slots * sizeof(struct ring_slot));
	ring_out_open(&peer->out, (struct ring_slot *)(void *)memory, slots, peer->account.credit, id);
	ring_out_begin(&peer->out);
	peer->account.connection = id;
	shared_store_u32(&line->receiver_epoch, peer->tenure);
	shared_store_u64(&line->ring, attachment->ring_of[peer->slot]);
	shared_store_u32(&line->slots, slots);
	/* Pairs with the acquire load in accept_connection(). */
	shared_release_u32(&line->id, id);
	transport_ring(peer);
	peer->sending = true;
	return 0;
}

/*
 * The member in `slot` rang. Accept its ring if one is offered to us that we have not accepted yet.
 */
static void accept_connection(struct attachment *attachment, uint32_t slot)
{
	struct transport *transport = attachment->transport;
	struct region *region = attachment->region;
	const struct member *self = attachment->member;
	const struct connection_line *line = section_connection(region, slot, self->slot);
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	if (!member_identify(region, slot, &epoch, &nonce))
		return;
	/* Pairs with the release store in transport_connect(). */
	uint32_t id = shared_acquire_u32(&line->id);
	uint32_t receiver_epoch = shared_load_u32(&line->receiver_epoch);
	uint64_t offset = shared_load_u64(&line->ring);
	uint32_t slots = shared_load_u32(&line->slots);
	bool ended = shared_load_u32(&line->ended) == self->epoch;
	/* The line is changing. Its writer rings when it is done. */
	shared_fence_loads();
	if (shared_load_u32(&line->id) != id || !member_is_intact(region, slot, epoch))
		return;
	/* Was the offer withdrawn, or made to a former occupant of our slot? */
	if (!ended && (id == 0 || receiver_epoch != self->epoch))
		return;
	struct peer *peer = transport_peer_in(attachment, slot, epoch);
	if (peer == NULL && attachment->base != TRANSPORT_NO_BASE)
		peer = transport_meet(transport, attachment->base + slot, epoch, nonce);
	struct credit_line *credit = section_credit(region, self->slot, slot);

	if (peer == NULL || peer->attachment != attachment)
		return;
	if (peer->failover != FAILOVER_NONE)
		return; /* the words in the region have no effect any more */
	if (ended) {
		transport_break(transport, peer, -ECONNABORTED,
				"it took this process for hostile, and reads no more");
		return;
	}
	if (peer->state == PEER_FAILED) {
		ring_refuse(credit, id);
		return;
	}
	if (peer->receiving && peer->in.connection == id) {
		transport_warm(transport, peer);
		return;
	}
	/*
	 * The ring that the peer left for the network. It withdraws the offer when it learns that
	 * we have read the ring to its end.
	 */
	if (peer->framed && network_left_ring(peer, id))
		return;
	const struct ring_slot *memory = transport_named_ring(region, slot, offset, slots);
	if (peer->receiving || peer->framed || (id & CONNECTION_OPEN) == 0 || memory == NULL) {
		transport_fail(transport, peer, -EPROTO, "it offered an invalid ring");
		return;
	}
	ring_in_open(&peer->in, memory, slots, credit, id);
	ring_in_begin(&peer->in);
	peer->returns = (struct chunk_returns){.credit = credit};
	for (uint32_t word = 0; word < CHUNK_WORDS; word++)
		shared_store_u64(&credit->returned[word], 0);
	/* Release: if the sender sees its id, it also sees the cleared bits. */
	ring_publish(&peer->in);
	peer->receiving = true;
	transport_warm(transport, peer);
}

void transport_take_first_rings(struct attachment *attachment)
{
	for (uint32_t slot = 0; slot < attachment->region->members; slot++) {
		/*
		 * Read the doorbell before the line: a peer that offers a ring afterwards rings
		 * again.
		 */
		attachment->doorbells_seen[slot] = shared_acquire_u32(
			section_doorbell(attachment->region, attachment->member->slot, slot));
		accept_connection(attachment, slot);
	}
}

uint32_t transport_read_doorbells(struct attachment *attachment)
{
	uint32_t self = attachment->member->slot;
	uint32_t heard = 0;

	if (!attachment_holds_slot(attachment))
		return 0;
	for (uint32_t slot = 0; slot < attachment->region->members; slot++) {
		uint32_t rung = shared_acquire_u32(section_doorbell(attachment->region, self, slot));
		if (rung == attachment->doorbells_seen[slot])
			continue;
		attachment->doorbells_seen[slot] = rung;
		accept_connection(attachment, slot);
		heard++;
	}
	return heard;
}
