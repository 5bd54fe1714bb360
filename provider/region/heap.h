/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heap.h - the part of our own section that the application's memory may lie in, so that
 * peers reach that memory without a copy in between.
 *
 * The bounds are private, and so is everything else that is known of the heap: in the region
 * there are the application's bytes and nothing else. So a peer can spoil data that lies
 * there, as it can spoil messages, but nothing of what decides which block is whose.
 *
 * Blocks are whole pages. They may outlive the endpoint: then the mapping and the member's
 * slot are kept until the last is released, or the process ends. All functions but
 * heap_find() may be called from any thread, within malloc() and free(), and in a forked
 * child, where nothing is allocated any more.
 */
#ifndef VICINAL_REGION_HEAP_H
#define VICINAL_REGION_HEAP_H

#include "region/extents.h"
#include "region/member.h"

#define HEAP_NONE UINT64_MAX

struct heap {
	unsigned char *base; /* where the application sees it */
	uint64_t bytes;
	uint64_t offset; /* section offset of `base` in our own section */
	uint32_t slot;   /* whose section that is */
	uint32_t epoch;
	/* the rest is heap.c's own */
	struct region *region;
	const struct member *occupant; /* whose heap it is, while `open` */
	uint64_t next_check;           /* for late writers, by our clock */
	bool settled;                  /* there are none */
	struct member *member;         /* once its endpoint is closed while there are blocks */
	struct extents extents;        /* in pages from `base` */
	uint32_t handed;               /* no page from here on was handed out yet */
	bool open;                     /* its endpoint is open */
	bool shared;                   /* heap_allocate_shared() may use it */
	bool inherited;                /* this is a forked child */
	struct heap *next;
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

/* A part of a range of memory that lies in a heap: `length` bytes, after the first `before`. */
struct heap_part {
	uint64_t before;
	uint64_t length;
	uint64_t offset; /* section offset, in the section of the member (slot, epoch) */
	uint32_t slot;
	uint32_t epoch;
};

/*
 * The part of `length` bytes from `address` on that lies in a heap of this process: in `first`,
 * which may be NULL, or in that of another of its endpoints in the same region. False if none.
 */
bool heap_overlap(const struct heap *first, const struct region *region, const void *address, uint64_t length,
		  struct heap_part *part);

/*
 * The heap of the member's section; NULL if the region has no heaps. Returns 0, or -ENOMEM with a
 * text.
 */
int heap_open(struct heap **heap, const struct member *occupant, struct region_error *error);

/* Allocate from it for callers that name no heap. */
void heap_share(struct heap *heap);

/* Allocate no more from it. */
void heap_stop(struct heap *heap);
/* The same of all in this mapping, if there are no blocks in any of them. Returns whether that is so. */
bool heaps_vacate(const struct region *region);

/*
 * Its endpoint is closed, and `member` leaves: at once, or when the last block is released.
 * Both pointers are invalid afterwards.
 */
void heap_leave(struct heap *heap, struct member *member);

/*
 * At least `bytes` at a multiple of `alignment`, a power of two; with `zero`, cleared. NULL if
 * there is no room, this is a forked child, or somebody may still be writing for a former occupant
 * of the slot (late_writers.h).
 */
void *heap_allocate(struct heap *heap, size_t bytes, size_t alignment, bool zero);
/* The same from any heap that is shared. */
void *heap_allocate_shared(size_t bytes, size_t alignment, bool zero);

/* Does it lie in a heap of this process at all? */
bool heap_contains(const void *address);

/* The bytes that the block at `address` really has; 0 if none begins there. */
size_t heap_block_bytes(const void *address);

/* Give a block at least `bytes` where it is. False if that cannot be; it stays as it was. */
bool heap_resize(void *address, size_t bytes);

/* False if no block begins there. In a forked child the block stays. */
bool heap_release(void *address);

/* Bytes of the blocks in `heap`. */
uint64_t heap_used(const struct heap *heap);

/* For fork.c: nobody is in a function of this file; and, locked, in a child: they are its parent's. */
void heaps_lock(void);
void heaps_unlock(void);
void heaps_after_fork(void);

#endif
