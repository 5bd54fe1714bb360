/* SPDX-License-Identifier: BSD-3-Clause */
/* move.c - see move.h. */
#include "path/move.h"

#include "path/network.h"
#include "path/part.h"
#include "path/region_path.h"
#include "path/renew.h"
#include "path/states.h"
#include "region/detach.h"

/* ---- what the manager wants, and what there is ---- */

/* A parting that began goes on to its end, whatever the manager wants by now: then they meet again. */
static bool wants_network(const struct peer *peer)
{
	const struct region *region = peer->port->region;
	const struct member *self = peer->port->member;

	return path_is_parting(peer) || member_wish(region, peer->slot, peer->tenure) != WISH_REGION ||
	       member_wish(region, self->slot, self->epoch) != WISH_REGION;
}

/* May one end reach into the other's memory? Not from the wish on. */
static void settle_mapped(struct peer *peer, bool wanted)
{
	peer->mapped =
		path_may_map(peer) && !wanted && peer->network == NULL && !peer->framed && !peer->moving;
}

/*
 * What we say to ourselves is copied by words of the region as well: not from the wish to leave on, and not
 * afterwards, when those words are our own memory and the region's slot is not ours.
 */
static void settle_self(struct peer *peer)
{
	const struct member *self = peer->port->member;

	peer->mapped =
		path_may_map(peer) && member_wish(peer->port->region, self->slot, self->epoch) != WISH_LEAVE;
}

static enum connection_way way_of(const struct path *path, const struct peer *peer)
{
	if (peer->renewal != RENEWAL_NONE)
		return CONNECTION_ENDED;
	if (peer->moving)
		return CONNECTION_MOVES;
	if (peer->network != NULL)
		/* While the other's memory is copied from, the region is still needed. */
		return path->user->reaches(path->context, peer) ? CONNECTION_MOVES : CONNECTION_BY_NETWORK;
	if (!peer->sending || !wants_network(peer))
		return CONNECTION_BY_REGION;
	return network_is_hopeless(peer) ? CONNECTION_STAYS : CONNECTION_MOVES;
}

void path_publish_way(const struct path *path, const struct peer *peer)
{
	const struct port *port = peer->port;
	struct connection_line *line = section_connection(port->region, port->member->slot, peer->slot);

	if (path_keeps_place(port))
		shared_store_u32(&line->way, way_of(path, peer));
}

/* The moves under way, of either direction. */
static void count(struct path *path, int change)
{
	path->moves += (uint32_t)change;
	path->attention += (uint32_t)change;
}

/* ---- the sender ---- */

/* What was asked for cannot be: said once, since the command that asked says it for each. */
static void refuse(struct path *path, const struct peer *peer)
{
	struct region_error notice;

	const struct region *region = peer->port->region;

	if (path->moves_refused || region->notice == NULL)
		return;
	path->moves_refused = true;
	(void)region_fail(
		&notice, 0,
		"the member in slot %u is to be reached over the network, but it has no address there "
		"that this process can use: it is reached through the region still (VICINAL_NET must "
		"choose the same provider everywhere)",
		peer->slot);
	region->notice(notice.text);
}

static void begin(struct path *path, struct peer *peer)
{
	if (!path_room(path, peer, 1))
		return;
	path->user->move(path->context, peer);
	peer->moving = true;
	peer->out.limit = peer->out.position;
	count(path, 1);
	path_publish_way(path, peer);
}

static void consider(struct path *path, struct peer *peer)
{
	bool wanted = wants_network(peer);

	settle_mapped(peer, wanted);
	if (!wanted && peer->network == NULL)
		network_forget_proof(peer);
	if (wanted && !network_prove(path, peer)) {
		if (network_is_hopeless(peer))
			refuse(path, peer);
		return;
	}
	/*
	 * It is not known yet whether the other expects that. Nor if one of us said that it parts: the other
	 * may have forgotten the region already. They part then, and meet there again.
	 */
	if (!wanted && peer->network != NULL && (network_awaits_entry(peer) || path_is_parting(peer)))
		return;
	if (peer->sending && !peer->moving && wanted != (peer->network != NULL))
		begin(path, peer);
}

void path_begin_moves(struct path *path)
{
	path_meet_leavers(path);
	for (uint32_t source = 0; source < path->peer_end; source++) {
		struct peer *peer = path_neighbour(path, source);
		if (peer == NULL || peer->state == PEER_FAILED || peer->renewal != RENEWAL_NONE ||
		    peer->port->evicted)
			continue;
		if (peer_is_self(peer)) {
			settle_self(peer);
			continue;
		}
		consider(path, peer);
		path_publish_way(path, peer);
		path_part(path, peer);
	}
	path_leave_regions(path);
}

