/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c - the heaps of this process, their lifetime, and forks. heap_blocks.c has their blocks. */
#include "region/heap.h"

#include "region/heap_list.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * All heaps of the process: heaps of open endpoints, and heaps of closed endpoints that still have
 * blocks. The mutex guards the list and everything in it except the bounds of a heap. No function
 * that allocates or takes another lock is called with the mutex held. It is not held while pages of
 * a block are reserved or given back: the block is allocated meanwhile, so its heap stays and no
 * other thread touches its pages.
 */
struct heap *heaps;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- fork ---- */

void heaps_lock(void)
{
	(void)pthread_mutex_lock(&mutex);
}

void heaps_unlock(void)
{
	(void)pthread_mutex_unlock(&mutex);
}

void heaps_before_fork(void)
{
	heaps_lock();
	/*
	 * A hole in a file of huge pages takes the child's private copies of the pages too. Elsewhere
	 * it takes only shared pages.
	 */
	for (struct heap *heap = heaps; heap != NULL; heap = heap->next)
		heap->backing.keeps = heap->backing.keeps || heap->backing.unit > 1;
}

/*
 * A forked child shares the mapping of the region, but it must not share the memory that the
 * application allocated: a write of the child would change the parent's data. So the child gets
 * private pages, which are copied when it writes. Until then it sees the parent's pages.
 */
static void make_private(const struct heap *heap)
{
	off_t offset = (off_t)heap->region->offset + (heap->base - heap->region->base);
	const int access = PROT_READ | PROT_WRITE;

	if (mmap(heap->base, heap->bytes, access, MAP_PRIVATE | MAP_FIXED, heap->region->fd, offset) !=
	    MAP_FAILED)
		return;
	/*
	 * Not every device can be mapped privately. Then copy the pages that were ever handed out.
	 */
	size_t handed = (size_t)heap->handed * REGION_PAGE;
	void *copy = mmap(NULL, heap->bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (copy == MAP_FAILED)
		return;
	memcpy(copy, heap->base, handed);
	(void)mremap(copy, heap->bytes, heap->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, heap->base);
}

/* Call with the lock held. No further block is allocated from the heap. */
static void stop(struct heap *heap)
{
	heap->open = false;
	heap->shared = false;
}

void heaps_after_fork(void)
{
	for (struct heap *heap = heaps; heap != NULL; heap = heap->next) {
		/* The heap is already private if the parent had inherited it. */
		if (!heap->inherited)
			make_private(heap);
		/* The heaps of open endpoints are lost with the endpoints' transports. */
		if (heap->member != NULL)
			member_after_fork(heap->member);
		heap->inherited = true;
		stop(heap);
	}
}

/* ---- lifetime ---- */

int heap_open(struct heap **opened, const struct member *occupant, struct region_error *error)
{
	struct region *region = occupant->region;

	*opened = NULL;
	if (region->heap_bytes == 0)
		return 0;
	/* A guest cannot reserve pages on its host. No creator combines the two. */
	if (region->sparse_heaps && region->kind != REGION_FILE)
		return 0;
	struct heap *heap = calloc(1, sizeof(*heap));
	uint64_t offset = section_arena_end(region);
	unsigned char *base = region_section(region, occupant->slot) + offset;

	if (heap == NULL || extents_open(&heap->extents, (uint32_t)(region->heap_bytes / REGION_PAGE),
					 (uintptr_t)base / REGION_PAGE) != 0) {
		free(heap);
		return region_fail(error, -ENOMEM,
				   "no memory is left to look after a heap of %llu bytes: "
				   "free some",
				   (unsigned long long)region->heap_bytes);
	}
	heap->base = base;
	heap->bytes = region->heap_bytes;
	heap->offset = offset;
	heap->slot = occupant->slot;
	heap->epoch = occupant->epoch;
	heap->region = region;
	heap->occupant = occupant;
	heap->open = true;
	heaps_lock();
	/*
	 * Append: malloc() uses the first heap, and a program's first endpoint carries its
	 * messages.
	 */
	struct heap **last = &heaps;
	while (*last != NULL)
		last = &(*last)->next;
	*last = heap;
	heaps_unlock();
	*opened = heap;
	return 0;
}

void heap_unlink(struct heap *heap)
{
	for (struct heap **link = &heaps; *link != NULL; link = &(*link)->next)
		if (*link == heap) {
			*link = heap->next;
			return;
		}
}

bool heap_is_ours(const struct heap *heap)
{
	uint64_t claim = shared_load_u64(&region_slot(heap->region, heap->slot)->claim);

	return !heap->inherited && (uint32_t)(claim >> 32) == heap->epoch && (uint32_t)claim != SLOT_FREE;
}

void heap_give_all_back(const struct heap *heap)
{
	if (heap->backing.reserved != 0 && !heap->backing.keeps && heap_is_ours(heap))
		(void)backing_punch(&heap->backing, 0, heap->backing.pages);
}

void heap_dispose(struct heap *heap)
{
	backing_close(&heap->backing);
	extents_close(&heap->extents);
	free(heap);
}

void heap_share(struct heap *heap)
{
	heaps_lock();
	heap->shared = heap->open;
	heaps_unlock();
}

void heap_stop(struct heap *heap)
{
	heaps_lock();
	stop(heap);
	heaps_unlock();
}

bool heaps_vacate(const struct region *region)
{
	bool empty = true;

	heaps_lock();
	for (const struct heap *heap = heaps; heap != NULL; heap = heap->next)
		empty = empty && (heap->region != region || heap->extents.count == 0);
	for (struct heap *heap = heaps; heap != NULL && empty; heap = heap->next)
		if (heap->region == region)
			stop(heap);
	heaps_unlock();
	return empty;
}

void heap_leave(struct heap *heap, struct member *member)
{
	heaps_lock();
	stop(heap);
	bool empty = heap->extents.count == 0;
	bool holds = !empty && !heap->inherited;
	if (empty)
		heap_unlink(heap);
	else
		region_hold(heap->region);
	if (holds) {
		/*
		 * Under the lock, because another thread may release the last block at once, and
		 * with it the member.
		 */
		member_hold(member);
		heap->member = member;
	}
	heaps_unlock();
	if (empty)
		heap_give_all_back(heap);
	if (!holds)
		member_leave(member);
	if (empty)
		heap_dispose(heap);
}

/*
 * ---- the location of memory ----
 */

/* Compares addresses without an overflow at the end of the address space. */
static bool overlap(const struct heap *heap, uintptr_t address, uint64_t length, struct heap_part *part)
{
	uintptr_t base = (uintptr_t)heap->base;
	uint64_t before = address < base ? base - address : 0;
	uint64_t skipped = address > base ? address - base : 0;

	if (heap->inherited || before >= length || skipped >= heap->bytes)
		return false;
	*part = (struct heap_part){
		.before = before,
		.length = length - before < heap->bytes - skipped ? length - before : heap->bytes - skipped,
		.offset = heap->offset + skipped,
		.slot = heap->slot,
		.epoch = heap->epoch,
	};
	return true;
}

bool heap_overlap(const struct heap *first, const struct region *region, const void *address, uint64_t length,
		  struct heap_part *part)
{
	bool found = false;

	heaps_lock();
	if (first != NULL)
		found = overlap(first, (uintptr_t)address, length, part);
	for (const struct heap *heap = heaps; heap != NULL && !found; heap = heap->next)
		/* Compare ids, because each domain has its own mapping. */
		if (heap->region->id[0] == region->id[0] && heap->region->id[1] == region->id[1])
			found = overlap(heap, (uintptr_t)address, length, part);
	heaps_unlock();
	return found;
}
