/* SPDX-License-Identifier: BSD-3-Clause */
/* late_writers.c - see late_writers.h. */
#include "region/late_writers.h"

#include "region/transfer.h"

/*
 * While the owner of the line writes for a predecessor, no word of the line changes. So the words
 * may be loaded one after the other.
 */
static bool claims_our_heap(const struct member *self, const struct transfer_line *line)
{
	uint64_t peer = shared_load_u64(&line->peer);

	return shared_load_u64(&line->id) != 0 && (uint32_t)peer == self->slot &&
	       (uint32_t)(peer >> 32) != self->epoch &&
	       shared_load_u64(&line->claimed) < shared_load_u64(&line->done);
}

/* One-sided operations: see exposure.h. */
static bool reaches_into_our_heap(const struct member *self, uint32_t slot)
{
	uint64_t reaching = shared_load_u64(&section_header(self->region, slot)->reaching);

	return (uint32_t)reaching == self->slot && reaching != 0 && (uint32_t)(reaching >> 32) != self->epoch;
}

static bool has_claim(const struct member *self, uint32_t slot)
{
	if (reaches_into_our_heap(self, slot))
		return true;
	for (uint32_t index = 0; index < REGION_TRANSFERS; index++)
		if (claims_our_heap(self, section_transfer(self->region, slot, index)))
			return true;
	return false;
}

bool late_writers_may_be(const struct member *self)
{
	const struct region *region = self->region;

	/*
	 * Every member sees our claim word before we read their claims. Pairs with
	 * transfer_fence().
	 */
	shared_fence_full();
	for (uint32_t slot = 0; slot < region->members; slot++) {
		uint32_t epoch = 0;
		uint64_t nonce = 0;
		/*
		 * No time has passed for this heartbeat, so only a lock or the host's manager can
		 * report a death.
		 */
		struct last_heartbeat last_heartbeat = {0};
		if (slot != self->slot && member_identify(region, slot, &epoch, &nonce) &&
		    has_claim(self, slot) &&
		    member_observe(self, slot, epoch, &last_heartbeat, 0, 0) == MEMBER_ALIVE)
			return true;
	}
	return false;
}
