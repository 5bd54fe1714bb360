/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exposure.h - memory in a heap that peers reach by loads and stores of their own: who owns
 * it says so in a table of its section, under a key, and takes it out again.
 *
 * Taking it out ends nothing that has begun: a peer that looked at the line just before may
 * still touch the memory, however long it was stopped in between. So memory that is exposed
 * belongs to the application and has nothing of ours in it, and a peer checks what the line
 * says against the bounds of the owner's heap. What it may touch late, or because the line
 * is nonsense, is the application's data of that owner and nothing else.
 */
#ifndef VICINAL_REGION_EXPOSURE_H
#define VICINAL_REGION_EXPOSURE_H

#include "region/heap.h"
#include "region/member.h"

/* ---- the owner's side ---- */

/* What we published in the section of one endpoint. Private; all zero at first. */
struct exposures {
	const void *of[REGION_EXPOSURES]; /* whose it is, as its caller names it; NULL: nobody's */
	uint64_t sequences[REGION_EXPOSURES];
	uint64_t published; /* so many */
};

/*
 * `part` of a heap of this process is reached under `key`, at `address`, for `access`
 * (EXPOSED_...). Without room in the table it is not published: peers ask us, then.
 */
void exposure_publish(struct exposures *exposures, const struct member *self, const void *of, uint64_t key,
		      uint64_t address, uint32_t access, const struct heap_part *part);
/* What was published as `of`; everything if that is NULL. Nothing may be. */
void exposure_withdraw(struct exposures *exposures, const struct member *self, const void *of);

/* ---- the peers' side ---- */

/* What we know of a key of a peer's: where its memory is mapped here, or that there is none. */
struct exposed {
	uint64_t key;
	const shared_u64 *word; /* it is valid while this has `value`; NULL: nothing is known */
	uint64_t value;
	uint64_t address; /* what the peer calls the first byte */
	uint64_t length;  /* 0: it exposes nothing under this key */
	shared_bytes *bytes;
	uint32_t access;
	uint32_t slot; /* whose section they are in */
	uint32_t epoch;
};

/*
 * Find out about `key` of the member (slot, epoch). Returns false if what it says cannot be,
 * so that it broke the protocol.
 */
bool exposure_find(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t key,
		   struct exposed *known);

/*
 * Has it changed since we looked? What it says is the member's only if its section was still its
 * own after this: see member_is_intact().
 */
static inline bool exposure_is_valid(const struct exposed *known)
{
	return known->word != NULL && shared_acquire_u64(known->word) == known->value;
}

/* `length` bytes at `address` of what is exposed, or NULL if they are not, or not for this access. */
static inline shared_bytes *exposure_view(const struct exposed *known, uint64_t address, uint64_t length,
					  uint32_t access)
{
	/* Wraps to something huge if the address is below. */
	uint64_t offset = address - known->address;

	if (offset > known->length || length > known->length - offset || (access & ~known->access) != 0)
		return NULL;
	return known->bytes + offset;
}

/*
 * What a view shows, for operations of the application: it is its data, which its owner and all whom
 * that lets do so change by the same instructions. Nothing of ours is there, and nothing is decided by it.
 */
static inline void *exposure_data(shared_bytes *view)
{
	return (void *)view;
}

/*
 * Before we store into the heap of the member (slot, epoch), and look once more whether it is still
 * there: a successor that we do not see sees this.
 */
static inline void exposure_enter(const struct member *self, uint32_t slot, uint32_t epoch)
{
	shared_store_u64(&section_header(self->region, self->slot)->reaching, (uint64_t)epoch << 32 | slot);
	shared_fence_full();
}

/* After it. */
static inline void exposure_leave(const struct member *self)
{
	shared_release_u64(&section_header(self->region, self->slot)->reaching, 0);
}

#endif
