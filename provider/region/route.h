/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route.h - what members need to know to reach each other without the region, for a while: what the
 * manager wants, and where they are in the network. docs/explanation/network.md, "Switching transport".
 */
#ifndef VICINAL_REGION_ROUTE_H
#define VICINAL_REGION_ROUTE_H

#include "region/member.h"

/* Of a name in the network: an address of the core. */
#define MEMBER_CORE_MAX 28U

/* As in section_header.core and core_name. */
struct member_core {
	uint16_t provider;
	uint8_t length; /* 0: it is in no network */
	uint8_t flags;
	uint8_t name[MEMBER_CORE_MAX];
};

/* How the manager wants the member (slot, epoch) to be reached: as in member_slot.requested_route. */
static inline enum requested_route member_requested_route(const struct region *region, uint32_t slot,
							  uint32_t epoch)
{
	uint64_t route = shared_load_u64(&region_slot(region, slot)->requested_route);

	if (route >> 32 != epoch)
		return ROUTE_REGION;
	return (uint32_t)route == ROUTE_NETWORK || (uint32_t)route == ROUTE_LEAVE
		       ? (enum requested_route)(uint32_t)route
		       : ROUTE_REGION;
}

/* Is the member (slot, epoch) not in the region any more because the manager wanted it to leave for the
 * network? */
bool member_departed(const struct region *region, uint32_t slot, uint32_t epoch);

/* Say where we are in the network. Once. */
void member_publish_core(const struct member *self, const struct member_core *core);

/*
 * Where the member (slot, epoch) says that it is. False if it is in none, or gone. A process that may write
 * the region may have written it: it can name any place in the network.
 */
bool member_core(const struct region *region, uint32_t slot, uint32_t epoch, struct member_core *core);

#endif
