/* SPDX-License-Identifier: BSD-3-Clause */
/* renew.c - see renew.h. */
#include "path/renew.h"

#include "path/move.h"
#include "path/network.h"
#include "path/region_path.h"
#include "path/states.h"

#include <stdlib.h>

bool path_may_renew(const struct path *path, const struct peer *peer)
{
	if (!peer->broken || peer->renewal != RENEWAL_NONE || peer->port == NULL)
		return false;
	/* What one says to itself goes through memory of its own, while there is any. */
	if (peer_is_self(peer))
		return peer->port->cut;
	return network_is_there(path);
}

void path_tell_end(struct peer *peer)
{
	const struct port *port = peer->port;

	if (port == NULL || !path_keeps_place(port) || port->cut || peer_is_self(peer) ||
	    peer->renewal != RENEWAL_NONE || !path_intact(peer))
		return;
	shared_store_u32(&section_connection(port->region, port->member->slot, peer->slot)->ended,
			 peer->tenure);
	path_ring_doorbell(peer);
}

/* The memory that was the region is still there, and what is in it comes from us. */
static void renew_ourselves(struct peer *peer)
{
	peer->reported = false;
	peer->broken = false;
	peer->sending = false;
	peer->out = (struct ring_out){0}; /* no room, until it is connected */
	peer->doorbell_count = shared_load_u32(peer->doorbell);
	path_aim_at_region(peer);
	path_expect_ring(peer);
}

/* Nothing finds room until it is over: callers try again, as with a ring that is full. */
static void begin(struct path *path, struct peer *peer)
{
	const struct port *port = peer->port;

	peer->reported = false;
	peer->broken = false;
	peer->mapped = false;
	peer_set_renewal(peer, RENEWAL_DRAINS);
	peer->sending = true;
	peer->out.limit = peer->out.position;
	path->moves++;
	path->attention++;
	/* There is no ring any more. */
	if (path_keeps_place(port))
		shared_store_u32(&section_connection(port->region, port->member->slot, peer->slot)->id, 0);
	path_publish_way(path, peer);
}

int path_refuse(struct peer *peer)
{
	int failure = peer->failure;

	if (peer->state == PEER_UNTOLD)
		peer_set_state(peer, PEER_PRESENT);
	return failure;
}

void path_renew(struct path *path, struct peer *peer, bool told)
{
	if (peer_is_self(peer))
		renew_ourselves(peer);
	else if (network_begin_renewal(path, peer))
		begin(path, peer);
	else
		return;
	peer_set_state(peer, told ? PEER_PRESENT : PEER_UNTOLD);
}

/* All that the core had of before has left: what is sent next is of the new stream. */
static bool enter(struct path *path, struct peer *peer)
{
	if (!network_is_quiet(peer))
		return false;
	chunk_recall(peer->pool, &peer->account);
	peer->framed = true;
	network_enter_renewed(peer);
	if (peer->state == PEER_FAILED)
		return false;
	peer->out.limit = peer->out.position;
	peer_set_renewal(peer, RENEWAL_ASKS);
	path_publish_way(path, peer);
	return true;
}

void path_go_on_renewing(struct path *path, struct peer *peer)
{
	if (network_renewal_is_hopeless(peer)) {
		path_fail(path, peer, -EHOSTUNREACH,
			  "it is not reached through the region any more, and not over the network either");
		return;
	}
	if (peer->renewal == RENEWAL_ASKS || enter(path, peer))
		network_ask_renewal(peer);
}

void path_renewed(struct path *path, struct peer *peer)
{
	peer_set_renewal(peer, RENEWAL_DONE);
	path->moves--;
	path->attention--;
	path_publish_way(path, peer);
	/* It hears who we are, though there is nothing to send yet. */
	network_ship(peer);
}

void path_break_all(struct port *port, const char *reason)
{
	struct path *path = port->path;

	for (uint32_t source = 0; source < path->peer_end; source++) {
		struct peer *peer = path_neighbour(path, source);
		if (peer != NULL && peer->port == port && peer->renewal == RENEWAL_NONE)
			path_break(path, peer, -ECONNABORTED, reason);
	}
	/* Peers that we have not met yet may call. */
	if (network_is_there(path))
		network_listen(path);
}

void path_go_on_alone(struct port *port, const char *reason)
{
	port->cut = true;
	member_restore(port->member);
	path_break_all(port, reason);
}

void path_tell_place(struct peer *peer, const struct member_core *where)
{
	if (where->length > 0 && where->length <= MEMBER_CORE_MOST)
		peer->where = *where;
}

struct peer *path_meet_without_region(struct path *path, uint32_t source, uint32_t epoch, uint64_t nonce,
				      const struct member_core *where)
{
	struct port *port = path_port(path, source);
	struct peer *peer = port != NULL ? path->peers[source] : NULL;

	if (port == NULL || (!port->evicted && !port->cut) || port->region->left ||
	    source == port->base + port->member->slot || !network_is_there(path))
		return NULL;
	if (peer != NULL)
		return peer->epoch == epoch && peer->nonce == nonce ? peer : NULL;
	peer = path_new_peer(path);
	if (peer == NULL)
		return NULL;
	path_reset_peer(port, peer, source - port->base, epoch, nonce);
	path_tell_place(peer, where);
	if (!network_begin_renewal(path, peer)) {
		free(peer);
		return NULL;
	}
	path->peers[source] = peer;
	begin(path, peer);
	return peer;
}
