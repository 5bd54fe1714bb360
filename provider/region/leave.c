/* SPDX-License-Identifier: BSD-3-Clause */
/* leave.c - see leave.h. */
#include "region/leave.h"

#include <sys/mman.h>
#include <unistd.h>

#include "region/doorbell.h"
#include "region/guard.h"
#include "region/heap.h"

/* Guards the lists of members in regions. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void leave_lock(void)
{
	(void)pthread_mutex_lock(&mutex);
}

void leave_unlock(void)
{
	(void)pthread_mutex_unlock(&mutex);
}

void leave_add(struct member *member)
{
	leave_lock();
	member->next_joined = member->region->joined;
	member->region->joined = member;
	leave_unlock();
}

void leave_remove(struct member *member)
{
	leave_lock();
	for (struct member **link = &member->region->joined; *link != NULL; link = &(*link)->next_joined)
		if (*link == member) {
			*link = member->next_joined;
			break;
		}
	leave_unlock();
}

static bool all_ready(const struct region *region)
{
	bool ready = region->joined != NULL;

	for (const struct member *member = region->joined; member != NULL; member = member->next_joined)
		ready = ready && member->ready;
	return ready;
}

/* Copy only pages that are not empty: sections are long, and mostly unused. */
static void copy_pages(unsigned char *to, const unsigned char *from, size_t bytes)
{
	static const unsigned char empty[REGION_PAGE];
	unsigned char page[REGION_PAGE];

	for (size_t at = 0; at < bytes; at += sizeof(page)) {
		shared_copy_in(page, (const shared_bytes *)(from + at), sizeof(page));
		if (memcmp(page, empty, sizeof(page)) != 0)
			memcpy(to + at, page, sizeof(page));
	}
}

/*
 * A private copy of the region that contains only this process's members. NULL if no memory is
 * left.
 */
static unsigned char *copy_ours(const struct region *region)
{
	unsigned char *copy = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (copy == MAP_FAILED)
		return NULL;
	for (const struct member *member = region->joined; member != NULL; member = member->next_joined) {
		size_t section = region->sections_offset + member->slot * region->section_bytes;
		struct member_slot *slots = (struct member_slot *)(void *)(copy + REGION_SLOTS_OFFSET);
		copy_pages(copy + section, region->base + section, section_arena_end(region));
		shared_store_u64(&slots[member->slot].claim, (uint64_t)member->epoch << 32 | SLOT_JOINED);
	}
	return copy;
}

static void give_back(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void free_slot(struct member *member)
{
	shared_u64 *claim = &region_slot(member->region, member->slot)->claim;
	uint64_t epoch = (uint64_t)member->epoch << 32;

	/*
	 * Fails if another member has the slot, because it took this one for dead. Releases all
	 * that was written there.
	 */
	(void)shared_claim_u64(claim, epoch | SLOT_JOINED, epoch | SLOT_FREE);
	give_back(&member->lock_fd);
}

static void start_hearts(const struct region *region)
{
	for (struct member *member = region->joined; member != NULL; member = member->next_joined)
		if (region->kind != REGION_FILE)
			(void)member_start_again(member);
}

static bool leave(struct region *region)
{
	/*
	 * Stop the heartbeats: a beat after the copy would be lost, and must not be written once
	 * the slot is free.
	 */
	for (struct member *member = region->joined; member != NULL; member = member->next_joined)
		member_still(member);
	unsigned char *copy = copy_ours(region);
	if (copy == NULL) {
		start_hearts(region);
		return false;
	}
	doorbell_detach(region);
	for (struct member *member = region->joined; member != NULL; member = member->next_joined)
		free_slot(member);
	guard_forget(region);
	/* The same number of pages, all of this process: the call cannot run out of memory. */
	if (mremap(copy, region->bytes, region->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, region->base) ==
	    MAP_FAILED)
		return false;
	give_back(&region->fd);
	region->left = true;
	return true;
}

bool region_leave(struct region *region)
{
	if (region->left)
		return true;
	if (region->lost || atomic_load_explicit(&region->cut, memory_order_relaxed))
		return false;
	leave_lock();
	bool left = all_ready(region) && heaps_vacate(region) && leave(region);
	leave_unlock();
	return left;
}
