/* SPDX-License-Identifier: BSD-3-Clause */
/* route.c - members' addresses in the network, published in their sections. */
#include "region/route.h"

void member_publish_core(const struct member *self, const struct member_core *core)
{
	struct section_header *header = section_header(self->region, self->slot);
	uint32_t word = (uint32_t)core->provider | (uint32_t)core->length << 16 | (uint32_t)core->flags << 24;

	shared_copy_out(header->core_name, core->name, sizeof(core->name));
	/* Pairs with the acquire load in member_core(). */
	shared_release_u32(&header->core, word);
}

bool member_departed(const struct region *region, uint32_t slot, uint32_t epoch)
{
	uint64_t claim = shared_acquire_u64(&region_slot(region, slot)->claim);

	uint64_t route = shared_load_u64(&region_slot(region, slot)->requested_route);

	/* The manager may have changed its request since, or just when the member left. */
	return claim == ((uint64_t)epoch << 32 | SLOT_FREE) && (uint32_t)(route >> 32) == epoch &&
	       (uint32_t)route >= ROUTE_NETWORK && (uint32_t)route <= ROUTE_RETURN;
}

bool member_core(const struct region *region, uint32_t slot, uint32_t epoch, struct member_core *core)
{
	struct section_header *header = section_header(region, slot);
	/* Pairs with the release store in member_publish_core(). */
	uint32_t word = shared_acquire_u32(&header->core);

	*core = (struct member_core){
		.provider = (uint16_t)word,
		.length = (uint8_t)(word >> 16),
		.flags = (uint8_t)(word >> 24),
	};
	shared_copy_in(core->name, header->core_name, sizeof(core->name));
	return core->length > 0 && core->length <= MEMBER_CORE_MAX && member_is_intact(region, slot, epoch);
}
