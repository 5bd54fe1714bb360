/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * identity.h - finds a member whose address names another region.
 *
 * An endpoint may be in several regions. Its address names the first region, and its slot and epoch
 * there. In each other region, the endpoint's section has the same words and the nonce. A member
 * that looks for the endpoint believes a section only if all words agree, and none if two sections
 * have the same words.
 */
#ifndef VICINAL_REGION_IDENTITY_H
#define VICINAL_REGION_IDENTITY_H

#include "region/member.h"

/* The identity of an endpoint, from its address: see struct address in api/provider.h. */
struct member_identity {
	uint64_t region[2];
	uint32_t slot;
	uint32_t epoch;
	uint64_t nonce;
};

enum member_found {
	MEMBER_ABSENT,
	MEMBER_FOUND,
	MEMBER_CONTESTED, /* several sections have this identity, so at least one of them is false */
};

static inline struct member_identity member_identity_of(const struct member *first)
{
	return (struct member_identity){
		.region = {first->region->id[0], first->region->id[1]},
		.slot = first->slot,
		.epoch = first->epoch,
		.nonce = first->nonce,
	};
}

/*
 * The identity that the member in `slot`, with this epoch and nonce, publishes: the region that it
 * joined first, and its slot and epoch there. The words may change during the read, or be false;
 * then no address matches them.
 */
struct member_identity member_identity_said(const struct region *region, uint32_t slot, uint32_t epoch,
					    uint64_t nonce);

/*
 * Look for a member in a region that it did not join first. If it is found, *slot and *epoch are
 * its slot and epoch in this region, also if it has left. Reads each slot once.
 */
enum member_found member_find(const struct region *region, const struct member_identity *identity,
			      uint32_t *slot, uint32_t *epoch);

/*
 * A pair of endpoints shares two regions. Does the pair use `one`? `home` and `other_home` are the
 * ids of the regions that the two endpoints joined first. See api/resolve.c.
 */
bool identity_prefers(const struct region *one, const struct region *other, const uint64_t home[2],
		      const uint64_t other_home[2]);

#endif
