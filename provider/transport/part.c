/* SPDX-License-Identifier: BSD-3-Clause */
/* part.c - see part.h. */
#include "transport/part.h"

#include "region/leave.h"
#include "transport/move.h"
#include "transport/network.h"
#include "transport/region_transport.h"

static bool is_in_use(const struct port *port)
{
	return !port->evicted && !port->cut && !port->region->left;
}

static enum member_wish own_wish(const struct port *port)
{
	return member_wish(port->region, port->member->slot, port->member->epoch);
}

bool transport_is_parting(const struct peer *peer)
{
	return network_is_parting(peer);
}

/* ---- meeting ---- */

/* Is the one that says so there as well, in another of our regions? */
static bool is_in(const struct port *port, const struct member_identity *said)
{
	const struct region *region = port->region;
	uint32_t slot = 0;
	uint32_t epoch = 0;

	if (port->base == TRANSPORT_NO_BASE || !is_in_use(port))
		return false;
	if (said->region[0] == region->id[0] && said->region[1] == region->id[1])
		return member_confirm(region, said->slot, said->epoch, said->nonce) &&
		       !member_departed(region, said->slot, said->epoch);
	return member_find(region, said, &slot, &epoch) == MEMBER_FOUND;
}

/*
 * Who shares several regions with us is reached through one of them, and is one peer. A second for the same
 * one would be in the way where the first goes over to the network, in which it has one place.
 */
static bool is_met_elsewhere(const struct port *port, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	const struct transport *transport = port->transport;
	const struct member_identity said = member_identity_said(port->region, slot, epoch, nonce);

	if (network_has_met(transport, nonce))
		return true;
	for (uint32_t i = 0; i < transport->port_count; i++)
		if (&transport->ports[i] != port &&
		    identity_prefers(transport->ports[i].region, port->region, transport->ports[0].region->id,
				     said.region) &&
		    is_in(&transport->ports[i], &said))
			return true;
	return false;
}

/*
 * Who is in `slot`, or was and left for the network; met now if it was not, here or elsewhere. False if it
 * cannot be.
 */
static bool meet(struct port *port, uint32_t slot)
{
	const struct region *region = port->region;
	uint64_t claim = shared_acquire_u64(&region_slot(region, slot)->claim);
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	if ((uint32_t)claim != SLOT_JOINED || slot == port->member->slot || member_is_guest(region, slot))
		return true;
	return transport_peer_in(port, slot, (uint32_t)(claim >> 32)) != NULL ||
	       !member_identify(region, slot, &epoch, &nonce) || is_met_elsewhere(port, slot, epoch, nonce) ||
	       transport_meet(port->transport, port->base + slot, epoch, nonce) != NULL;
}

static bool meet_all(struct port *port)
{
	bool met = true;

	/* Those that we came back to know us by the network: they offer us no ring before we part from them.
	 */
	for (uint32_t slot = 0; slot < port->region->members && port->base != TRANSPORT_NO_BASE; slot++)
		met = meet(port, slot) && met;
	return met;
}

static void meet_those_who_leave(struct port *port)
{
	const struct region *region = port->region;

	for (uint32_t slot = 0; slot < region->members && port->base != TRANSPORT_NO_BASE; slot++) {
		uint64_t claim = shared_load_u64(&region_slot(region, slot)->claim);
		if (member_wish(region, slot, (uint32_t)(claim >> 32)) == WISH_LEAVE)
			(void)meet(port, slot);
	}
}

/* The manager thinks better of it: those that we parted from already are called back. */
static void stay(struct port *port)
{
	port->leaving = false;
	port->member->ready = false;
	port->welcomes = true;
	network_forget_asking(port->transport, port);
}

void transport_meet_leavers(struct transport *transport)
{
	if (!network_is_there(transport))
		return;
	for (uint32_t i = 0; i < transport->port_count; i++) {
		struct port *port = &transport->ports[i];
		if (!is_in_use(port))
			continue;
		bool leaves = own_wish(port) == WISH_LEAVE;
		if (!leaves && port->leaving)
			stay(port);
		port->leaving = leaves;
		if (leaves)
			port->met_all = meet_all(port);
		else
			meet_those_who_leave(port);
	}
}

/* ---- parting ---- */

