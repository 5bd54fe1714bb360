/* SPDX-License-Identifier: BSD-3-Clause */
/* switch.c - see switch.h. */
#include "transport/switch.h"

#include "region/route.h"
#include "transport/detach.h"
#include "transport/failover.h"
#include "transport/network.h"
#include "transport/region_transport.h"
#include "transport/states.h"

/*
 * ---- the manager's request, and the current transport ----
 */

/*
 * A detach that has begun goes on to its end, whatever the manager requests meanwhile. Then the
 * pair reattaches.
 */
static bool wants_network(const struct peer *peer)
{
	const struct region *region = peer->attachment->region;
	const struct member *self = peer->attachment->member;

	return transport_is_detaching(peer) ||
	       member_requested_route(region, peer->slot, peer->tenure) != ROUTE_REGION ||
	       member_requested_route(region, self->slot, self->epoch) != ROUTE_REGION;
}

/* May one end access the other's memory? Not after a request. */
static void settle_mapped(struct peer *peer, bool wanted)
{
	peer->mapped = transport_may_map(peer) && !wanted && peer->network == NULL && !peer->framed &&
		       !peer->switching;
}

/*
 * Copies to ourselves also use words in the region. They end at the request to leave. After
 * leaving, these words are in private memory, and the slot in the region no longer belongs to us.
 */
static void settle_self(struct peer *peer)
{
	const struct member *self = peer->attachment->member;

	peer->mapped = transport_may_map(peer) && member_requested_route(peer->attachment->region, self->slot,
									 self->epoch) != ROUTE_LEAVE;
}

static enum connection_route route_of(const struct transport *transport, const struct peer *peer)
{
	if (peer->failover != FAILOVER_NONE)
		return CONNECTION_ENDED;
	if (peer->switching)
		return CONNECTION_SWITCHING;
	if (peer->network != NULL)
		/* While the other end's memory is being copied from, the region is still needed. */
		return transport->user->reaches(transport->context, peer) ? CONNECTION_SWITCHING
									  : CONNECTION_BY_NETWORK;
	if (!peer->sending || !wants_network(peer))
		return CONNECTION_BY_REGION;
	return network_is_unreachable(peer) ? CONNECTION_STAYS : CONNECTION_SWITCHING;
}

void transport_publish_route(const struct transport *transport, const struct peer *peer)
{
	const struct attachment *attachment = peer->attachment;
	struct connection_line *line =
		section_connection(attachment->region, attachment->member->slot, peer->slot);

	if (attachment_holds_slot(attachment))
		shared_store_u32(&line->route, route_of(transport, peer));
}

/* Counts the switches in progress, in either direction. */
static void count(struct transport *transport, int change)
{
	transport->switches += (uint32_t)change;
	transport->attention += (uint32_t)change;
}

/* ---- the sender ---- */

/*
 * The request cannot be satisfied. Reported once, because the command that made the request reports
 * it for each member.
 */
static void refuse(struct transport *transport, const struct peer *peer)
{
	struct region_error notice;

	const struct region *region = peer->attachment->region;

	if (transport->switches_refused || region->notice == NULL)
		return;
	transport->switches_refused = true;
	(void)region_fail(&notice, 0,
			  "the member in slot %u is requested to use the network, but it has no network "
			  "address that this process can use: it is still reached through the region. "
			  "VICINAL_NET must choose the same provider everywhere",
			  peer->slot);
	region->notice(notice.text);
}

static void begin(struct transport *transport, struct peer *peer)
{
	if (!transport_room(transport, peer, 1))
		return;
	transport->user->switch_route(transport->context, peer);
	peer->switching = true;
	peer->out.limit = peer->out.position;
	count(transport, 1);
	transport_publish_route(transport, peer);
}

static void consider(struct transport *transport, struct peer *peer)
{
	bool wanted = wants_network(peer);

	settle_mapped(peer, wanted);
	if (!wanted && peer->network == NULL)
		network_forget_proof(peer);
	if (wanted && !network_prove(transport, peer)) {
		if (network_is_unreachable(peer))
			refuse(transport, peer);
		return;
	}
	/*
	 * The peer may not expect slots in the region yet. If either end has begun to detach, the
	 * peer may also have forgotten the region already: the pair detaches, and reattaches there.
	 */
	if (!wanted && peer->network != NULL &&
	    (network_awaits_reattach(peer) || transport_is_detaching(peer)))
		return;
	if (peer->sending && !peer->switching && wanted != (peer->network != NULL))
		begin(transport, peer);
}

void transport_begin_switches(struct transport *transport)
{
	transport_meet_leavers(transport);
	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer == NULL || peer->state == PEER_FAILED || peer->failover != FAILOVER_NONE ||
		    peer->attachment->evicted)
			continue;
		if (peer_is_self(peer)) {
			settle_self(peer);
			continue;
		}
		consider(transport, peer);
		transport_publish_route(transport, peer);
		transport_detach_peer(transport, peer);
	}
	transport_leave_regions(transport);
}

