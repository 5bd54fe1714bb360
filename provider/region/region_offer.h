/* SPDX-License-Identifier: BSD-3-Clause */
/* region_offer.h - collectives use the region's heaps if libvicinal-mpi.so was preloaded. */
#ifndef VICINAL_REGION_REGION_OFFER_H
#define VICINAL_REGION_REGION_OFFER_H

#include "region/heap.h"

/* Was the library preloaded? */
bool region_is_wanted(void);

/*
 * Tell the library about the region of an endpoint with this heap. `timeout` (nanoseconds) is how long a
 * heartbeat may stand still before its member counts as dead. For `wait_elsewhere` see region_source.h.
 * Returns 0, -ENOENT if the library was not preloaded, -EBUSY if it has a region already, or another negative
 * errno with a text.
 */
int region_offer(struct heap *heap, struct member *member, uint64_t timeout, void (*wait_elsewhere)(bool),
		 struct region_error *error);

/*
 * Called now and then while the endpoint may leave the region, or other members may. `leave`: the manager
 * asks this member to leave. The library releases its blocks of the heap, so that the member can. Returns the
 * number of blocks that only the program can release, because its windows lie there.
 */
uint32_t region_attend(const struct region *region, bool leave);

/* The endpoint with this heap, which may be NULL, is being closed: the library allocates from it no more. */
void region_withdraw(const struct heap *heap);

/*
 * Publish in the section of the endpoint with this heap, which may be NULL, what this process has done
 * through the region without messages, if the library uses this heap.
 */
void region_publish_counts(const struct heap *heap, const struct member *member);

#endif
