/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * place.c - where an address is reached: in which of our regions, if it is in any, or beyond them.
 *
 * Both ends of a pair must come to the same answer, or each would take the other for two. So all that
 * counts is what both know: which regions they share, and whose first one each of those is. First comes the
 * one that both have first, then those that one of them has first, then the others; and among equals the
 * one with the lower id. That one which both have first comes before all others has another reason: there
 * nobody else can pose as a member without writing over its section, and elsewhere whoever knows its nonce
 * can say that it is that member in a section of its own.
 */
#include "api/provider.h"
#include "region/identity.h"

bool domain_has(const struct domain *domain, uint64_t nonce)
{
	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL && endpoint->messenger->path->ports[0].member->nonce == nonce)
			return true;
	return false;
}

static bool names(const struct address *address, const struct region *region)
{
	return address->region[0] == region->id[0] && address->region[1] == region->id[1] &&
	       address->slot < region->members;
}

/* Of how many of the two is our region `index` the first? */
static unsigned homes(const struct domain *domain, uint32_t index, const struct address *address)
{
	return (unsigned)(index == 0) + (unsigned)names(address, domain->regions[index]);
}

static bool comes_before(const struct domain *domain, const struct address *address, uint32_t one,
			 uint32_t other)
{
	unsigned homes_of_one = homes(domain, one, address);
	unsigned homes_of_other = homes(domain, other, address);
	const uint64_t *id = domain->regions[one]->id;
	const uint64_t *other_id = domain->regions[other]->id;

	if (homes_of_one != homes_of_other)
		return homes_of_one > homes_of_other;
	return id[0] != other_id[0] ? id[0] < other_id[0] : id[1] < other_id[1];
}

static void say_contested(const struct region *region)
{
	static atomic_bool said;

	provider_say_once(&said,
			  "two members of region %.1024s say that they are one and the same endpoint of "
			  "another region, so "
			  "one of them lies: that endpoint is reached over the network; 'vicinal region "
			  "check' names both",
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

/* Does somebody say there that it is one of us? Then peers do not take that region for us, nor we for them.
 */
static bool are_contested(const struct domain *domain, const struct region *region)
{
	uint32_t slot = 0;
	uint32_t epoch = 0;

	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next) {
		if (endpoint->messenger == NULL)
			continue;
		struct member_identity own = member_identity_of(endpoint->messenger->path->ports[0].member);
		if (find(region, &own, &slot, &epoch) == MEMBER_CONTESTED)
			return true;
	}
	return false;
}

/* Is it in our region `index`? Where, and in which epoch? */
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

	if (index != 0 && are_contested(domain, region))
		return false;
	if (!names(address, region))
		return !atomic_load_explicit(&region->cut, memory_order_relaxed) &&
		       find(region, &identity, slot, epoch) == MEMBER_FOUND;
	*slot = address->slot;
	*epoch = address->epoch;
	/* The first of both confirms nobody once its file was cut: its members go on as renew.h has it. */
	return member_confirm(region, address->slot, address->epoch, address->nonce) ||
	       (index == 0 && atomic_load_explicit(&region->cut, memory_order_relaxed));
}

/* The number of its member in slot 0. */
static uint32_t base_of(const struct domain *domain, uint32_t index)
{
	uint32_t base = 0;

	for (uint32_t i = 0; i < index; i++)
		base += domain->regions[i]->members;
	return base;
}

/* One of those that were not tried yet: the one that comes first. */
static uint32_t next_region(const struct domain *domain, const struct address *address, const bool *tried)
{
	uint32_t best = domain->region_count;

	for (uint32_t i = 0; i < domain->region_count; i++)
		if (!tried[i] && (best == domain->region_count || comes_before(domain, address, i, best)))
			best = i;
	return best;
}

uint32_t domain_place(const struct domain *domain, const struct address *address, uint32_t *epoch)
{
	bool tried[PATH_PORTS_MOST] = {false};
	uint32_t slot = 0;

	for (uint32_t n = 0; n < domain->region_count; n++) {
		uint32_t index = next_region(domain, address, tried);
		tried[index] = true;
		if (is_there(domain, index, address, &slot, epoch))
			return base_of(domain, index) + slot;
	}
	/* One that is not there any more, and that there is no other way to: its sends fail, one by one. */
	bool other_way = address->core_length != 0 && domain->network != NETWORK_NONE &&
			 !domain_has(domain, address->nonce);
	for (uint32_t index = 0; index < domain->region_count && !other_way; index++)
		if (names(address, domain->regions[index])) {
			*epoch = address->epoch;
			return base_of(domain, index) + address->slot;
		}
	return PLACE_NONE;
}
