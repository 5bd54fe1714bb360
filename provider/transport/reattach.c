/* SPDX-License-Identifier: BSD-3-Clause */
/* reattach.c - see reattach.h. */
#include "transport/reattach.h"

#include "transport/network.h"
#include "transport/region_transport.h"

#include <stdlib.h>

/* The interval of the search, which opens a file or device, and may list devices. */
#define SEARCH_NANOSECONDS UINT64_C(1000000000)
/* How long one search waits for a region's broker, while this process makes no other progress. */
#define BROKER_MILLISECONDS 100U
/*
 * A device that was just plugged in may not be accessible yet. After this many failed searches, the
 * user is told.
 */
#define SEARCHES_BEFORE_NOTICE 10U
/* No memory that is mapped write-back is this slow: see member_measure(). */
#define SLOW_MEMORY 20.0

/*
 * ---- peers in the new region ----
 */

static bool has_aliases(struct attachment *attachment)
{
	if (attachment->aliases == NULL)
		attachment->aliases = calloc(attachment->region->members, sizeof(struct peer *));
	return attachment->aliases != NULL;
}

/* Does the manager permit the two to use this region? */
static bool is_welcome(const struct attachment *attachment, uint32_t slot, uint32_t epoch)
{
	return member_requested_route(attachment->region, slot, epoch) == ROUTE_REGION &&
	       member_requested_route(attachment->region, attachment->member->slot,
				      attachment->member->epoch) == ROUTE_REGION;
}

/* Does a living peer of ours have this slot, according to the attachment? */
static bool is_taken(const struct attachment *attachment, uint32_t slot)
{
	const struct peer *alias = attachment->aliases[slot];
	const struct peer *peer = attachment->base != TRANSPORT_NO_BASE
					  ? attachment->transport->peers[attachment->base + slot]
					  : NULL;

	return (alias != NULL && alias->state != PEER_FAILED) ||
	       (peer != NULL && peer->attachment == attachment && !peer->alias && peer->state != PEER_FAILED);
}

bool transport_reattach_peer(struct attachment *attachment, struct peer *peer, uint32_t slot, uint32_t epoch,
			     uint64_t nonce)
{
	if (peer->attachment == attachment && peer->alias && peer->slot == slot && peer->tenure == epoch)
		return true;
	if (peer->attachment != NULL || peer->state != PEER_PRESENT || peer->failover != FAILOVER_NONE ||
	    peer->network == NULL || !peer->framed || peer->switching || peer->owes_switched)
		return false;
	if (attachment->evicted || attachment->cut || slot >= attachment->region->members ||
	    slot == attachment->member->slot || !member_confirm(attachment->region, slot, epoch, nonce) ||
	    !has_aliases(attachment) || is_taken(attachment, slot))
		return false;
	if (!is_welcome(attachment, slot, epoch)) {
		/* When that has changed, we ask the peer, even if we have asked before. */
		attachment->welcomes = true;
		network_ask_again(attachment, peer);
		return false;
	}
	attachment->aliases[slot] = peer;
	peer->alias = true;
	transport_bind_slot(attachment, peer, slot, epoch);
	network_stay_with(peer); /* its slots come in frames until it switches */
	network_forget_region(peer);
	return true;
}

struct peer *transport_meet_alias(struct attachment *attachment, uint32_t slot, uint32_t epoch,
				  uint64_t nonce)
{
	struct transport *transport = attachment->transport;

	if (!has_aliases(attachment) || !network_is_there(transport))
		return NULL;
	struct peer *known = attachment->aliases[slot];
	if (known != NULL && known->tenure == epoch && known->nonce == nonce)
		return known;
	if (is_taken(attachment, slot))
		return NULL;
	uint32_t source = network_add_member(transport, attachment, slot, epoch, nonce);
	if (source == 0 || transport->peers[source] != NULL)
		return NULL;
	struct peer *peer = transport_new_peer(transport);
	if (peer == NULL)
		return NULL;
	if (transport->user->added(transport->context, source) != 0) {
		free(peer);
		return NULL;
	}
	transport_reset_peer(attachment, peer, slot, epoch, nonce);
	peer->source = source;
	peer->epoch = NETWORK_EPOCH; /* the epoch of a peer that the network made known */
	peer->alias = true;
	peer->mapped = false;
	attachment->aliases[slot] = peer;
	transport->peers[source] = peer;
	if (source >= transport->peer_end)
		transport->peer_end = source + 1;
	return peer;
}

/*
 * ---- finding a region ----
 */

/* The last attachment in the place of `home`. */
static struct attachment *last_of(struct attachment *home)
{
	return home->next != NULL ? home->next : home;
}

/*
 * Must the region not be joined, because we left it and must still stay away, or because we are
 * already in it under another name?
 */
