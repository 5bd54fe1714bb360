/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_detach.c - what is said over the network when peers detach from a region, and when they meet in
 * one: see detach.h and reattach.h. What comes is from anybody who knows our nonce, as all frames are; a liar
 * takes a pair of its own out of the region, or says that it is where it is not, which the region's words
 * show.
 */
#include "transport/detach.h"
#include "transport/network_transport.h"
#include "transport/reattach.h"

/* Of frame_header.sequence in a FRAME_REGION. */
enum region_step { REGION_ASKS = 0, REGION_ANSWERS = 1, REGION_ENDS = 2 };

/* ---- detaching ---- */

bool network_is_detaching(const struct peer *peer)
{
	return peer->beyond != NULL &&
	       (peer->beyond->detach_said != DETACH_NONE || peer->beyond->detach_heard != DETACH_NONE);
}

bool network_owes_detach(const struct peer *peer)
{
	return peer->beyond != NULL && peer->beyond->detach_said != DETACH_NONE &&
	       peer->beyond->detach_heard != DETACH_SECOND;
}

bool network_tx_paused(const struct peer *peer)
{
	return peer->beyond != NULL && peer->beyond->tx_paused;
}

void network_stop_detaching(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	to->detach_said = DETACH_NONE;
	to->detach_heard = DETACH_NONE;
	to->tx_paused = false;
}

bool network_detach(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	/* That we are in the region goes first: afterwards it would call back whom we detach from. */
	if (to->owes_region)
		return false;
	enum detach_progress word = to->detach_heard == DETACH_NONE ? DETACH_FIRST : DETACH_SECOND;
	if (to->detach_said < word) {
		/* Without room for it nothing has begun: the manager may think better of it meanwhile. */
		if (!network_send_detach(to, word == DETACH_SECOND))
			return false;
		to->detach_said = word;
		network_stay_busy(to->network);
	}
	if (peer->network == NULL) {
		network_enter(peer);
		peer->out.limit = peer->out.position;
		to->tx_paused = to->detach_heard != DETACH_SECOND;
	}
	return to->detach_said == DETACH_SECOND;
}

void network_detach_again(struct network_peer *to)
{
	to->owes_detach = !network_send_detach(to, true);
	network_stay_busy(to->network);
}

void network_take_detach(struct network_peer *from, const struct frame_header *header)
{
	struct peer *peer = from->peer;
	enum detach_progress word = header->sequence == 0 ? DETACH_FIRST : DETACH_SECOND;

	/* One that is in no region with us has nothing to detach from, unless it did just now. */
	if ((peer->attachment == NULL && from->detach_said == DETACH_NONE) || peer->failover != FAILOVER_NONE)
		return;
	/* It met us in a region, and detaches from us before we met it there: we have detached already. */
	if (peer->attachment == NULL && from->detach_heard == DETACH_SECOND && word == DETACH_FIRST) {
		network_detach_again(from);
		return;
	}
	/* Of another time that we were in a region together. */
	if (peer->attachment != NULL && header->bytes != DETACH_ANY &&
	    header->bytes != network_tenancy(peer->attachment->region, peer->tenure))
		return;
	if (peer->receiving || header->sequence > 1) {
		network_violate(from, -EPROTO, "it detached from a region through which it sends");
		return;
	}
	if (word > from->detach_heard)
		from->detach_heard = word;
	peer->framed = true;
	peer->mapped = false;
	if (from->detach_heard != DETACH_SECOND || peer->network == NULL)
		return;
	from->tx_paused = false;
	/* It expects frames: it hears who we are, though there may be nothing to send yet. */
	network_ship(peer);
}

void network_stay_with(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	/* Nobody else writes this one. */
	shared_store_u64(&to->claim, (uint64_t)peer->tenure << 32);
	peer->claim = &to->claim;
}

/* ---- meeting ---- */

bool network_awaits_reattach(const struct peer *peer)
{
	return peer->beyond != NULL && peer->beyond->awaits_reattach;
}

