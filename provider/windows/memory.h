/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.h - memory for windows, in the heap of this member's section, and where the memory of other members
 * lies in this process.
 */
#ifndef VICINAL_WINDOWS_MEMORY_H
#define VICINAL_WINDOWS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region/shared.h"

/* Where memory lies in a region, for all its members. */
struct memory_place {
	uint64_t id[2];  /* the region's; zeros: the memory is in no region */
	uint64_t offset; /* in the heap of the member in `slot` */
	uint64_t bytes;
	uint32_t slot;
	uint32_t epoch;
};

/* VICINAL_WINDOWS: not set, or set to anything else, is MEMORY_BY_DEFAULT. */
enum memory_choice { MEMORY_BY_DEFAULT, MEMORY_ON, MEMORY_OFF };
enum memory_choice memory_choice(void);

/*
 * May windows use a region in this process? Not before the provider has offered one. By default, only a
 * region on one host that no guest maps: a guest's heap is small, and guests must be able to leave.
 */
bool memory_is_offered(void);

/*
 * Memory of `bytes` bytes in whole pages, at least one: a member that has a block stays in the region. NULL
 * if there is no region or no room in the heap, or if the manager asks the member to leave.
 */
void *memory_allocate(uint64_t bytes);

/* Does the manager ask this member to leave the region? */
bool memory_is_leaving(void);

/* Releases a block of memory_allocate(). Returns false, and does nothing, for other addresses. */
bool memory_release(void *address);

/*
 * The place of `bytes` bytes from `address` on. No bytes have a place too, if a region was offered. Returns
 * false if not all of them lie in this member's heap.
 */
bool memory_find(const void *address, uint64_t bytes, struct memory_place *place);

/*
 * Has the member whose memory lies there left the region, or died? Or has this process lost the region? Asks
 * the kernel. `heartbeat` has two words for this function, zeroed at first.
 */
bool memory_is_gone(uint32_t slot, uint32_t epoch, uint64_t heartbeat[2]);

/*
 * The word that shows whether a heap is still that of the member in `slot`: its upper half is the member's
 * epoch. A rank that died may have a successor, whose memory must not be touched.
 */
const shared_u64 *memory_claim(uint32_t slot);

/* The address of a peer's memory; NULL if a part of it lies outside the peer's heap, or in another region. */
unsigned char *memory_map(const struct memory_place *place);

#endif
