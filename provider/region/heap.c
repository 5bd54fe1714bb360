/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c - blocks in the heaps of this process, their lifetime, and forks. */
#include "region/heap.h"

#include "region/late_writers.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * All heaps of the process: heaps of open endpoints, and heaps of closed endpoints that still have
 * blocks. The mutex guards the list and everything in it except the bounds of a heap. No function
 * that allocates or takes another lock is called with the mutex held.
 */
static struct heap *heaps;
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

/*
 * A forked child shares the mapping of the region, but it must not share the memory that the
 * application allocated: a write of the child would change the parent's data. So the child gets
 * private pages, which are copied when it writes. Until then it sees the parent's pages.
 */
static void make_private(const struct heap *heap)
{
	off_t offset = heap->base - heap->region->base;
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

static void unlink_heap(struct heap *heap)
{
	for (struct heap **link = &heaps; *link != NULL; link = &(*link)->next)
		if (*link == heap) {
			*link = heap->next;
			return;
		}
}

static void dispose(struct heap *heap)
{
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
		unlink_heap(heap);
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
	if (!holds)
		member_leave(member);
	if (empty)
		dispose(heap);
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

/* ---- blocks ---- */

static struct heap *heap_of(const void *address)
{
	for (struct heap *heap = heaps; heap != NULL; heap = heap->next)
		if ((uintptr_t)address - (uintptr_t)heap->base < heap->bytes)
			return heap;
	return NULL;
}

/* The page that begins at `address`; EXTENT_NONE if `address` is not the beginning of a page. */
static uint32_t page_of(const struct heap *heap, const void *address)
{
	uintptr_t distance = (uintptr_t)address - (uintptr_t)heap->base;

	return distance % REGION_PAGE == 0 ? (uint32_t)(distance / REGION_PAGE) : EXTENT_NONE;
}

static uint32_t pages_for(size_t bytes)
{
	/* `bytes` is at most the length of a heap. */
	return bytes == 0 ? 1 : (uint32_t)((bytes + REGION_PAGE - 1) / REGION_PAGE);
}

/*
 * Mark the pages up to `to` as handed out. Data of a former occupant of the slot must not be seen,
 * so pages that were never handed out are cleared. This function clears the pages before `first`,
 * because another thread may allocate them next. The caller clears the other pages, without the
 * lock. Returns the first page for the caller to clear.
 */
static uint32_t hand_out(struct heap *heap, uint32_t first, uint32_t to)
{
	uint32_t from = heap->handed;

	if (to <= from)
		return to;
	heap->handed = to;
	if (first <= from)
		return from;
	memset(heap->base + (size_t)from * REGION_PAGE, 0, (size_t)(first - from) * REGION_PAGE);
	return first;
}

/* Nanoseconds between two checks of a heap that late writers keep closed. */
#define LATE_WRITERS_INTERVAL UINT64_C(10000000)

/*
 * May the heap be used? Checked once, at the first allocation, and again while there are late
 * writers.
 */
static bool is_settled(struct heap *heap)
{
	if (__builtin_expect(heap->settled, 1))
		return true;
	uint64_t now = monotonic_now();
	if (now < heap->next_check)
		return false;
	heap->next_check = now + LATE_WRITERS_INTERVAL;
	heap->settled = !late_writers_may_be(heap->occupant);
	return heap->settled;
}

/*
 * Call with the lock held. `fresh` is the number of bytes at the end of the block that the caller
 * must clear.
 */
static unsigned char *take(struct heap *heap, size_t bytes, size_t alignment, size_t *fresh)
{
	if (!heap->open || bytes > heap->bytes || alignment > heap->bytes || !is_settled(heap))
		return NULL;
	uint32_t pages = pages_for(bytes);
	uint32_t first = extents_take(&heap->extents, pages,
				      alignment <= REGION_PAGE ? 1 : (uint32_t)(alignment / REGION_PAGE));

	if (first == EXTENT_NONE)
		return NULL;
	*fresh = (size_t)(first + pages - hand_out(heap, first, first + pages)) * REGION_PAGE;
	return heap->base + (size_t)first * REGION_PAGE;
}

static void *clear(unsigned char *block, size_t bytes, size_t fresh, bool zero)
{
	size_t whole = (size_t)pages_for(bytes) * REGION_PAGE;

	if (zero)
		fresh = whole;
	memset(block + (whole - fresh), 0, fresh);
	return block;
}

void *heap_allocate(struct heap *heap, size_t bytes, size_t alignment, bool zero)
{
	size_t fresh = 0;

	heaps_lock();
	unsigned char *block = take(heap, bytes, alignment, &fresh);
	heaps_unlock();
	return block != NULL ? clear(block, bytes, fresh, zero) : NULL;
}

void *heap_allocate_shared(size_t bytes, size_t alignment, bool zero)
{
	unsigned char *block = NULL;
	size_t fresh = 0;

	heaps_lock();
	for (struct heap *heap = heaps; heap != NULL && block == NULL; heap = heap->next)
		if (heap->shared)
			block = take(heap, bytes, alignment, &fresh);
	heaps_unlock();
	return block != NULL ? clear(block, bytes, fresh, zero) : NULL;
}

bool heap_contains(const void *address)
{
	heaps_lock();
	bool contains = heap_of(address) != NULL;
	heaps_unlock();
	return contains;
}

size_t heap_block_bytes(const void *address)
{
	heaps_lock();
	const struct heap *heap = heap_of(address);
	size_t pages = heap != NULL ? extents_length(&heap->extents, page_of(heap, address)) : 0;
	heaps_unlock();
	return pages * REGION_PAGE;
}

bool heap_resize(void *address, size_t bytes)
{
	bool done = false;
	unsigned char *fresh = NULL;
	size_t fresh_bytes = 0;

	heaps_lock();
	struct heap *heap = heap_of(address);
	if (heap != NULL && bytes <= heap->bytes) {
		uint32_t first = page_of(heap, address);
		uint32_t before = extents_length(&heap->extents, first);
		uint32_t pages = pages_for(bytes);
		/*
		 * A block whose endpoint is closed may shrink, but not grow, because growing is an
		 * allocation.
		 */
		if (before > 0 && !heap->inherited && (heap->open || pages <= before))
			done = extents_resize(&heap->extents, first, pages);
		if (done && pages > before) {
			uint32_t page = hand_out(heap, first, first + pages);
			fresh = heap->base + (size_t)page * REGION_PAGE;
			fresh_bytes = (size_t)(first + pages - page) * REGION_PAGE;
		}
	}
	heaps_unlock();
	if (fresh_bytes > 0)
		memset(fresh, 0, fresh_bytes);
	return done;
}

bool heap_release(void *address)
{
	bool done = false;
	bool last = false;

	heaps_lock();
	struct heap *heap = heap_of(address);
	if (heap != NULL && heap->inherited) {
		done = extents_length(&heap->extents, page_of(heap, address)) > 0;
	} else if (heap != NULL) {
		done = extents_give(&heap->extents, page_of(heap, address));
		last = done && heap->extents.count == 0 && heap->member != NULL;
		if (last)
			unlink_heap(heap);
	}
	heaps_unlock();
	if (last) {
		member_leave(heap->member);
		region_detach(heap->region);
		dispose(heap);
	}
	return done;
}

uint64_t heap_used(const struct heap *heap)
{
	heaps_lock();
	uint64_t pages = heap->extents.taken;
	heaps_unlock();
	return pages * REGION_PAGE;
}
