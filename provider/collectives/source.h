/* SPDX-License-Identifier: BSD-3-Clause */
/* source.h - the region that the provider offers to this process, for collectives and windows. */
#ifndef VICINAL_COLLECTIVES_SOURCE_H
#define VICINAL_COLLECTIVES_SOURCE_H

#include "preload/region_source.h"
#include "region/shared.h"

/* Is there a region, and may blocks of its heap be allocated? */
bool source_is_offered(void);

/* The region that was offered last. All zero before the first offer; constant while source_is_offered(). */
const struct region_source *source_region(void);

/* The heap of the member in `slot`, which is less than `members`. */
unsigned char *source_heap(uint32_t slot);

/* The claim word of the member in `slot`: its upper half is the epoch of the slot's owner. */
const shared_u64 *source_claim(uint32_t slot);

/* Does the manager ask this member to leave the region? Then nothing new is to be allocated there. */
bool source_is_leaving(void);
void source_set_leaving(bool leave);

/*
 * Adds to the number of blocks that only the program can release: the manager is told what keeps this member
 * in the region. Returns the number.
 */
uint32_t source_count_kept(int more);

/* A block of this member's heap; NULL if there is no region, or no room. Any thread may call it. */
void *source_allocate(size_t bytes);

#endif
