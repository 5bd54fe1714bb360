/* SPDX-License-Identifier: BSD-3-Clause */
/* detach.c - see detach.h. */
#include "transport/detach.h"

#include "region/leave.h"
#include "region/region_offer.h"
#include "transport/network.h"
#include "transport/region_transport.h"
#include "transport/switch.h"

static bool is_in_use(const struct attachment *attachment)
{
	return !attachment->evicted && !attachment->cut && !attachment->region->left;
}

static enum requested_route own_requested_route(const struct attachment *attachment)
{
	return member_requested_route(attachment->region, attachment->member->slot,
				      attachment->member->epoch);
}

bool transport_is_detaching(const struct peer *peer)
{
	return network_is_detaching(peer);
}

/* ---- meeting ---- */

/* Does another of our regions contain the member with this identity? */
static bool is_in(const struct attachment *attachment, const struct member_identity *said)
{
	const struct region *region = attachment->region;
	uint32_t slot = 0;
	uint32_t epoch = 0;

	if (attachment->base == TRANSPORT_NO_BASE || !is_in_use(attachment))
		return false;
	if (said->region[0] == region->id[0] && said->region[1] == region->id[1])
		return member_confirm(region, said->slot, said->epoch, said->nonce) &&
		       !member_departed(region, said->slot, said->epoch);
	return member_find(region, said, &slot, &epoch) == MEMBER_FOUND;
}

/*
 * A member that shares several regions with us is reached through one of them, and is one peer. A
 * second peer for the same member would conflict with the first when the first switches to the
 * network, where the member has one entry.
 */
static bool is_met_elsewhere(const struct attachment *attachment, uint32_t slot, uint32_t epoch,
			     uint64_t nonce)
{
	const struct transport *transport = attachment->transport;
	const struct member_identity said = member_identity_said(attachment->region, slot, epoch, nonce);

	if (network_has_met(transport, nonce))
		return true;
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		if (&transport->attachments[i] != attachment &&
		    identity_prefers(transport->attachments[i].region, attachment->region,
				     transport->attachments[0].region->id, said.region) &&
		    is_in(&transport->attachments[i], &said))
			return true;
	return false;
}

/*
 * Make the member in `slot` a peer, unless it already is one here or elsewhere. Returns false if
 * that is not possible.
 */
static bool meet(struct attachment *attachment, uint32_t slot)
{
	const struct region *region = attachment->region;
	uint64_t claim = shared_acquire_u64(&region_slot(region, slot)->claim);
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	if ((uint32_t)claim != SLOT_JOINED || slot == attachment->member->slot ||
	    member_is_alias(region, slot))
		return true;
	return transport_peer_in(attachment, slot, (uint32_t)(claim >> 32)) != NULL ||
	       !member_identify(region, slot, &epoch, &nonce) ||
	       is_met_elsewhere(attachment, slot, epoch, nonce) ||
	       transport_meet(attachment->transport, attachment->base + slot, epoch, nonce) != NULL;
}

static bool meet_all(struct attachment *attachment)
{
	bool met = true;

	/*
	 * The members of a region that we reattached to know us by the network. They offer us no
	 * ring before we detach from them.
	 */
	for (uint32_t slot = 0; slot < attachment->region->members && attachment->base != TRANSPORT_NO_BASE;
	     slot++)
		met = meet(attachment, slot) && met;
	return met;
}

static void meet_those_who_leave(struct attachment *attachment)
{
	const struct region *region = attachment->region;

	for (uint32_t slot = 0; slot < region->members && attachment->base != TRANSPORT_NO_BASE; slot++) {
		uint64_t claim = shared_load_u64(&region_slot(region, slot)->claim);
		if (member_requested_route(region, slot, (uint32_t)(claim >> 32)) == ROUTE_LEAVE)
			(void)meet(attachment, slot);
	}
}

/*
 * The manager withdrew its request. Members from which we have already detached are asked to
 * reattach.
 */
static void stay(struct attachment *attachment)
{
	attachment->leaving = false;
	attachment->member->ready = false;
	attachment->welcomes = true;
	network_forget_asking(attachment->transport, attachment);
}

void transport_meet_leavers(struct transport *transport)
{
	if (!network_is_there(transport))
		return;
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		struct attachment *attachment = &transport->attachments[i];
		if (!is_in_use(attachment))
			continue;
		bool leaves = own_requested_route(attachment) == ROUTE_LEAVE;
		if (!leaves && attachment->leaving)
			stay(attachment);
		attachment->leaving = leaves;
		shared_store_u32(&section_header(attachment->region, attachment->member->slot)->windows,
				 region_attend(attachment->region, leaves));
		if (leaves)
			attachment->met_all = meet_all(attachment);
		else
			meet_those_who_leave(attachment);
	}
}