static void leave_region(struct peer *peer)
{
	const struct attachment *attachment = peer->attachment;

	transport_drop_long_ring(peer);

	/* The ring no longer exists: a new member that reads the line must not accept it. */
	shared_store_u32(&section_connection(attachment->region, attachment->member->slot, peer->slot)->id,
			 0);
	network_enter(peer);
}

static void return_to_region(struct transport *transport, struct peer *peer)
{
	peer->network = NULL;
	/* The peer chose this instead of detaching. */
	network_stop_detaching(peer);
	transport_send_by_region(peer);
	/*
	 * There is room: for the ring that existed before or, with a peer in a region that we
	 * joined later, for a smallest ring, which transport_connect() reserves for every member.
	 */
	if (transport_connect(peer) != 0)
		transport_fail(transport, peer, -ENOMEM, "there is no room in the region to return to it");
}

/* Was our last slot taken, and were all our chunks returned? */
static bool is_taken(struct transport *transport, struct peer *peer)
{
	enum ring_credit_result credit = ring_credit(&peer->out);
	bool all = peer->out.limit == peer->out.position + peer->out.mask + 1;

	peer->out.limit = peer->out.position;
	if (credit == RING_CREDIT_VIOLATION)
		transport_fail(transport, peer, -EPROTO, "it gave impossible credit");
	else if (credit == RING_CREDIT_CLOSED)
		transport_break(transport, peer, -ECONNABORTED,
				"it took this process for dead or hostile, and reads no more");
	if (credit != RING_CREDIT_OK || !all)
		return false;
	/* The core may still have frames that were taken. Then the acknowledgement comes later. */
	if (peer->network != NULL && !network_has_switched(peer))
		return false;
	if (chunk_collect(peer->pool, &peer->account) < 0 ||
	    (peer->account.outstanding > 0 && peer->network == NULL)) {
		transport_fail(transport, peer, -EPROTO,
			       "it did not return chunks that it can no longer have");
		return false;
	}
	return peer->account.outstanding == 0;
}

static void go_on(struct transport *transport, struct peer *peer)
{
	if (peer->owes_switched && network_send_switched(peer)) {
		peer->owes_switched = false;
		count(transport, -1);
	}
	if (!peer->switching || !is_taken(transport, peer))
		return;
	peer->switching = false;
	count(transport, -1);
	if (peer->network == NULL)
		leave_region(peer);
	else
		return_to_region(transport, peer);
	settle_mapped(peer, wants_network(peer));
	transport_publish_route(transport, peer);
}

void transport_continue_switches(struct transport *transport)
{
	for (uint32_t source = 0; source < transport->peer_end && transport->switches > 0; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer == NULL || peer->state == PEER_FAILED)
			continue;
		if (transport_is_failing_over(peer))
			transport_continue_failover(transport, peer);
		else if (peer->switching || peer->owes_switched)
			go_on(transport, peer);
	}
}

void transport_end_switch(struct transport *transport, struct peer *peer)
{
	count(transport,
	      -(int)peer->switching - (int)peer->owes_switched - (int)transport_is_failing_over(peer));
	peer->switching = false;
	peer->owes_switched = false;
	peer->mapped = false;
	if (transport_is_failing_over(peer))
		peer_set_failover(peer, FAILOVER_DONE);
}

/* ---- the receiver ---- */

/* From the region to the network. */
static void leave_ring(struct transport *transport, struct peer *peer)
{
	if (!network_attach(transport, peer)) {
		transport_fail(transport, peer, -EPROTO,
			       "it switches to the network, which does not reach it");
		return;
	}
	if (transport->user->settle(transport->context, peer) != 0) {
		transport_fail(transport, peer, -ENOMEM, "it sent more than memory can hold");
		return;
	}
	/*
	 * All data is out of the peer's chunks. This store tells the peer so; pairs with the
	 * acquire load in is_taken().
	 */
	peer->in.position++;
	ring_publish(&peer->in);
	network_leave_ring(peer);
	transport_stop_reading(transport, peer);
	peer->framed = true;
	peer->mapped = false;
}

/*
 * From the network to the region: the peer offers its ring when it has received this
 * acknowledgement.
 */
static void leave_frames(struct transport *transport, struct peer *peer)
{
	peer->framed = false;
	peer->gone = 0;
	network_reattached(peer);
	network_stop_detaching(peer);
	transport_receive_by_region(peer);
	if (!peer->owes_switched)
		count(transport, 1);
	peer->owes_switched = true;
}

void transport_take_switch(struct transport *transport, struct peer *peer)
{
	if (peer->attachment == NULL || peer_is_self(peer))
		transport_fail(transport, peer, -EPROTO, "it switches, and no other transport reaches it");
	else if (peer->framed)
		leave_frames(transport, peer);
	else
		leave_ring(transport, peer);
}

void transport_end_slots(struct transport *transport, struct peer *peer, int result)
{
	if (result == TRANSPORT_SWITCHES)
		transport_take_switch(transport, peer);
	else if (result == TRANSPORT_HOLDS)
		peer->held = peer->in.position + 1;
	else
		transport_fail(transport, peer, result,
			       result == -ENOMEM ? "it sent more than memory can hold"
						 : "it broke the protocol");
}
