/* SPDX-License-Identifier: BSD-3-Clause */
/* rejoin.c - see rejoin.h. */
#include "transport/rejoin.h"

#include "transport/network.h"
#include "transport/region_transport.h"

#include <stdlib.h>

/* A look opens a file or a device, and may list those that there are. */
#define LOOK_NANOSECONDS UINT64_C(1000000000)
/* A device that was just plugged may not be ours yet. If it is not after so many looks, people are told. */
#define LOOKS_BEFORE_NOTICE 10U
/* As slow as no memory is that is mapped write-back: see member_measure(). */
#define SLOW_MEMORY 20.0

/* ---- whom we find there ---- */

static bool has_guests(struct port *port)
{
	if (port->guests == NULL)
		port->guests = calloc(port->region->members, sizeof(struct peer *));
	return port->guests != NULL;
}

/* May the two use this region, as far as the manager is concerned? */
static bool is_welcome(const struct port *port, uint32_t slot, uint32_t epoch)
{
	return member_wish(port->region, slot, epoch) == WISH_REGION &&
	       member_wish(port->region, port->member->slot, port->member->epoch) == WISH_REGION;
}

/* Does somebody live there, by this port's words, whom we have met? */
static bool is_taken(const struct port *port, uint32_t slot)
{
	const struct peer *guest = port->guests[slot];
	const struct peer *peer =
		port->base != TRANSPORT_NO_BASE ? port->transport->peers[port->base + slot] : NULL;

	return (guest != NULL && guest->state != PEER_FAILED) ||
	       (peer != NULL && peer->port == port && !peer->guest && peer->state != PEER_FAILED);
}

bool transport_enter(struct port *port, struct peer *peer, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	if (peer->port == port && peer->guest && peer->slot == slot && peer->tenure == epoch)
		return true;
	if (peer->port != NULL || peer->state != PEER_PRESENT || peer->renewal != RENEWAL_NONE ||
	    peer->network == NULL || !peer->framed || peer->moving || peer->owes_moved)
		return false;
	if (port->evicted || port->cut || slot >= port->region->members || slot == port->member->slot ||
	    !member_confirm(port->region, slot, epoch, nonce) || !has_guests(port) || is_taken(port, slot))
		return false;
	if (!is_welcome(port, slot, epoch)) {
		/* When that has changed we ask it, though we may have asked before. */
		port->welcomes = true;
		network_ask_again(port, peer);
		return false;
	}
	port->guests[slot] = peer;
	peer->guest = true;
	transport_bind_slot(port, peer, slot, epoch);
	network_stay_with(peer); /* what it sends comes in frames until it moves */
	network_forget_region(peer);
	return true;
}

struct peer *transport_meet_guest(struct port *port, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	struct transport *transport = port->transport;

	if (!has_guests(port) || !network_is_there(transport))
		return NULL;
	struct peer *known = port->guests[slot];
	if (known != NULL && known->tenure == epoch && known->nonce == nonce)
		return known;
	if (is_taken(port, slot))
		return NULL;
	uint32_t source = network_place_member(transport, port, slot, epoch, nonce);
	if (source == 0 || transport->peers[source] != NULL)
		return NULL;
	struct peer *peer = transport_new_peer(transport);
	if (peer == NULL)
		return NULL;
	if (transport->user->added(transport->context, source) != 0) {
		free(peer);
		return NULL;
	}
	transport_reset_peer(port, peer, slot, epoch, nonce);
	peer->source = source;
	peer->epoch = NETWORK_EPOCH; /* as whom the network made known by this number */
	peer->guest = true;
	peer->mapped = false;
	port->guests[slot] = peer;
	transport->peers[source] = peer;
	if (source >= transport->peer_end)
		transport->peer_end = source + 1;
	return peer;
}

/* ---- finding it ---- */

/* What we were in last, of the places that `home` has had. */
static struct port *last_of(struct port *home)
{
	return home->next != NULL ? home->next : home;
}

