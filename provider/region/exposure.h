/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exposure.h - memory in a heap that peers access by their own loads and stores. The owner
 * publishes the memory under a key in a table of its section, and withdraws it again.
 *
 * Withdrawal does not end accesses that have begun. A peer that read the line just before may still
 * access the memory, however long that peer was stopped in between. So exposed memory belongs to
 * the application and contains nothing of the provider, and a peer checks the line against the
 * bounds of the owner's heap. A late access, or an access by a false line, can reach only data of
 * the owner's application.
 */
#ifndef VICINAL_REGION_EXPOSURE_H
#define VICINAL_REGION_EXPOSURE_H

#include "region/heap.h"
#include "region/member.h"

/* ---- the owner's side ---- */

/* What one endpoint has published in its section. Private; all zero at first. */
struct exposures {
	const void *of[REGION_EXPOSURES]; /* the caller's identification of the exposure; NULL: the line is
					     free */
	uint64_t sequences[REGION_EXPOSURES];
	uint64_t published; /* value of section_header.exposed */
};

/*
 * Publish `part` of a heap of this process under `key`, at `address`, for `access` (EXPOSED_...).
 * If the table is full, nothing is published, and peers send requests instead.
 */
void exposure_publish(struct exposures *exposures, const struct member *self, const void *of, uint64_t key,
		      uint64_t address, uint32_t access, const struct heap_part *part);
/*
 * Withdraw what was published as `of`, or everything if `of` is NULL. There may be nothing to
 * withdraw.
 */
void exposure_withdraw(struct exposures *exposures, const struct member *self, const void *of);

/* ---- the peers' side ---- */

/* What is known about a peer's key: where its memory is mapped here, or that the key has none. */
struct exposed {
	uint64_t key;
	const shared_u64 *word; /* the entry is valid while this word has `value`; NULL: nothing is known */
	uint64_t value;
	uint64_t address; /* the peer's address of the first byte */
	uint64_t length;  /* 0: the peer exposes nothing under this key */
	shared_bytes *bytes;
	uint32_t access;
	uint32_t slot; /* the member whose section contains the bytes */
	uint32_t epoch;
};

/*
 * Look up `key` of the member (slot, epoch). Returns false if the line is impossible, so the member
 * violated the protocol.
 */
bool exposure_find(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t key,
		   struct exposed *known);

/*
 * Is the entry unchanged since the lookup? The caller must afterwards check that the section still
 * belongs to the member: see member_is_intact().
 */
static inline bool exposure_is_valid(const struct exposed *known)
{
	return known->word != NULL && shared_acquire_u64(known->word) == known->value;
}

/* The `length` bytes at `address`, or NULL if they are not exposed, or not for this access. */
static inline shared_bytes *exposure_view(const struct exposed *known, uint64_t address, uint64_t length,
					  uint32_t access)
{
	/* Wraps to a huge value if the address is below the exposure. */
	uint64_t offset = address - known->address;

	if (offset > known->length || length > known->length - offset || (access & ~known->access) != 0)
		return NULL;
	return known->bytes + offset;
}

/*
 * The bytes of a view, for operations of the application. They are the application's data; its
 * owner and all permitted peers change them with the same instructions. They contain nothing of the
 * provider, and the provider makes no decision by them.
 */
static inline void *exposure_data(shared_bytes *view)
{
	return (void *)view;
}

/*
 * Call before a store into the heap of the member (slot, epoch), and check after the call that the
 * member still has its slot. If this member does not see a successor, the successor sees this
 * announcement.
 */
static inline void exposure_enter(const struct member *self, uint32_t slot, uint32_t epoch)
{
	shared_store_u64(&section_header(self->region, self->slot)->reaching, (uint64_t)epoch << 32 | slot);
	shared_fence_full();
}

/* Call after the store. */
static inline void exposure_leave(const struct member *self)
{
	shared_release_u64(&section_header(self->region, self->slot)->reaching, 0);
}

#endif
