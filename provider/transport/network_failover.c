/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_failover.c - a new stream of frames with a peer of a region that the pair can no longer
 * use: see failover.h. Any process that knows our nonce can send these frames, as all frames.
 */
#include "transport/failover.h"
#include "transport/network_transport.h"
#include "transport/region_transport.h"

/* The interval between FAILOVER frames. */
#define ASK_NANOSECONDS UINT64_C(50000000)
/*
 * After this time without an answer, the peer counts as unreachable. The peer may be busy, and may
 * check the region rarely.
 */
#define GIVE_UP_NANOSECONDS UINT64_C(3000000000)

bool network_begin_failover(struct transport *transport, struct peer *peer)
{
	uint64_t now = monotonic_now();

	if (!network_attach(transport, peer))
		return false;
	struct network_peer *to = peer->beyond;
	network_leave_backlog(to);
	to->stream = 1;
	to->sequence = 0;
	to->taken = 0;
	to->expected = 0;
	to->told_taken = 0;
	to->switched = false;
	to->tx_paused = false; /* nothing detaches from an unusable region */
	to->left = false;
	to->leave_sent = false;
	to->owes_left = false;
	to->refused = 0;
	to->unreachable = 0;
	to->heard = now;
	to->failover_since = now;
	to->failover_asked = 0;
	network_stay_busy(transport->network);
	return true;
}

void network_enter_failover(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	/* No other member writes this word. */
	shared_store_u64(&to->claim, (uint64_t)peer->tenure << 32);
	peer->claim = &to->claim;
	network_enter(peer);
}

void network_ask_failover(struct peer *peer)
{
	struct network_peer *to = peer->beyond;
	uint64_t now = monotonic_now();

	if (now - to->failover_asked < ASK_NANOSECONDS || to->in_flight > 0)
		return;
	to->failover_asked = now;
	(void)network_send_failover(to, false);
	network_stay_busy(to->network);
}

bool network_failover_timed_out(const struct peer *peer)
{
	return monotonic_now() - peer->beyond->failover_since > GIVE_UP_NANOSECONDS;
}

struct attachment *network_attachment_in(struct transport *transport, const uint64_t id[2])
{
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		const struct region *region = transport->attachments[i].region;
		if (region->id[0] == id[0] && region->id[1] == id[1] && !region->left)
			return &transport->attachments[i];
	}
	return NULL;
}

/* Find the peer by our region or, if the region is unusable, by the contents of the frame. */
static struct peer *meet(struct transport *transport, const struct frame_failover *failover, uint64_t nonce,
			 const struct member_core *where)
{
	const struct attachment *attachment = network_attachment_in(transport, failover->region);

	if (attachment == NULL || failover->slot >= attachment->region->members ||
	    failover->slot == attachment->member->slot)
		return NULL;
	struct peer *alias = transport_peer_in(attachment, failover->slot, failover->epoch);
	if (alias != NULL && alias->nonce == nonce)
		return alias;
	if (attachment->base == TRANSPORT_NO_BASE)
		return NULL;
	uint32_t source = attachment->base + failover->slot;
	struct peer *peer = transport->peers[source];
	if (peer == NULL || peer->epoch != failover->epoch || peer->nonce != nonce)
		peer = transport_meet(transport, source, failover->epoch, nonce);
	return peer != NULL ? peer
			    : transport_meet_without_region(transport, source, failover->epoch, nonce, where);
}

struct network_peer *network_peer_failing_over(struct network *network, const struct frame_header *header,
					       const struct frame_view *frame)
{
	struct frame_failover failover;
	struct core_name name;
	struct member_core where = {0};

	if (frame->length != sizeof(*header) + sizeof(failover) || header->stream != 1 ||
	    header->sequence > 1)
		return NULL;
	memcpy(&failover, frame->bytes + sizeof(*header), sizeof(failover));
	if (!network_read_hello(network, &failover.hello, &name))
		return NULL;
	where = (struct member_core){.provider = name.provider, .length = name.length, .flags = name.flags};
	memcpy(where.name, name.bytes, sizeof(where.name));
	struct peer *peer = meet(network->transport, &failover, header->from, &where);
	/* A peer that detached from a region has no region for which a new stream could begin. */
	if (peer == NULL || peer->attachment == NULL)
		return NULL;
	if (peer->where.length == 0)
		transport_set_core_address(peer, &where);
	return network_attach(network->transport, peer) ? peer->beyond : NULL;
}

void network_take_failover(struct network_peer *from, const struct frame_header *header)
{
	struct transport *transport = from->network->transport;
	struct peer *peer = from->peer;

	switch (peer->failover) {
	case FAILOVER_NONE:
		transport_break(transport, peer, -ECONNABORTED,
				"it took this process for hostile, or lost the region, and continues over "
				"the network");
		break;
	case FAILOVER_DRAINING:
		break; /* the peer asks again */
	case FAILOVER_ASKING:
	case FAILOVER_DONE:
		if (header->sequence == 0)
			(void)network_send_failover(from, true);
		if (peer->failover == FAILOVER_ASKING)
			transport_finish_failover(transport, peer);
		break;
	}
}
