/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_offer.c - see heap_offer.h, and preload/heap_source.h for the other side. */
#include "region/heap_offer.h"

#include <dlfcn.h>
#include <errno.h>

#include "preload/heap_source.h"

/* The bounds of this shared object's code, from the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static struct heap_source source = {
	.version = HEAP_SOURCE_VERSION,
	.allocate = heap_allocate_shared,
	.release = heap_release,
	.contains = heap_contains,
	.resize = heap_resize,
	.block_bytes = heap_block_bytes,
};

static heap_offer_function *find_library(void)
{
	heap_offer_function *offer = NULL;
	void *symbol = dlsym(RTLD_DEFAULT, HEAP_OFFER_NAME);

	/* ISO C has no conversion from an object's address to a function's; POSIX has dlsym(). */
	memcpy(&offer, &symbol, sizeof(offer));
	return offer;
}

bool heap_is_wanted(void)
{
	return find_library() != NULL;
}

int heap_offer(struct heap *heap, size_t threshold, struct region_error *error)
{
	heap_offer_function *offer = find_library();

	if (offer == NULL)
		return -ENOENT;
	source.threshold = threshold;
	source.code_begin = (uintptr_t)__ehdr_start;
	source.code_end = (uintptr_t)etext;
	int result = offer(&source, heap->base, heap->bytes);
	switch (result) {
	case 0:
		heap_share(heap);
		return 0;
	case -EXDEV:
		return region_fail(error, result,
				   "libvicinal-heap.so is loaded, but this program uses another malloc(): "
				   "name no other allocator before it in LD_PRELOAD, or omit --heap");
	case -EBUSY:
		return region_fail(error, result,
				   "libvicinal-heap.so already serves another copy of the provider in this "
				   "process: name one directory in FI_PROVIDER_PATH");
	default:
		return region_fail(error, result,
				   "libvicinal-heap.so and the provider are of different versions: name the "
				   "library beside the provider in LD_PRELOAD");
	}
}