/* May it be one that we left and are still to stay away from; or that we are in already, by another name? */
static bool is_forbidden(const struct port *home, const struct port *last, const struct region *region)
{
	const struct transport *transport = home->transport;

	for (uint32_t i = 0; i < transport->port_count; i++) {
		const struct port *port = &transport->ports[i];
		bool same = port->region->id[0] == region->id[0] && port->region->id[1] == region->id[1];
		if (!same || (port->region->left && port != last))
			continue;
		if (!port->region->left ||
		    member_wish(region, port->member->slot, port->member->epoch) == WISH_LEAVE)
			return true;
	}
	return false;
}

static int find_region(const struct region *before, struct region **region, struct region_error *error)
{
	char name[PATH_MAX];
	int result = before->discovered ? region_discover(name, error) : 0;

	return result != 0 ? result : region_attach(before->discovered ? name : before->name, region, error);
}

static bool is_fast(const struct member *member, struct region_error *error)
{
	const struct region *region = member->region;
	double slower = region->slow_allowed ? 0 : member_measure(member, SLOW_MEMORY);

	if (slower < SLOW_MEMORY)
		return true;
	(void)region_fail(
		error, -EIO,
		"the memory of region %.1024s is %.0f times slower than private memory, so it is mapped "
		"uncached or write-combining, and peers there are reached over the network: "
		"VICINAL_ALLOW_SLOW=1 uses it all the same",
		region->name, slower);
	return false;
}

/* The port that was ours in such a place before is used again. */
static int open_port(struct port *home, struct member *member, struct region *region)
{
	struct transport *transport = home->transport;
	struct port *port = home->next != NULL ? home->next : &transport->ports[transport->port_count];
	struct port fresh = {.transport = transport,
			     .region = region,
			     .member = member,
			     .base = TRANSPORT_NO_BASE,
			     .endpoint = home->endpoint,
			     .welcomes = true};

	if (attachment_allocate(&fresh) != 0)
		return -ENOMEM;
	if (home->next == port) {
		transport->hot_room -= port->region->members;
		member_leave(port->member);
		region_detach(port->region);
		attachment_free(port);
	} else {
		transport->port_count++;
	}
	*port = fresh;
	home->next = port;
	attachment_divide_arena(port);
	network_publish(transport, member);
	network_forget_asking(transport, port);
	transport_take_first_rings(port);
	return 0;
}

/* With a text where it is not only that there is nothing yet. */
static int come_back(struct port *home, struct region_error *error)
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
	result = member_join_as_guest(region, home->endpoint, &member, error);
	if (result == 0 && !is_fast(member, error))
		result = -EIO;
	if (result == 0) {
		result = open_port(home, member, region);
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

/* There is none, or nothing in it yet: that is what is waited for. */
static bool is_expected(int result)
{
	return result == -ENOENT || result == -ENODEV || result == -ENODATA || result == -ENXIO;
}

static void look(struct port *home)
{
	struct region_error error = {""};
	int result = come_back(home, &error);

	if (result == 0 || is_expected(result)) {
		home->failed_looks = 0;
		return;
	}
	if (++home->failed_looks == LOOKS_BEFORE_NOTICE && home->region->notice != NULL)
		home->region->notice(error.text);
}

void transport_check_rejoining(struct transport *transport, uint64_t now)
{
	/* More may come to be, behind those that we began with. */
	for (uint32_t i = 0; i < transport->port_count && network_is_there(transport); i++) {
		struct port *port = &transport->ports[i];
		if (port->welcomes && !port->evicted && !port->cut && !port->region->left)
			network_ask_who_is_in(transport, port);
		if (port->base == TRANSPORT_NO_BASE || !last_of(port)->region->left || !port->region->left ||
		    port->evicted || now < port->next_look)
			continue;
		port->next_look = now + LOOK_NANOSECONDS;
		look(port);
	}
}