/* ---- detaching ---- */

/*
 * Forget the slot of a peer when neither end has anything outstanding in the region. The region may
 * be unmapped before the peer is gone, so no pointer into the region may remain.
 */
static void forget_slot(struct peer *peer)
{
	static shared_u64 nobody;
	static shared_u32 unheard;      /* rung, and never read */
	static shared_u32 never_asleep; /* read, and never written */
	struct attachment *attachment = peer->attachment;

	if (attachment->aliases != NULL && attachment->aliases[peer->slot] == peer)
		attachment->aliases[peer->slot] = NULL;
	transport_drop_long_ring(peer);
	peer->attachment = NULL;
	transport_unbind_slot(peer);
	peer->alias = false;
	peer->mapped = false;
	peer->claim = &nobody;
	peer->doorbell = &unheard;
	peer->sleeping_word = &never_asleep;
	peer->section = NULL;
	peer->section_bytes = 0;
	peer->in = (struct ring_in){0};
	peer->returns = (struct chunk_returns){0};
	if (peer->network == NULL) { /* the peer failed: nothing is sent to it */
		peer->active_word = &nobody;
		peer->out = (struct ring_out){0};
		peer->account = (struct chunk_account){0};
	}
	if (peer->beyond != NULL)
		network_stay_with(peer);
}

static bool is_requested(const struct peer *peer)
{
	return own_requested_route(peer->attachment) == ROUTE_LEAVE ||
	       member_requested_route(peer->attachment->region, peer->slot, peer->tenure) == ROUTE_LEAVE;
}

/* Is nothing of either direction in the region, and can nothing more get there? */
static bool is_out_of_region(struct transport *transport, const struct peer *peer)
{
	return !peer->switching && !peer->owes_switched && !peer->receiving &&
	       (peer->network != NULL || !peer->sending) &&
	       !transport->user->reaches(transport->context, peer);
}

void transport_detach_peer(struct transport *transport, struct peer *peer)
{
	if (!is_requested(peer) && !network_is_detaching(peer))
		return;
	if (!network_prove(transport, peer) || !is_out_of_region(transport, peer))
		return;
	peer->mapped = false;
	if (network_detach(peer)) {
		/*
		 * If we stay in the region, and detached only because of a request that the manager
		 * may withdraw, we ask the peer to reattach.
		 */
		if (!peer->attachment->leaving)
			peer->attachment->welcomes = true;
		transport_publish_route(transport, peer);
		forget_slot(peer);
	}
}

bool transport_undo_reattach(struct peer *peer)
{
	if (!network_awaits_reattach(peer))
		return false;
	network_reattached(peer);
	forget_slot(peer);
	return true;
}

bool transport_detach_at_once(struct transport *transport, struct peer *peer)
{
	if (!network_attach(transport, peer))
		return false;
	network_enter(peer);
	peer->framed = true;
	forget_slot(peer);
	/* Send HELLO, although there may be nothing else to send. */
	network_ship(peer);
	return peer->state == PEER_PRESENT;
}

/* ---- leaving ---- */

/* Nothing more is expected from this peer through the region. */
static bool is_done_with(const struct peer *peer)
{
	return (peer->state == PEER_FAILED && peer->reported) || peer->failover == FAILOVER_DONE;
}

static bool is_free(struct attachment *attachment)
{
	struct transport *transport = attachment->transport;
	bool free = true;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport->peers[source];
		if (peer == NULL || peer->source != source)
			continue;
		if (peer_is_self(peer))
			free = free && (peer->attachment != attachment ||
					!transport->user->reaches(transport->context, peer));
		else if (peer->attachment == attachment)
			free = free && is_done_with(peer);
		else if (peer->attachment == NULL && peer->state == PEER_PRESENT)
			free = free && !network_owes_detach(peer);
	}
	return free;
}

static void forget_all(struct attachment *attachment)
{
	struct transport *transport = attachment->transport;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer != NULL && peer->attachment == attachment && !peer_is_self(peer))
			forget_slot(peer);
	}
}

void transport_leave_regions(struct transport *transport)
{
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		struct attachment *attachment = &transport->attachments[i];
		if (attachment->leaving && is_in_use(attachment)) {
			attachment->member->ready = attachment->met_all && is_free(attachment);
			if (attachment->member->ready)
				(void)region_leave(attachment->region);
		}
		/*
		 * Only after the region has been left, because a peer that stays uses words in the
		 * region. Another endpoint that shares the mapping may have left the region for all
		 * of them. Until this function runs, our pointers then point into private memory.
		 */
		if (attachment->leaving && attachment->region->left) {
			forget_all(attachment);
			attachment->leaving = false;
		}
	}
}
