/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region_source.h - the interface between the provider and libvicinal-mpi.so: what the preloaded library
 * needs to know about the region. As with heap_source.h, the provider looks up the library's function.
 */
#ifndef VICINAL_PRELOAD_REGION_SOURCE_H
#define VICINAL_PRELOAD_REGION_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGION_SOURCE_VERSION 2U

/*
 * A member's view of its region. `allocate` is valid until the region is withdrawn, all other pointers while
 * the library has a block of the heap: the mapping and the member's slot stay until the last block is
 * released. `is_gone`, `allocate` and `release` may be called from any thread.
 */
struct region_source {
	uint32_t version;
	uint32_t members;
	uint32_t slot; /* this member's */
	uint32_t epoch;
	uint64_t id[2];
	unsigned char *first_heap; /* the heap of the member in slot 0 */
	uint64_t section_bytes;    /* from one heap to the next */
	uint64_t heap_bytes;
	/*
	 * The claim word of the member in slot 0, and the bytes from one to the next. The upper half is the
	 * member's epoch until another member takes the slot: see member_is_intact().
	 */
	const void *first_claim;
	uint64_t claim_bytes;
	bool sparse_heaps; /* a file of one host, which no guest maps: see region/layout.h */
	void *heap;        /* for `allocate` */
	void *member;      /* for `is_gone` */
	/* Whole pages; NULL if the heap has no room. Cleared if `zero`. */
	void *(*allocate)(void *heap, size_t bytes, size_t alignment, bool zero);
	bool (*release)(void *address);
	/*
	 * Has the member (slot, epoch) left the region, or died? `heartbeat` has two words for the function,
	 * zeroed at first, one pair for each member. May ask the kernel: not for the short path.
	 */
	bool (*is_gone)(void *member, uint32_t slot, uint32_t epoch, uint64_t heartbeat[2]);
	/*
	 * This thread waits for words in the region while it polls the provider: then polls that find nothing
	 * neither yield the core nor sleep, because the provider does not see such words.
	 */
	void (*wait_elsewhere)(bool waits);
};

/*
 * Offers a region, which is copied. Returns 0, -EPROTONOSUPPORT if the library does not know the version, or
 * -EBUSY if it has a region already.
 */
typedef int region_offer_function(const struct region_source *source);
#define REGION_OFFER_NAME "vicinal_region_offer"

/* The endpoint of the region with this heap is being closed. Blocks stay until they are released. */
typedef void region_withdraw_function(const void *heap);
#define REGION_WITHDRAW_NAME "vicinal_region_withdraw"

/*
 * Called now and then by the provider's progress, with its locks held. `leave`: the manager asks the member
 * to leave the region, so the library gives back its blocks of the heap as soon as no member reads them any
 * more, and takes no new ones until a call without `leave`. Returns the number of blocks that the program
 * has to release: those of its windows. Calls no function of the MPI library.
 */
typedef uint32_t region_attend_function(bool leave);
#define REGION_ATTEND_NAME "vicinal_region_attend"

/* What the process has done through its region: see the same words of struct section_header. */
struct region_counts {
	uint64_t collectives;
	uint64_t collective_bytes;
	uint64_t one_sided;
	uint64_t one_sided_bytes;
};

/* Called now and then by the provider's progress, with its locks held. */
typedef void region_counts_function(struct region_counts *counts);
#define REGION_COUNTS_NAME "vicinal_region_counts"

#endif
