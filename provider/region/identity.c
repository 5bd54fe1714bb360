/* SPDX-License-Identifier: BSD-3-Clause */
/* identity.c - see identity.h. */
#include "region/identity.h"

/*
 * Does the member in `slot` have this identity? Each word is loaded once, and is valid only if its
 * writer still has the slot.
 */
static bool claims(const struct region *region, uint32_t slot, const struct member_identity *identity,
		   uint32_t *epoch)
{
	const struct section_header *header = section_header(region, slot);
	uint64_t nonce = 0;

	if (!member_identify(region, slot, epoch, &nonce) || nonce != identity->nonce)
		return false;
	bool agrees = shared_load_u64(&header->home[0]) == identity->region[0] &&
		      shared_load_u64(&header->home[1]) == identity->region[1] &&
		      shared_load_u32(&header->home_slot) == identity->slot &&
		      shared_load_u32(&header->home_epoch) == identity->epoch;
	return agrees && member_is_intact(region, slot, *epoch);
}

struct member_identity member_identity_said(const struct region *region, uint32_t slot, uint32_t epoch,
					    uint64_t nonce)
{
	const struct section_header *header = section_header(region, slot);
	const uint32_t home_epoch = shared_load_u32(&header->home_epoch);

	/* As in member_find(): the member joined this region first. */
	if (home_epoch == 0)
		return (struct member_identity){
			.region = {region->id[0], region->id[1]},
			.slot = slot,
			.epoch = epoch,
			.nonce = nonce,
		};
	return (struct member_identity){
		.region = {shared_load_u64(&header->home[0]), shared_load_u64(&header->home[1])},
		.slot = shared_load_u32(&header->home_slot),
		.epoch = home_epoch,
		.nonce = nonce,
	};
}

enum member_found member_find(const struct region *region, const struct member_identity *identity,
			      uint32_t *slot, uint32_t *epoch)
{
	enum member_found found = MEMBER_ABSENT;

	/*
	 * Epochs count from 1. A section with home_epoch 0 belongs to a member that joined this
	 * region first.
	 */
	if (identity->epoch == 0)
		return MEMBER_ABSENT;
	for (uint32_t i = 0; i < region->members; i++) {
		uint32_t its_epoch = 0;
		if (!claims(region, i, identity, &its_epoch))
			continue;
		if (found == MEMBER_FOUND)
			return MEMBER_CONTESTED;
		found = MEMBER_FOUND;
		*slot = i;
		*epoch = its_epoch;
	}
	return found;
}

static bool is_region(const struct region *region, const uint64_t id[2])
{
	return region->id[0] == id[0] && region->id[1] == id[1];
}

bool identity_prefers(const struct region *one, const struct region *other, const uint64_t home[2],
		      const uint64_t other_home[2])
{
	unsigned homes = (unsigned)is_region(one, home) + (unsigned)is_region(one, other_home);
	unsigned other_homes = (unsigned)is_region(other, home) + (unsigned)is_region(other, other_home);

	if (homes != other_homes)
		return homes > other_homes;
	return one->id[0] != other->id[0] ? one->id[0] < other->id[0] : one->id[1] < other->id[1];
}
