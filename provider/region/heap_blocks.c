/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_blocks.c - allocates, resizes and frees the blocks of the heaps. */
#include <errno.h>

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
 * so pages that were never handed out are cleared, except in a sparse heap, where they are zero.
 * This function clears the pages before `first`, because another thread may allocate them next. The
 * caller clears the other pages, without the lock. Returns the first page for the caller to clear.
 */
static uint32_t hand_out(struct heap *heap, uint32_t first, uint32_t to)
{
	uint32_t from = heap->handed;

	if (to <= from)
		return to;
	heap->handed = to;
	if (first <= from)
		return from;
	if (heap->backing.sparse)
		return first;
	memset(heap->base + (size_t)from * REGION_PAGE, 0, (size_t)(first - from) * REGION_PAGE);
	return first;
}

/* Nanoseconds between two checks of a heap that late writers keep closed. */
#define LATE_WRITERS_INTERVAL UINT64_C(10000000)

/* Nanoseconds until the file system is asked again for pages that it had no room for. */
#define REFUSED_INTERVAL UINT64_C(100000000)

static void warn(const struct heap *heap, uint64_t bytes, int code)
{
	static atomic_bool said;
	struct region_error text;

	if (heap->region->notice == NULL || atomic_exchange_explicit(&said, true, memory_order_relaxed))
		return;
	(void)region_fail(&text, 0,
			  "there is no room for %llu bytes in the heap of region %.1024s (%s), so "
			  "allocations there fail, or use other memory: remove files beside the region, or "
			  "raise the limit of its file system",
			  (unsigned long long)bytes, heap->region->path, strerror(code));
	heap->region->notice(text.text);
}

/*
 * May the heap be used? Checked once, at the first allocation, and again while there are late
 * writers or the file system refuses.
 */
static bool is_settled(struct heap *heap)
{
	if (__builtin_expect(heap->settled, 1))
		return true;
	uint64_t now = monotonic_now();
	if (now < heap->next_check)
		return false;
	heap->next_check = now + LATE_WRITERS_INTERVAL;
	if (late_writers_may_be(heap->occupant))
		return false;
	heap->settled = !heap->region->sparse_heaps ||
			backing_open(&heap->backing, heap->region,
				     (uint64_t)(heap->base - heap->region->base), heap->extents.pages) == 0;
	return heap->settled;
}

/* A new or larger block of a heap, before it is given to the application. */
struct taken {
	struct heap *heap;
	uint32_t first;
	uint32_t pages;
	uint32_t fresh; /* pages from this one on were never handed out */
	bool reserve;   /* whether `need` says something */
	struct backing_need need;
};

/* Call with the lock held. The pages from `first` on belong to the caller. */
static void describe(struct heap *heap, uint32_t first, uint32_t pages, struct taken *taken)
{
	*taken = (struct taken){.heap = heap, .first = first, .pages = pages};
	taken->reserve = backing_needs(&heap->backing, first, pages, &taken->need);
	taken->fresh = hand_out(heap, first, first + pages);
}

/* Call with the lock held. Returns false if there is no room in the heap. */
static bool take(struct heap *heap, size_t bytes, size_t alignment, struct taken *taken)
{
	if (!heap->open || bytes > heap->bytes || alignment > heap->bytes || !is_settled(heap))
		return false;
	uint32_t pages = pages_for(bytes);
	uint32_t first = extents_take(&heap->extents, pages,
				      alignment <= REGION_PAGE ? 1 : (uint32_t)(alignment / REGION_PAGE));

	if (first == EXTENT_NONE)
		return false;
	describe(heap, first, pages, taken);
	return true;
}

/* Was as much refused a moment ago? Call with the lock held. */
static bool is_refused(struct heap *heap, uint32_t missing)
{
	if (heap->refused == 0 || missing < heap->refused)
		return false;
	if (monotonic_now() < heap->next_try)
		return true;
	heap->refused = 0;
	return false;
}

/*
 * Make the file system reserve the pages that it has not reserved yet. Returns 0 or an errno. Call
 * without the lock.
 */
static int reserve(const struct taken *taken)
{
	struct heap *heap = taken->heap;

	if (!taken->reserve)
		return 0;
	heaps_lock();
	int result = is_refused(heap, taken->need.missing) ? ENOSPC : 0;
	heaps_unlock();
	if (result != 0)
		return result;
	/* Never for a slot that was lost, whose pages a successor may reserve and give back. */
	result = heap_is_ours(heap) ? backing_reserve(&heap->backing, &taken->need) : EOWNERDEAD;
	/* On hugetlbfs, a call that fails may have reserved a part. */
	bool punched = result != 0 && heap->backing.unit > 1 && heap_is_ours(heap) &&
		       backing_punch(&heap->backing, taken->first, taken->pages);
	heaps_lock();
	if (result == 0) {
		backing_set(&heap->backing, &taken->need);
	} else {
		if (punched)
			backing_clear(&heap->backing, taken->first, taken->pages);
		heap->refused = taken->need.missing;
		heap->next_try = monotonic_now() + REFUSED_INTERVAL;
	}
	heaps_unlock();
	if (result != 0 && result != EOWNERDEAD)
		warn(heap, (uint64_t)taken->need.missing * REGION_PAGE, result);
	return result;
}