/*
 * Of a peer that asks the region for nothing and is asked for nothing there. The region may be unmapped
 * before the peer is gone, so nothing that we keep of it points there any more.
 */
static void forget_place(struct peer *peer)
{
	static shared_u64 nobody;
	static shared_u32 unheard;      /* rung and never read */
	static shared_u32 never_asleep; /* read and never written */
	struct port *port = peer->port;

	if (port->guests != NULL && port->guests[peer->slot] == peer)
		port->guests[peer->slot] = NULL;
	peer->port = NULL;
	transport_unbind_slot(peer);
	peer->guest = false;
	peer->mapped = false;
	peer->claim = &nobody;
	peer->doorbell = &unheard;
	peer->sleeping_word = &never_asleep;
	peer->section = NULL;
	peer->section_bytes = 0;
	peer->in = (struct ring_in){0};
	peer->returns = (struct chunk_returns){0};
	if (peer->network == NULL) { /* it failed: nothing is sent to it */
		peer->active_word = &nobody;
		peer->out = (struct ring_out){0};
		peer->account = (struct chunk_account){0};
	}
	if (peer->beyond != NULL)
		network_stay_with(peer);
}

static bool is_wished(const struct peer *peer)
{
	return own_wish(peer->port) == WISH_LEAVE ||
	       member_wish(peer->port->region, peer->slot, peer->tenure) == WISH_LEAVE;
}

/* Nothing of either direction is in the region, or may come to be there. */
static bool is_out_of_region(struct transport *transport, const struct peer *peer)
{
	return !peer->moving && !peer->owes_moved && !peer->receiving &&
	       (peer->network != NULL || !peer->sending) &&
	       !transport->user->reaches(transport->context, peer);
}

void transport_part(struct transport *transport, struct peer *peer)
{
	if (!is_wished(peer) && !network_is_parting(peer))
		return;
	if (!network_prove(transport, peer) || !is_out_of_region(transport, peer))
		return;
	peer->mapped = false;
	if (network_part(peer)) {
		/* Who stays, and parted because of what the manager wanted for a moment, calls it back. */
		if (!peer->port->leaving)
			peer->port->welcomes = true;
		transport_publish_route(transport, peer);
		forget_place(peer);
	}
}

bool transport_undo_entry(struct peer *peer)
{
	if (!network_awaits_entry(peer))
		return false;
	network_entered(peer);
	forget_place(peer);
	return true;
}

bool transport_part_at_once(struct transport *transport, struct peer *peer)
{
	if (!network_attach(transport, peer))
		return false;
	network_enter(peer);
	peer->framed = true;
	forget_place(peer);
	/* It hears who we are, though there may be nothing to send. */
	network_ship(peer);
	return peer->state == PEER_PRESENT;
}

/* ---- leaving ---- */

/* Nothing is expected of it any more by the region's words. */
static bool is_done_with(const struct peer *peer)
{
	return (peer->state == PEER_FAILED && peer->reported) || peer->renewal == RENEWAL_DONE;
}

static bool is_free(struct port *port)
{
	struct transport *transport = port->transport;
	bool free = true;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport->peers[source];
		if (peer == NULL || peer->source != source)
			continue;
		if (peer_is_self(peer))
			free = free &&
			       (peer->port != port || !transport->user->reaches(transport->context, peer));
		else if (peer->port == port)
			free = free && is_done_with(peer);
		else if (peer->port == NULL && peer->state == PEER_PRESENT)
			free = free && !network_owes_part(peer);
	}
	return free;
}

static void forget_all(struct port *port)
{
	struct transport *transport = port->transport;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer != NULL && peer->port == port && !peer_is_self(peer))
			forget_place(peer);
	}
}

void transport_leave_regions(struct transport *transport)
{
	for (uint32_t i = 0; i < transport->port_count; i++) {
		struct port *port = &transport->ports[i];
		if (port->leaving && is_in_use(port)) {
			port->member->ready = port->met_all && is_free(port);
			if (port->member->ready)
				(void)region_leave(port->region);
		}
		/*
		 * Afterwards, and only if it has been left: who stays is called by what he has in the
		 * region. Another endpoint may have ended it, of those that share the mapping; then what
		 * we knew of it points into memory of our own, until we come by here.
		 */
		if (port->leaving && port->region->left) {
			forget_all(port);
			port->leaving = false;
		}
	}
}
