/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_detach.c - the frames by which peers detach from a region, and reattach to one: see
 * detach.h and reattach.h. Any process that knows our nonce can send these frames, as all frames.
 * False frames can only take their sender's own pair out of the region, or claim a membership that
 * the words in the region disprove.
 */
#include "transport/detach.h"
#include "transport/network_transport.h"
#include "transport/reattach.h"

/* Values of frame_header.sequence in a FRAME_REGION. */
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

	/*
	 * A pending FRAME_REGION goes first. Otherwise it would later ask the peer from which we
	 * detach to reattach.
	 */
	if (to->owes_region)
		return false;
	enum detach_progress word = to->detach_heard == DETACH_NONE ? DETACH_FIRST : DETACH_SECOND;
	if (to->detach_said < word) {
		/*
		 * If there is no room for the frame, the detach has not begun, and the manager may
		 * still withdraw its request.
		 */
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

	/*
	 * A peer in no region of ours has nothing to detach from, unless we have just detached from
	 * it.
	 */
	if ((peer->attachment == NULL && from->detach_said == DETACH_NONE) || peer->failover != FAILOVER_NONE)
		return;
	/*
	 * The peer found us in a region, and detaches before we know that it is there: we have
	 * already detached.
	 */
	if (peer->attachment == NULL && from->detach_heard == DETACH_SECOND && word == DETACH_FIRST) {
		network_detach_again(from);
		return;
	}
	/* The frame belongs to an earlier time in which the two shared a region. */
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
	/* The peer expects frames: send HELLO, although there may be nothing else to send. */
	network_ship(peer);
}

void network_stay_with(struct peer *peer)
{
	struct network_peer *to = peer->beyond;

	/* No other member writes this word. */
	shared_store_u64(&to->claim, (uint64_t)peer->tenure << 32);
	peer->claim = &to->claim;
}

/*
 * ---- reattaching ----
 */

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

/* Does the peer know us? It drops frames of unknown senders. */
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
			return; /* no room now */
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
	 * The peer asks while we still detach from it after an earlier meeting in this region: the
	 * peer has already detached. An answer would tell it that the two reattach, and it would
	 * switch back to the slot that we forget directly afterwards.
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
