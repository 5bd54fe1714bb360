/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * resolve.c - how an address is reached: through which region, or over the network.
 *
 * Both ends of a pair must choose the same route, or each would see the other as two peers. So the choice
 * uses only what both ends know: which regions they share, and which region is the first of each end. A
 * region that is the first of both ends is preferred, then a region that is the first of one end, then the
 * others. Among equals the lower id wins.
 *
 * Preferring the common first region has another reason. There, no process can pose as a member without
 * overwriting that member's section. In other regions, a process that knows a member's nonce can claim in its
 * own section to be that member.
 *
 * The regions' contents may change: a region's file may be truncated, or a member's words overwritten. So a
 * peer that an endpoint has met keeps its number, even if its address is inserted later: its messages are
 * matched and named by that number.
 */
#include "api/provider.h"
#include "region/identity.h"

bool domain_has(const struct domain *domain, uint64_t nonce)
{
	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL &&
		    endpoint->messenger->transport->attachments[0].member->nonce == nonce)
			return true;
	return false;
}

static bool names(const struct address *address, const struct region *region)
{
	return address->region[0] == region->id[0] && address->region[1] == region->id[1] &&
	       address->slot < region->members;
}

static bool comes_before(const struct domain *domain, const struct address *address, uint32_t one,
			 uint32_t other)
{
	return identity_prefers(domain->regions[one], domain->regions[other], domain->regions[0]->id,
				address->region);
}

static void say_contested(const struct region *region)
{
	static atomic_bool said;

	provider_notice_once(&said,
			     "two members of region %.1024s claim to be the same endpoint of another region: "
			     "that endpoint is reached over the network. 'vicinal region check' names both",
			     region->path);
}

static enum member_found find(const struct region *region, const struct member_identity *identity,
			      uint32_t *slot, uint32_t *epoch)
{
	enum member_found found = member_find(region, identity, slot, epoch);

	if (found == MEMBER_CONTESTED)
		say_contested(region);
	return found;
}

/*
 * Whether a member of this region claims to be one of this domain's endpoints. Then neither the peers nor
 * this domain use that region for each other.
 */
static bool are_contested(const struct domain *domain, const struct region *region)
{
	uint32_t slot = 0;
	uint32_t epoch = 0;

	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		if (endpoint->messenger == NULL)
			continue;
		struct member_identity own =
			member_identity_of(endpoint->messenger->transport->attachments[0].member);
		if (find(region, &own, &slot, &epoch) == MEMBER_CONTESTED)
			return true;
	}
	return false;
}

bool address_core_name(const struct address *address, struct core_name *name)
{
	if (address->core_length == 0 || address->core_length > CORE_NAME_MAX)
		return false;
	*name = (struct core_name){
		.provider = address->core, .length = address->core_length, .flags = address->core_flags};
	memcpy(name->bytes, address->core_name, name->length);
	return true;
}

bool address_is_of(const struct transport *transport, const struct peer *peer, const struct address *address)
{
	const struct member_identity *said = &peer->said;
	struct core_name name;

	if (peer->nonce != address->nonce)
		return false;
	if (peer->attachment != NULL && said->region[0] == address->region[0] &&
	    said->region[1] == address->region[1] && said->slot == address->slot &&
	    said->epoch == address->epoch)
		return true;
	/*
	 * The peer was met after its region lost this information, so the peer sent its address in the
	 * network.
	 */
	return address_core_name(address, &name) && network_met(transport, peer->nonce, &name) == peer;
}

/* The base of region `index`, which is the same in all transports of the domain. */
static uint32_t base_of(const struct domain *domain, uint32_t index)
{
	uint32_t base = 0;

	for (uint32_t i = 0; i < index; i++)
		base += domain->regions[i]->members;
	return base;
}

/*
 * Whether an endpoint of the domain has met the peer in region `index`. False if several members there claim
 * to be the peer.
 */
static bool was_met_in(const struct domain *domain, uint32_t index, const struct address *address,
		       uint32_t *slot, uint32_t *epoch)
{
	uint32_t base = base_of(domain, index);

	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		uint32_t found = 0;
		for (uint32_t i = 0; endpoint->messenger != NULL && i < domain->regions[index]->members;
		     i++) {
			const struct transport *transport = endpoint->messenger->transport;
			const struct peer *peer = transport->peers[base + i];
			if (peer == NULL || !address_is_of(transport, peer, address))
				continue;
			*slot = i;
			*epoch = peer->epoch;
			found++;
		}
		if (found > 0)
			return found == 1;
	}
	return false;
}

