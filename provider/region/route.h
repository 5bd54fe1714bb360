/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route.h - what members need to reach each other over the network for a while: the manager's
 * request, and addresses in the network. docs/explanation/network.md, "Switching transport".
 */
#ifndef VICINAL_REGION_ROUTE_H
#define VICINAL_REGION_ROUTE_H

#include "region/member.h"

/* The maximum length of a name in the network, which is an address of the core provider. */
#define MEMBER_CORE_MAX 28U

/* As in section_header.core and core_name. */
struct member_core {
	uint16_t provider;
	uint8_t length; /* 0: the member is in no network */
	uint8_t flags;
	uint8_t name[MEMBER_CORE_MAX];
};

/*
 * The route that the manager requests for the member (slot, epoch): see
 * member_slot.requested_route.
 */
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

/* Has the member (slot, epoch) left the region because the manager requested the network for it? */
bool member_departed(const struct region *region, uint32_t slot, uint32_t epoch);

/* Publish our address in the network. Call once. */
void member_publish_core(const struct member *self, const struct member_core *core);

/*
 * Read the published network address of the member (slot, epoch). Returns false if it has none, or
 * is gone. Any process that may write the region may have written the address, so it can name any
 * host.
 */
bool member_core(const struct region *region, uint32_t slot, uint32_t epoch, struct member_core *core);

#endif
