/* SPDX-License-Identifier: BSD-3-Clause */
/* failover.c - see failover.h. */
#include "transport/failover.h"

#include "transport/network.h"
#include "transport/region_transport.h"
#include "transport/states.h"
#include "transport/switch.h"

#include <stdlib.h>

bool transport_may_fail_over(const struct transport *transport, const struct peer *peer)
{
	if (!peer->broken || peer->failover != FAILOVER_NONE || peer->attachment == NULL)
		return false;
	/*
	 * An endpoint sends to itself through private memory, if it still has its region's memory.
	 */
	if (peer_is_self(peer))
		return peer->attachment->cut;
	return network_is_there(transport);
}

void transport_publish_end(struct peer *peer)
{
	const struct attachment *attachment = peer->attachment;

	if (attachment == NULL || !attachment_holds_slot(attachment) || attachment->cut ||
	    peer_is_self(peer) || peer->failover != FAILOVER_NONE || !transport_intact(peer))
		return;
	shared_store_u32(&section_connection(attachment->region, attachment->member->slot, peer->slot)->ended,
			 peer->tenure);
	transport_ring_doorbell(peer);
}

/* The memory that replaced the region exists, and contains only words of our own. */
static void fail_over_ourselves(struct peer *peer)
{
	peer->reported = false;
	peer->broken = false;
	peer->sending = false;
	peer->out = (struct ring_out){0}; /* no room until it is connected */
	peer->doorbell_count = shared_load_u32(peer->doorbell);
	transport_send_by_region(peer);
	transport_receive_by_region(peer);
}

/*
 * The ring has no room until the failover has ended, so callers try again, as with any full ring.
 */
static void begin(struct transport *transport, struct peer *peer)
{
	const struct attachment *attachment = peer->attachment;

	peer->reported = false;
	peer->broken = false;
	peer->mapped = false;
	peer_set_failover(peer, FAILOVER_DRAINING);
	peer->sending = true;
	peer->out.limit = peer->out.position;
	transport->switches++;
	transport->attention++;
	/* The ring no longer exists. */
	if (attachment_holds_slot(attachment))
		shared_store_u32(
			&section_connection(attachment->region, attachment->member->slot, peer->slot)->id, 0);
	transport_publish_route(transport, peer);
}

int transport_refuse(struct peer *peer)
{
	int failure = peer->failure;

	if (peer->state == PEER_ERROR_PENDING)
		peer_set_state(peer, PEER_PRESENT);
	return failure;
}

void transport_fail_over(struct transport *transport, struct peer *peer, bool told)
{
	if (peer_is_self(peer))
		fail_over_ourselves(peer);
	else if (network_begin_failover(transport, peer))
		begin(transport, peer);
	else
		return;
	peer_set_state(peer, told ? PEER_PRESENT : PEER_ERROR_PENDING);
}

/*
 * All frames of the old stream have left the core provider. The next frame belongs to the new
 * stream.
 */
static bool enter(struct transport *transport, struct peer *peer)
{
	if (!network_is_quiet(peer))
		return false;
	chunk_recall(peer->pool, &peer->account);
	peer->framed = true;
	network_enter_failover(peer);
	if (peer->state == PEER_FAILED)
		return false;
	peer->out.limit = peer->out.position;
	peer_set_failover(peer, FAILOVER_ASKING);
	transport_publish_route(transport, peer);
	return true;
}

void transport_continue_failover(struct transport *transport, struct peer *peer)
{
	if (network_failover_timed_out(peer)) {
		transport_fail(transport, peer, -EHOSTUNREACH,
			       "it is no longer reached through the region, and the network does not reach "
			       "it either");
		return;
	}
	if (peer->failover == FAILOVER_ASKING || enter(transport, peer))
		network_ask_failover(peer);
}

void transport_finish_failover(struct transport *transport, struct peer *peer)
{
	peer_set_failover(peer, FAILOVER_DONE);
	transport->switches--;
	transport->attention--;
	transport_publish_route(transport, peer);
	/* Send HELLO, although there may be nothing else to send. */
	network_ship(peer);
}

void transport_break_all(struct attachment *attachment, const char *reason)
{
	struct transport *transport = attachment->transport;

	for (uint32_t source = 0; source < transport->peer_end; source++) {
		struct peer *peer = transport_peer_in_region(transport, source);
		if (peer != NULL && peer->attachment == attachment && peer->failover == FAILOVER_NONE)
			transport_break(transport, peer, -ECONNABORTED, reason);
	}
	/* Members that are not yet peers may send frames. */
	if (network_is_there(transport))
		network_listen(transport);
}

void transport_continue_alone(struct attachment *attachment, const char *reason)
{
	attachment->cut = true;
	member_restore(attachment->member);
	transport_break_all(attachment, reason);
}

void transport_set_core_address(struct peer *peer, const struct member_core *where)
{
	if (where->length > 0 && where->length <= MEMBER_CORE_MAX)
		peer->where = *where;
}

struct peer *transport_meet_without_region(struct transport *transport, uint32_t source, uint32_t epoch,
					   uint64_t nonce, const struct member_core *where)
{
	struct attachment *attachment = transport_attachment(transport, source);
	struct peer *peer = attachment != NULL ? transport->peers[source] : NULL;

	if (attachment == NULL || (!attachment->evicted && !attachment->cut) || attachment->region->left ||
	    source == attachment->base + attachment->member->slot || !network_is_there(transport))
		return NULL;
	if (peer != NULL)
		return peer->epoch == epoch && peer->nonce == nonce ? peer : NULL;
	peer = transport_new_peer(transport);
	if (peer == NULL)
		return NULL;
	transport_reset_peer(attachment, peer, source - attachment->base, epoch, nonce);
	transport_set_core_address(peer, where);
	if (!network_begin_failover(transport, peer)) {
		free(peer);
		return NULL;
	}
	transport->peers[source] = peer;
	begin(transport, peer);
	return peer;
}