static void leave_region(struct peer *peer)
{
	const struct port *port = peer->port;

	/* The ring is not there any more: a newcomer that reads the line takes none. */
	shared_store_u32(&section_connection(port->region, port->member->slot, peer->slot)->id, 0);
	network_enter(peer);
}

static void return_to_region(struct path *path, struct peer *peer)
{
	peer->network = NULL;
	/* The other took this instead of parting. */
	network_stop_parting(peer);
	path_aim_at_region(peer);
	/*
	 * There is room: that of the ring that there was before; or, of one that is met in a region we came
	 * to later, that of the smallest, which path_connect() leaves for every member.
	 */
	if (path_connect(peer) != 0)
		path_fail(path, peer, -ENOMEM, "there is no room in the region to return to");
}

/* Is our last slot taken, and all that we had lent given back? */
static bool is_taken(struct path *path, struct peer *peer)
{
	enum ring_credit_result credit = ring_credit(&peer->out);
	bool all = peer->out.limit == peer->out.position + peer->out.mask + 1;

	peer->out.limit = peer->out.position;
	if (credit == RING_CREDIT_VIOLATION)
		path_fail(path, peer, -EPROTO, "it gave credit that cannot be");
	else if (credit == RING_CREDIT_CLOSED)
		path_break(path, peer, -ECONNABORTED,
			   "it took us for dead or for hostile, and reads no more");
	if (credit != RING_CREDIT_OK || !all)
		return false;
	/* The core may still have what is taken: then its word comes later. */
	if (peer->network != NULL && !network_has_moved(peer))
		return false;
	if (chunk_collect(peer->pool, &peer->account) < 0 ||
	    (peer->account.lent > 0 && peer->network == NULL)) {
		path_fail(path, peer, -EPROTO, "it did not give back what it cannot have any more");
		return false;
	}
	return peer->account.lent == 0;
}

static void go_on(struct path *path, struct peer *peer)
{
	if (peer->owes_moved && network_tell_moved(peer)) {
		peer->owes_moved = false;
		count(path, -1);
	}
	if (!peer->moving || !is_taken(path, peer))
		return;
	peer->moving = false;
	count(path, -1);
	if (peer->network == NULL)
		leave_region(peer);
	else
		return_to_region(path, peer);
	settle_mapped(peer, wants_network(peer));
	path_publish_way(path, peer);
}

void path_go_on_moving(struct path *path)
{
	for (uint32_t source = 0; source < path->peer_end && path->moves > 0; source++) {
		struct peer *peer = path_neighbour(path, source);
		if (peer == NULL || peer->state == PEER_FAILED)
			continue;
		if (path_is_renewing(peer))
			path_go_on_renewing(path, peer);
		else if (peer->moving || peer->owes_moved)
			go_on(path, peer);
	}
}

void path_end_move(struct path *path, struct peer *peer)
{
	count(path, -(int)peer->moving - (int)peer->owes_moved - (int)path_is_renewing(peer));
	peer->moving = false;
	peer->owes_moved = false;
	peer->mapped = false;
	if (path_is_renewing(peer))
		peer_set_renewal(peer, RENEWAL_DONE);
}

/* ---- the receiver ---- */

/* From the region to the network. */
static void leave_ring(struct path *path, struct peer *peer)
{
	if (!network_attach(path, peer)) {
		path_fail(path, peer, -EPROTO, "it moves to the network, where there is no way to it");
		return;
	}
	if (path->user->settle(path->context, peer) != 0) {
		path_fail(path, peer, -ENOMEM, "it sent more than there is memory for");
		return;
	}
	/* All is out of its chunks: this tells it so, and pairs with the acquire load in is_taken(). */
	peer->in.position++;
	ring_publish(&peer->in);
	network_leave_ring(peer);
	path_stop_reading(path, peer);
	peer->framed = true;
	peer->mapped = false;
}

/* From the network to the region: its ring is offered when it has heard of this. */
static void leave_frames(struct path *path, struct peer *peer)
{
	peer->framed = false;
	peer->gone = 0;
	network_entered(peer);
	network_stop_parting(peer);
	path_expect_ring(peer);
	if (!peer->owes_moved)
		count(path, 1);
	peer->owes_moved = true;
}

void path_take_move(struct path *path, struct peer *peer)
{
	if (peer->port == NULL || peer_is_self(peer))
		path_fail(path, peer, -EPROTO, "it moves, and there is no other way to it");
	else if (peer->framed)
		leave_frames(path, peer);
	else
		leave_ring(path, peer);
}

void path_end_slots(struct path *path, struct peer *peer, int result)
{
	if (result == PATH_MOVES)
		path_take_move(path, peer);
	else if (result == PATH_HOLDS)
		peer->held = peer->in.position + 1;
	else
		path_fail(path, peer, result,
			  result == -ENOMEM ? "it sent more than there is memory for"
					    : "it broke the protocol");
}
