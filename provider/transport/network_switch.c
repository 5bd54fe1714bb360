/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_switch.c - peers of the region that are reached over the network for a while. The struct
 * peer stays the region's; the peer's number in the directory leads to the same struct.
 */
#include "region/route.h"
#include "transport/network_transport.h"

#include <stdlib.h>

/*
 * After this time without an answer, a peer counts as unreachable. A ping is sent at each check of
 * the peers.
 */
#define GIVE_UP_NANOSECONDS UINT64_C(3000000000)

/* The directory index of the peer's published network address, if our core can use that address. */
static uint32_t index_of(struct network *network, const struct peer *peer)
{
	struct member_core said = peer->where;
	struct core_name name;

	if (said.length == 0 && !member_core(peer->attachment->region, peer->slot, peer->tenure, &said))
		return DIRECTORY_NONE;
	name = (struct core_name){.provider = said.provider, .length = said.length, .flags = said.flags};
	memcpy(name.bytes, said.name, said.length);
	return core_accepts(network->core, &name) ? directory_add(network->directory, peer->nonce, &name)
						  : DIRECTORY_NONE;
}

struct peer *network_met(const struct transport *transport, uint64_t nonce, const struct core_name *name)
{
	const struct network *network = transport->network;
	uint32_t index = network != NULL ? directory_find(network->directory, nonce) : DIRECTORY_NONE;

	if (index == DIRECTORY_NONE || !core_name_is(&network->directory->identities[index].name, name))
		return NULL;
	return transport->peers[transport->members + index];
}

bool network_has_met(const struct transport *transport, uint64_t nonce)
{
	const struct network *network = transport->network;
	uint32_t index = network != NULL ? directory_find(network->directory, nonce) : DIRECTORY_NONE;

	return index != DIRECTORY_NONE && transport->peers[transport->members + index] != NULL;
}

bool network_attach(struct transport *transport, struct peer *peer)
{
	struct network *network = transport->network;

	if (peer->beyond != NULL)
		return true;
	uint32_t index = network != NULL && !network->lost ? index_of(network, peer) : DIRECTORY_NONE;
	if (index == DIRECTORY_NONE)
		return false;
	uint32_t source = transport->members + index;
	/* Another peer already has this identity: the member sent HELLO, which it must not. */
	if (transport->peers[source] != NULL && transport->peers[source] != peer)
		return false;
	struct network_peer *new = network_new_peer(network, peer, index);
	if (new == NULL || transport->user->added(transport->context, source) != 0 ||
	    !network_make_reachable(new)) {
		free(new);
		return false;
	}
	peer->beyond = new;
	transport->peers[source] = peer;
	if (source >= transport->peer_end)
		transport->peer_end = source + 1;
	network_listen(transport);
	return true;
}

bool network_prove(struct transport *transport, struct peer *peer)
{
	uint64_t now = monotonic_now();

	if (!network_attach(transport, peer))
		return false;
	struct network_peer *to = peer->beyond;
	if (to->proved)
		return true;
	if (to->asking == 0)
		to->asking = now;
	to->heard = now;
	/* One ping in flight, which the core retries, is enough. */
	if (to->in_flight == 0)
		(void)network_send_notice(to, FRAME_PING);
	network_stay_busy(transport->network);
	return false;
}

bool network_is_unreachable(const struct peer *peer)
{
	const struct network_peer *to = peer->beyond;

	return to == NULL ||
	       (!to->proved && to->asking != 0 && monotonic_now() - to->asking > GIVE_UP_NANOSECONDS);
}

void network_forget_proof(struct peer *peer)
{
	if (peer->beyond == NULL)
		return;
	peer->beyond->proved = false;
	peer->beyond->asking = 0;
}

void network_enter(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	peer->network = to;
	peer->pool = &to->network->chunks;
	peer->active_word = &to->active;
	peer->active_bit = 1;
	to->switched = false;
	if (network_connect(peer) != 0)
		transport_fail(to->network->transport, peer, -ENOMEM,
			       "no memory is left to reach it over the network");
}

void network_leave_ring(struct peer *peer)
{
	peer->beyond->ring_left = peer->in.connection;
}

bool network_left_ring(const struct peer *peer, uint32_t connection)
{
	return peer->beyond->ring_left == connection;
}

void network_take_switched(struct network_peer *from, const struct frame_header *header)
{
	struct peer *peer = from->peer;

	if (!peer->switching || peer->network == NULL || from->switched ||
	    header->sequence != from->sequence || from->shipped != peer->out.position)
		network_violate(from, -EPROTO, "it acknowledged a last frame that was not sent");
	from->switched = true;
	from->taken = from->sequence;
}

bool network_has_switched(const struct peer *peer)
{
	return peer->beyond->switched && peer->beyond->in_flight == 0;
}

bool network_send_switched(struct peer *peer)
{
	network_stay_busy(peer->beyond->network);
	return network_send_notice(peer->beyond, FRAME_SWITCHED);
}

/* The chunks that the core still sends are now returned to the account of `to`. */
static void hand_over(struct chunk_pool *pool, const struct peer *from, struct peer *to)
{
	for (uint32_t chunk = 0; chunk < pool->count; chunk++)
		if (pool->holder[chunk] == &from->account)
			pool->holder[chunk] = &to->account;
	to->account = from->account;
	to->pool = from->pool;
}

bool network_retire(struct transport *transport, struct peer *peer)
{
	struct network_peer *beyond = peer->beyond;
	uint32_t source = transport->members + beyond->index;
	struct peer *rest = transport_new_peer(transport);

	if (rest == NULL)
		return false;
	rest->network = beyond;
	rest->beyond = beyond;
	rest->framed = true;
	rest->source = source;
	rest->epoch = NETWORK_EPOCH;
	rest->tenure = NETWORK_EPOCH;
	rest->nonce = peer->nonce;
	rest->state = PEER_FAILED;
	rest->failure = peer->failure;
	rest->reason = peer->reason;
	rest->reported = true;
	rest->active_word = &beyond->active;
	rest->active_bit = 1;
	rest->claim = &beyond->claim;
	shared_store_u64(&beyond->claim, (uint64_t)NETWORK_EPOCH << 32);
	rest->pool = &transport->network->chunks;
	rest->account.credit = &beyond->credit;
	if (peer->network != NULL)
		hand_over(&transport->network->chunks, peer, rest);
	beyond->peer = rest;
	transport->peers[source] = rest;
	peer->beyond = NULL;
	peer->network = NULL;
	return true;
}
