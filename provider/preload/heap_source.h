/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heap_source.h - the interface between the provider and the preloaded library (libvicinal-heap.so).
 * libfabric loads the provider where the program's symbols cannot find it. So the provider looks up the
 * library's only function, and hands it functions that allocate.
 */
#ifndef VICINAL_PRELOAD_HEAP_SOURCE_H
#define VICINAL_PRELOAD_HEAP_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_SOURCE_VERSION 1U

/*
 * The provider keeps a source that it offered, and the code behind it, until the process ends. The functions
 * may be called from any thread and inside malloc() and free(), and allocate nothing elsewhere. See
 * region/heap.h for each.
 */
struct heap_source {
	uint32_t version;
	size_t threshold; /* shorter allocations stay private */
	/*
	 * Allocations by code in this range stay private too: the provider's own data must not be in memory
	 * that peers can write.
	 */
	uintptr_t code_begin;
	uintptr_t code_end;
	void *(*allocate)(size_t bytes, size_t alignment, bool zero);
	bool (*release)(void *address);
	bool (*contains)(const void *address);
	bool (*resize)(void *address, size_t bytes);
	size_t (*block_bytes)(const void *address);
};

/*
 * From now on, blocks between `base` and `base` + `length` may come from `source`. Returns 0,
 * -EPROTONOSUPPORT if the library does not know the version, -EBUSY if it has another source already, or
 * -EXDEV if the program's malloc() is not the library's.
 */
typedef int heap_offer_function(const struct heap_source *source, const void *base, size_t length);
#define HEAP_OFFER_NAME "vicinal_heap_offer"

#endif