void network_reattached(struct peer *peer)
{
	peer->beyond->awaits_reattach = false;
}

void network_forget_region(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	to->detach_said = DETACH_NONE;
	to->detach_heard = DETACH_NONE;
	to->tx_paused = false;
	to->owes_detach = false;
	to->asked_in = 0;
	to->awaits_reattach = true;
}

static uint32_t bit_of(const struct transport *transport, const struct attachment *attachment)
{
	return UINT32_C(1) << (attachment - transport->attachments);
}

void network_forget_asking(struct transport *transport, const struct attachment *attachment)
{
	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		const struct peer *peer = transport->peers[source];
		if (peer != NULL && peer->beyond != NULL)
			peer->beyond->asked_in &= ~bit_of(transport, attachment);
	}
}

void network_ask_again(const struct attachment *attachment, struct peer *peer)
{
	peer->beyond->asked_in &= ~bit_of(attachment->transport, attachment);
}

/* Does it know us? A frame of one whom it has not heard of, it drops. */
static bool is_acquainted(const struct network_peer *peer)
{
	return peer->sequence > 0 || peer->expected > 0 || peer->detach_heard != DETACH_NONE;
}

void network_ask_who_is_in(struct transport *transport, const struct attachment *attachment)
{
	if (member_requested_route(attachment->region, attachment->member->slot, attachment->member->epoch) !=
	    ROUTE_REGION)
		return;
	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		const struct peer *peer = transport->peers[source];
		struct network_peer *to = peer != NULL ? peer->beyond : NULL;
		if (to == NULL || peer->attachment != NULL || peer->state != PEER_PRESENT ||
		    peer->failover != FAILOVER_NONE || !network_is_used(to) || !is_acquainted(to) ||
		    (to->asked_in & bit_of(transport, attachment)) != 0)
			continue;
		if (!network_send_region(to, attachment->member, REGION_ASKS))
			return; /* there is no room now */
		to->asked_in |= bit_of(transport, attachment);
		network_stay_busy(transport->network);
	}
}

void network_answer(struct network_peer *to)
{
	to->owes_region = to->peer->attachment != NULL &&
			  !network_send_region(to, to->peer->attachment->member, to->answer);
	network_stay_busy(to->network);
}

void network_take_region(struct network_peer *from, const struct frame_header *header,
			 const struct frame_view *frame)
{
	struct transport *transport = from->network->transport;
	struct peer *peer = from->peer;
	struct frame_region said;

	if (frame->length != sizeof(*header) + sizeof(said))
		return;
	memcpy(&said, frame->bytes + sizeof(*header), sizeof(said));
	struct attachment *attachment = network_attachment_in(transport, said.region);
	if (attachment == NULL ||
	    !transport_reattach_peer(attachment, peer, said.slot, said.epoch, said.nonce))
		return;
	if (header->sequence != REGION_ASKS)
		network_reattached(peer);
	/*
	 * It asks, and we still detach from it since we met it here before: it has detached already. The
	 * answer would tell it that we meet again, and it would switch back to what we forget
	 * right afterwards.
	 */
	if (header->sequence >= REGION_ENDS || network_is_detaching(peer))
		return;
	from->answer = header->sequence == REGION_ASKS ? REGION_ANSWERS : REGION_ENDS;
	network_answer(from);
}

uint32_t network_add_member(struct transport *transport, const struct attachment *attachment, uint32_t slot,
			    uint32_t epoch, uint64_t nonce)
{
	struct network *network = transport->network;
	struct member_core said;
	struct core_name name;

	if (!member_core(attachment->region, slot, epoch, &said))
		return 0;
	name = (struct core_name){.provider = said.provider, .length = said.length, .flags = said.flags};
	memcpy(name.bytes, said.name, said.length);
	uint32_t index = core_accepts(network->core, &name) ? directory_add(network->directory, nonce, &name)
							    : DIRECTORY_NONE;
	return index != DIRECTORY_NONE ? transport->members + index : 0;
}
