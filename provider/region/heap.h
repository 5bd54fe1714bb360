/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heap.h - the part of our own section that the application's memory may lie in, so that
 * peers reach that memory without a copy in between.
 *
 * The bounds are private, and so is everything else that is known of the heap: in the region
 * there are the application's bytes and nothing else.
 */
#ifndef VICINAL_REGION_HEAP_H
#define VICINAL_REGION_HEAP_H

#include "region/region.h"

#define HEAP_NONE UINT64_MAX

struct heap {
	unsigned char *base; /* where the application sees it */
	uint64_t bytes;
	uint64_t offset; /* section offset of `base` in our own section */
};

/*
 * The section offset, in our own section, of `length` bytes at `address`. HEAP_NONE unless they
 * lie wholly in `heap`, which may be NULL: then nothing does.
 */
static inline uint64_t heap_find(const struct heap *heap, const void *address, size_t length)
{
	if (heap == NULL)
		return HEAP_NONE;
	/* One subtraction that wraps: an address below the heap is far above its end. */
	uint64_t distance = (uintptr_t)address - (uintptr_t)heap->base;

	if (distance > heap->bytes || length > heap->bytes - distance)
		return HEAP_NONE;
	return heap->offset + distance;
}

#endif