static bool is_forbidden(const struct attachment *home, const struct attachment *last,
			 const struct region *region)
{
	const struct transport *transport = home->transport;

	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		const struct attachment *attachment = &transport->attachments[i];
		bool same = attachment->region->id[0] == region->id[0] &&
			    attachment->region->id[1] == region->id[1];
		if (!same || (attachment->region->left && attachment != last))
			continue;
		if (!attachment->region->left ||
		    member_requested_route(region, attachment->member->slot, attachment->member->epoch) ==
			    ROUTE_LEAVE)
			return true;
	}
	return false;
}

static int find_region(const struct region *before, struct region **region, struct region_error *error)
{
	char name[PATH_MAX];
	int result = before->discovered ? region_discover(name, error) : 0;

	return result != 0 ? result
			   : region_attach_within(before->discovered ? name : before->name,
						  BROKER_MILLISECONDS, region, error);
}

static bool is_fast(const struct member *member, struct region_error *error)
{
	const struct region *region = member->region;
	double slower = region->slow_allowed ? 0 : member_measure(member, SLOW_MEMORY);

	if (slower < SLOW_MEMORY)
		return true;
	(void)region_fail(error, -EIO,
			  "the memory of region %.1024s is %.0f times slower than private memory, so it is "
			  "mapped uncached or write-combining, and peers there are reached over the network: "
			  "set VICINAL_ALLOW_SLOW=1 to use it all the same",
			  region->name, slower);
	return false;
}

/* Reuse the attachment that had this place before. */
static int open_attachment(struct attachment *home, struct member *member, struct region *region)
{
	struct transport *transport = home->transport;
	struct attachment *attachment =
		home->next != NULL ? home->next : &transport->attachments[transport->attachment_count];
	struct attachment fresh = {.transport = transport,
				   .region = region,
				   .member = member,
				   .base = TRANSPORT_NO_BASE,
				   .endpoint = home->endpoint,
				   .welcomes = true};

	if (attachment_allocate(&fresh) != 0)
		return -ENOMEM;
	if (home->next == attachment) {
		transport->hot_room -= attachment->region->members;
		member_leave(attachment->member);
		region_detach(attachment->region);
		attachment_free(attachment);
	} else {
		transport->attachment_count++;
	}
	*attachment = fresh;
	home->next = attachment;
	attachment_divide_arena(attachment);
	network_publish(transport, member);
	network_forget_asking(transport, attachment);
	transport_take_first_rings(attachment);
	return 0;
}

/* Find and join a region. Sets an error text, except if there is only no region yet. */
static int come_back(struct attachment *home, struct region_error *error)
{
	const struct region *before = home->region;
	struct region *region = NULL;
	struct member *member = NULL;
	int result = find_region(before, &region, error);

	if (result != 0)
		return result;
	region->notice = before->notice;
	region->discovered = before->discovered;
	region->slow_allowed = before->slow_allowed;
	if (is_forbidden(home, last_of(home), region)) {
		region_detach(region);
		return -ENOENT;
	}
	result = member_join_as_alias(region, home->endpoint, &member, error);
	if (result == 0 && !is_fast(member, error))
		result = -EIO;
	if (result == 0) {
		result = open_attachment(home, member, region);
		if (result == 0)
			return 0;
		(void)region_fail(error, result,
				  "no memory is left to come back to region %.1024s: free some",
				  region->path);
	}
	if (member != NULL)
		member_leave(member);
	region_detach(region);
	return result;
}

/* No region, or an empty device: keep waiting. */
static bool is_expected(int result)
{
	return result == -ENOENT || result == -ENODEV || result == -ENODATA || result == -ENXIO;
}

static void look(struct attachment *home)
{
	struct region_error error = {""};
	int result = come_back(home, &error);

	if (result == 0 || is_expected(result)) {
		home->failed_searches = 0;
		return;
	}
	if (++home->failed_searches == SEARCHES_BEFORE_NOTICE && home->region->notice != NULL)
		home->region->notice(error.text);
}

void transport_check_reattaching(struct transport *transport, uint64_t now)
{
	/* The loop also covers attachments that it adds. */
	for (uint32_t i = 0; i < transport->attachment_count && network_is_there(transport); i++) {
		struct attachment *attachment = &transport->attachments[i];
		if (attachment->welcomes && !attachment->evicted && !attachment->cut &&
		    !attachment->region->left)
			network_ask_who_is_in(transport, attachment);
		if (attachment->base == TRANSPORT_NO_BASE || !last_of(attachment)->region->left ||
		    !attachment->region->left || attachment->evicted || now < attachment->next_search)
			continue;
		attachment->next_search = now + SEARCH_NANOSECONDS;
		look(attachment);
	}
}
