/* SPDX-License-Identifier: BSD-3-Clause */
/* region_offer.c - see region_offer.h, and preload/region_source.h for the other side. */
#include "region/region_offer.h"

#include <dlfcn.h>
#include <errno.h>

#include "preload/region_source.h"

/* The same for all endpoints of the process. Stored before the first offer. */
static uint64_t peer_timeout;

/* The region that the library took, the heap of the endpoint that offered it, and the library's functions. */
static const struct region *_Atomic offered;
static const struct heap *_Atomic offered_heap;
static region_attend_function *attend;
static region_counts_function *counts_of;

static void *allocate(void *heap, size_t bytes, size_t alignment, bool zero)
{
	return heap_allocate(heap, bytes, alignment, zero);
}

static bool is_gone(void *member, uint32_t slot, uint32_t epoch, uint64_t heartbeat[2])
{
	const struct region *region = ((const struct member *)member)->region;
	struct last_heartbeat last = {.heartbeat = heartbeat[0], .since = heartbeat[1]};

	/* Private memory has replaced the region, and shows nothing that a peer does. */
	if (region->left || region->lost || atomic_load_explicit(&region->cut, memory_order_relaxed))
		return true;
	enum member_state state = member_observe(member, slot, epoch, &last, monotonic_now(), peer_timeout);

	heartbeat[0] = last.heartbeat;
	heartbeat[1] = last.since;
	return state == MEMBER_LEFT || state == MEMBER_DIED;
}

/* Stores the library's function `name` in *function, a pointer to a function; NULL without the library. */
static void find_function(const char *name, void *function)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	/* ISO C has no conversion from an object's address to a function's; POSIX has dlsym(). */
	memcpy(function, &symbol, sizeof(symbol));
}

bool region_is_wanted(void)
{
	region_offer_function *offer = NULL;

	find_function(REGION_OFFER_NAME, &offer);
	return offer != NULL;
}

int region_offer(struct heap *heap, struct member *member, uint64_t timeout, void (*wait_elsewhere)(bool),
		 struct region_error *error)
{
	region_offer_function *offer = NULL;
	const struct region *region = heap->region;

	find_function(REGION_OFFER_NAME, &offer);
	if (offer == NULL)
		return -ENOENT;
	peer_timeout = timeout;
	const struct region_source source = {
		.version = REGION_SOURCE_VERSION,
		.members = region->members,
		.slot = member->slot,
		.epoch = member->epoch,
		.id = {region->id[0], region->id[1]},
		.first_heap = region_section(region, 0) + section_arena_end(region),
		.section_bytes = region->section_bytes,
		.heap_bytes = region->heap_bytes,
		.first_claim = &region_slot(region, 0)->claim,
		.claim_bytes = sizeof(struct member_slot),
		.sparse_heaps = region->sparse_heaps,
		.heap = heap,
		.member = member,
		.allocate = allocate,
		.release = heap_release,
		.is_gone = is_gone,
		.wait_elsewhere = wait_elsewhere,
	};
	find_function(REGION_ATTEND_NAME, &attend);
	find_function(REGION_COUNTS_NAME, &counts_of);
	int result = offer(&source);
	if (result == 0) {
		atomic_store(&offered, region);
		atomic_store(&offered_heap, heap);
	}
	if (result == -EPROTONOSUPPORT)
		return region_fail(error, result,
				   "libvicinal-mpi.so and the provider are of different versions: name the "
				   "library beside the provider in LD_PRELOAD");
	return result;
}

uint32_t region_attend(const struct region *region, bool leave)
{
	if (attend == NULL || atomic_load_explicit(&offered, memory_order_relaxed) != region)
		return 0;
	return attend(leave);
}

void region_publish_counts(const struct heap *heap, const struct member *member)
{
	struct section_header *header = section_header(member->region, member->slot);
	struct region_counts counts;

	if (counts_of == NULL || heap == NULL ||
	    atomic_load_explicit(&offered_heap, memory_order_relaxed) != heap)
		return;
	counts_of(&counts);
	shared_store_u64(&header->collectives, counts.collectives);
	shared_store_u64(&header->collective_bytes, counts.collective_bytes);
	shared_store_u64(&header->one_sided, counts.one_sided);
	shared_store_u64(&header->one_sided_bytes, counts.one_sided_bytes);
}

void region_withdraw(const struct heap *heap)
{
	region_withdraw_function *withdraw = NULL;

	find_function(REGION_WITHDRAW_NAME, &withdraw);
	if (heap != NULL && atomic_load(&offered_heap) == heap)
		atomic_store(&offered_heap, NULL);
	if (withdraw != NULL && heap != NULL)
		withdraw(heap);
}
