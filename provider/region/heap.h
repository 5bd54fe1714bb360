/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heap.h - the part of a member's own section in which the application's memory may lie, so that
 * peers reach that memory without an intermediate copy.
 *
 * All state of the heap, such as its bounds, is private. The region contains only the application's
 * bytes. So a peer can corrupt data in a heap, as it can corrupt messages, but not the allocator.
 *
 * Blocks are whole pages. Blocks may outlive the endpoint: then the mapping and the member's slot
 * are kept until the last block is released or the process ends. All functions except heap_find()
 * may be called from any thread, within malloc() and free(), and in a forked child, where nothing
 * is allocated any more.
 */
#ifndef VICINAL_REGION_HEAP_H
#define VICINAL_REGION_HEAP_H

#include "region/backing.h"
#include "region/extents.h"
#include "region/member.h"

#define HEAP_NONE UINT64_MAX

struct heap {
	unsigned char *base; /* the address for the application */
	uint64_t bytes;
	uint64_t offset; /* section offset of `base` in the member's own section */
	uint32_t slot;   /* the member whose section contains the heap */
	uint32_t epoch;
	/* private to heap.c */
	struct region *region;
	const struct member *occupant; /* the member of this heap, while `open` */
	uint64_t next_check;           /* monotonic_now() of the next check for late writers */
	bool settled;                  /* there are no late writers */
	struct member *member;         /* set when the endpoint was closed while there were blocks */
	struct extents extents;        /* in pages from `base` */
	struct backing backing;        /* of the same pages */
	uint64_t next_try;             /* monotonic_now() until which `refused` pages are not tried again */
	uint32_t refused;              /* that the file system had no room for; 0: none */
	uint32_t handed;               /* no page from this one on was ever handed out */
	bool open;                     /* its endpoint is open */
	bool shared;                   /* heap_allocate_shared() may use it */
	bool inherited;                /* this process is a forked child */
	struct heap *next;
};

/*
 * The section offset, in the member's own section, of `length` bytes at `address`. HEAP_NONE unless
 * all the bytes lie in `heap`, which may be NULL.
 */
static inline uint64_t heap_find(const struct heap *heap, const void *address, size_t length)
{
	if (heap == NULL)
		return HEAP_NONE;
	/* The subtraction wraps: an address below the heap gives a distance far above its end. */
	uint64_t distance = (uintptr_t)address - (uintptr_t)heap->base;

	if (distance > heap->bytes || length > heap->bytes - distance)
		return HEAP_NONE;
	return heap->offset + distance;
}

/* The part of a memory range that lies in a heap: `length` bytes after the first `before` bytes. */
struct heap_part {
	uint64_t before;
	uint64_t length;
	uint64_t offset; /* section offset, in the section of the member (slot, epoch) */
	uint32_t slot;
	uint32_t epoch;
};

/*
 * Find the part of `length` bytes from `address` on that lies in a heap of this process: in
 * `first`, which may be NULL, or in the heap of another endpoint in the same region. Returns false
 * if there is none.
 */
bool heap_overlap(const struct heap *first, const struct region *region, const void *address, uint64_t length,
		  struct heap_part *part);

/*
 * Open the heap of the member's section. Sets NULL if the region has no heaps. Returns 0, or
 * -ENOMEM with a text.
 */
int heap_open(struct heap **heap, const struct member *occupant, struct region_error *error);

/* Use the heap for allocations that name no heap. */
void heap_share(struct heap *heap);

/* Stop allocating from the heap. */
void heap_stop(struct heap *heap);
/*
 * Stop allocating from all heaps of this mapping if none of them has blocks. Returns whether they
 * have none.
 */
bool heaps_vacate(const struct region *region);

/*
 * The endpoint is closed. `member` leaves at once, or when the last block is released. Both
 * pointers are invalid afterwards.
 */
void heap_leave(struct heap *heap, struct member *member);

/*
 * Allocate at least `bytes` bytes at a multiple of `alignment`, a power of two; cleared if `zero`.
 * Returns NULL if there is no room in the heap or in the region's file system, if this process is a
 * forked child, or if a member may still be writing for a former occupant of the slot
 * (late_writers.h).
 */
void *heap_allocate(struct heap *heap, size_t bytes, size_t alignment, bool zero);
/* The same from any shared heap. */
void *heap_allocate_shared(size_t bytes, size_t alignment, bool zero);

/* Does `address` lie in a heap of this process? */
bool heap_contains(const void *address);

/* The actual length of the block at `address`; 0 if no block begins there. */
size_t heap_block_bytes(const void *address);

/*
 * Change the length of a block in place to at least `bytes`. Returns false and changes nothing if
 * that is not possible.
 */
bool heap_resize(void *address, size_t bytes);

/*
 * Free a block. Returns false if no block begins at `address`. In a forked child the block stays.
 */
bool heap_release(void *address);

/* The total bytes of the blocks in `heap`. */
uint64_t heap_used(const struct heap *heap);

/*
 * For fork.c: between lock and unlock, no other thread changes the state of this file.
 * heaps_before_fork() also locks. heaps_after_fork() is called with the lock held in the child,
 * where the heaps belong to the parent.
 */
void heaps_lock(void);
void heaps_before_fork(void);
void heaps_unlock(void);
void heaps_after_fork(void);

#endif
