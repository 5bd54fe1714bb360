/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_blocks.c - allocates, resizes and frees the blocks of the heaps. */
#include "region/heap_list.h"
#include "region/late_writers.h"

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
			heap_unlink(heap);
	}
	heaps_unlock();
	if (last) {
		member_leave(heap->member);
		region_detach(heap->region);
		heap_dispose(heap);
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