/* The peer that an endpoint of the domain has met at this address outside all regions, or NULL. */
static const struct peer *peer_beyond(const struct domain *domain, const struct address *address)
{
	struct core_name name;

	if (!address_core_name(address, &name) || domain_has(domain, address->nonce))
		return NULL;
	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		const struct peer *peer =
			endpoint->messenger != NULL
				? network_met(endpoint->messenger->transport, address->nonce, &name)
				: NULL;
		if (peer != NULL && peer->source >= domain->members)
			return peer;
	}
	return NULL;
}

uint32_t domain_met(const struct domain *domain, const struct address *address, uint32_t *epoch)
{
	uint32_t slot = 0;

	for (uint32_t index = 0; index < domain->region_count; index++)
		if (was_met_in(domain, index, address, &slot, epoch))
			return base_of(domain, index) + slot;
	const struct peer *peer = peer_beyond(domain, address);
	if (peer == NULL)
		return RESOLVE_NONE;
	*epoch = peer->epoch;
	return peer->source;
}

/*
 * Whether the slot's number belongs to another living peer, which is now reached elsewhere. Then the network
 * reaches the slot's present owner.
 */
static bool is_of_another(const struct domain *domain, uint32_t index, uint32_t slot, uint32_t epoch)
{
	uint32_t number = base_of(domain, index) + slot;

	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		const struct peer *peer =
			endpoint->messenger != NULL ? endpoint->messenger->transport->peers[number] : NULL;
		if (peer != NULL && peer->epoch != epoch && peer->state != PEER_FAILED &&
		    (peer->attachment == NULL || peer->alias))
			return true;
	}
	return false;
}

/* Whether the peer is in region `index`; returns its slot and epoch there. */
static bool is_there(const struct domain *domain, uint32_t index, const struct address *address,
		     uint32_t *slot, uint32_t *epoch)
{
	const struct region *region = domain->regions[index];
	const struct member_identity identity = {
		.region = {address->region[0], address->region[1]},
		.slot = address->slot,
		.epoch = address->epoch,
		.nonce = address->nonce,
	};

	/* The mapping is private by now, and peers that were met there are elsewhere. */
	if (region->left)
		return was_met_in(domain, index, address, slot, epoch);
	if (index != 0 && are_contested(domain, region))
		return false;
	if (names(address, region)) {
		*slot = address->slot;
		*epoch = address->epoch;
		if (member_confirm(region, address->slot, address->epoch, address->nonce) &&
		    !member_departed(region, address->slot, address->epoch))
			return !is_of_another(domain, index, address->slot, address->epoch);
	} else if (!atomic_load_explicit(&region->cut, memory_order_relaxed)) {
		enum member_found found = find(region, &identity, slot, epoch);
		if (found != MEMBER_ABSENT)
			return found == MEMBER_FOUND;
	}
	if (was_met_in(domain, index, address, slot, epoch))
		return true;
	/*
	 * The first region of both ends confirms no member after its file was truncated: its members continue
	 * as failover.h describes.
	 */
	return index == 0 && names(address, region) &&
	       atomic_load_explicit(&region->cut, memory_order_relaxed);
}

/* The preferred one of the regions that were not tried yet. */
static uint32_t next_region(const struct domain *domain, const struct address *address, const bool *tried)
{
	uint32_t best = domain->region_count;

	for (uint32_t i = 0; i < domain->region_count; i++)
		if (!tried[i] && (best == domain->region_count || comes_before(domain, address, i, best)))
			best = i;
	return best;
}

uint32_t domain_resolve(const struct domain *domain, const struct address *address, uint32_t *epoch)
{
	bool tried[ATTACHMENTS_MAX] = {false};
	uint32_t slot = 0;

	if (peer_beyond(domain, address) != NULL) {
		uint32_t met = domain_met(domain, address, epoch);
		return met < domain->members ? met : RESOLVE_NONE;
	}
	for (uint32_t n = 0; n < domain->region_count; n++) {
		uint32_t index = next_region(domain, address, tried);
		tried[index] = true;
		if (is_there(domain, index, address, &slot, epoch))
			return base_of(domain, index) + slot;
	}
	/*
	 * If the peer left and has no other route, it keeps its number in the region, and each send to it
	 * fails.
	 */
	bool other_route = address->core_length != 0 && domain->network != NETWORK_NONE &&
			   !domain_has(domain, address->nonce);
	for (uint32_t index = 0; index < domain->region_count && !other_route; index++)
		if (names(address, domain->regions[index])) {
			*epoch = address->epoch;
			return base_of(domain, index) + address->slot;
		}
	return RESOLVE_NONE;
}
