/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * identity.h - finding a member of a region that is in another one first, and named by that in its
 * address.
 *
 * An endpoint may be in several regions. Its address says the first of them, and its slot and epoch
 * there; in each of the others its section says the same, beside the nonce. Who looks for it believes a
 * section only if all of that agrees, and nobody if two sections say so.
 */
#ifndef VICINAL_REGION_IDENTITY_H
#define VICINAL_REGION_IDENTITY_H

#include "region/member.h"

/* An endpoint by its address: see struct address in api/provider.h. */
struct member_identity {
	uint64_t region[2];
	uint32_t slot;
	uint32_t epoch;
	uint64_t nonce;
};

enum member_found {
	MEMBER_ABSENT,
	MEMBER_FOUND,
	MEMBER_CONTESTED, /* several say that they are it: somebody lies */
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
 * Who is in `slot`, with this epoch and nonce, by its own words: the region that it was first in, and its
 * place there. They may change while they are read, or be a lie; then nobody has an address that is the same.
 */
struct member_identity member_identity_said(const struct region *region, uint32_t slot, uint32_t epoch,
					    uint64_t nonce);

/*
 * Look for it in a region that it was not first in. Where it is found, *slot and *epoch are those that it
 * has, or had until it left, in this one. One look at each slot, whatever stands there.
 */
enum member_found member_find(const struct region *region, const struct member_identity *identity,
			      uint32_t *slot, uint32_t *epoch);

/*
 * Of two regions that a pair of endpoints shares: is it `one` through which they reach each other? `home` and
 * `other_home` are the ids of the regions that they joined first. See api/resolve.c.
 */
bool identity_prefers(const struct region *one, const struct region *other, const uint64_t home[2],
		      const uint64_t other_home[2]);

#endif