/* Clear what the application must not see, or all of a block that it wants cleared. */
static void clear(const struct taken *taken, bool zero)
{
	uint32_t from = zero ? taken->first : taken->fresh;
	uint32_t to = taken->first + taken->pages;

	/* Pages of a sparse heap that were never handed out are zero, and cost nothing until used. */
	if (taken->heap->backing.sparse)
		to = taken->fresh;
	memset(taken->heap->base + (size_t)from * REGION_PAGE, 0, (size_t)(to - from) * REGION_PAGE);
}

static void *finish(const struct taken *taken, bool zero)
{
	void *block = taken->heap->base + (size_t)taken->first * REGION_PAGE;

	if (reserve(taken) != 0) {
		(void)heap_release(block);
		return NULL;
	}
	clear(taken, zero);
	return block;
}

void *heap_allocate(struct heap *heap, size_t bytes, size_t alignment, bool zero)
{
	struct taken taken;

	heaps_lock();
	bool found = take(heap, bytes, alignment, &taken);
	heaps_unlock();
	return found ? finish(&taken, zero) : NULL;
}

void *heap_allocate_shared(size_t bytes, size_t alignment, bool zero)
{
	struct taken taken;
	bool found = false;

	heaps_lock();
	for (struct heap *heap = heaps; heap != NULL && !found; heap = heap->next)
		if (heap->shared)
			found = take(heap, bytes, alignment, &taken);
	heaps_unlock();
	return found ? finish(&taken, zero) : NULL;
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

/*
 * Give pages at the end of a block back before they are free, if the free pages would exceed the
 * bound with them. Call with the lock held; it is released meanwhile. Returns false if another
 * thread freed the block, which is an error of the program.
 */
static bool give_back(struct heap *heap, uint32_t first, uint32_t from, uint32_t pages)
{
	struct backing *backing = &heap->backing;
	uint32_t length = extents_length(&heap->extents, first);

	if (pages < BACKING_LARGE_PAGES || !backing->sparse || backing->keeps || !heap_is_ours(heap) ||
	    backing_spare(backing, &heap->extents) + pages <= backing->trim_at)
		return true;
	heaps_unlock();
	bool punched = backing_punch(backing, from, pages);
	heaps_lock();
	if (extents_length(&heap->extents, first) != length)
		return false;
	if (punched)
		backing_clear(backing, from, pages);
	else
		backing->keeps = true;
	return true;
}

/* Call with the lock held, after pages became free. */
static void trim(struct heap *heap)
{
	if (heap->backing.sparse && heap_is_ours(heap))
		backing_trim(&heap->backing, &heap->extents);
}

/* Call with the lock held. */
static bool shrink(struct heap *heap, uint32_t first, uint32_t before, uint32_t pages)
{
	bool done = give_back(heap, first, first + pages, before - pages) &&
		    extents_resize(&heap->extents, first, pages);

	trim(heap);
	return done;
}

/* Call with the lock held. The new pages are in `taken`. */
static bool grow(struct heap *heap, uint32_t first, uint32_t before, uint32_t pages, struct taken *taken)
{
	/* Growing is an allocation, and a block whose endpoint is closed must not grow. */
	if (!heap->open || !extents_resize(&heap->extents, first, pages))
		return false;
	describe(heap, first + before, pages - before, taken);
	return true;
}

bool heap_resize(void *address, size_t bytes)
{
	struct taken taken;
	bool done = false;
	bool grown = false;
	uint32_t first = 0;
	uint32_t before = 0;

	heaps_lock();
	struct heap *heap = heap_of(address);
	if (heap != NULL && !heap->inherited && bytes <= heap->bytes) {
		first = page_of(heap, address);
		before = extents_length(&heap->extents, first);
		uint32_t pages = pages_for(bytes);
		if (before > 0 && pages > before)
			done = grown = grow(heap, first, before, pages, &taken);
		else if (before > 0)
			done = pages == before || shrink(heap, first, before, pages);
	}
	heaps_unlock();
	if (grown && reserve(&taken) != 0) {
		heaps_lock();
		(void)extents_resize(&heap->extents, first, before);
		heaps_unlock();
		return false;
	}
	if (grown)
		clear(&taken, false);
	return done;
}

bool heap_release(void *address)
{
	bool done = false;
	bool last = false;

	heaps_lock();
	struct heap *heap = heap_of(address);
	uint32_t first = heap != NULL ? page_of(heap, address) : EXTENT_NONE;
	uint32_t pages = heap != NULL ? extents_length(&heap->extents, first) : 0;
	if (pages > 0 && heap->inherited) {
		done = true;
	} else if (pages > 0 && give_back(heap, first, first, pages)) {
		done = extents_give(&heap->extents, first);
		trim(heap);
		last = done && heap->extents.count == 0 && heap->member != NULL;
		if (last)
			heap_unlink(heap);
	}
	heaps_unlock();
	if (last) {
		heap_give_all_back(heap);
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
