/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.c - memory in the region: the target publishes it, and the initiator loads and stores.
 *
 * A peer's section may become a successor's at any time. So the initiator checks the section's owner before
 * each store, every PART_BYTES, and after each load. A successor gives no memory to its application until
 * accesses that had begun when it claimed the slot have ended: see late_writers.h.
 */
#include "proto/direct.h"

#include <stdlib.h>

#include "proto/messenger.h"

/* Cached keys for each peer; other keys are looked up again. A power of two. */
#define KNOWN 8U
/* Bytes between two checks of the section's owner. */
#define PART_BYTES 65536U

/* ---- the target ---- */

void direct_expose(struct messenger *messenger, const struct registration *registration)
{
	struct heap_part part;
	uint32_t access = 0;

	if (!messenger->exposes || !attachment_holds_slot(&messenger->transport->attachments[0]) ||
	    !registration->enabled ||
	    (registration->owner != NULL && registration->owner != messenger->owner))
		return;
	/* Counters count only operations that go through the target. */
	if ((registration->access & FI_REMOTE_READ) != 0 && messenger->remote_read_counter == NULL)
		access |= EXPOSED_TO_READ;
	if ((registration->access & FI_REMOTE_WRITE) != 0 && messenger->remote_write_counter == NULL &&
	    registration->counter == NULL)
		access |= EXPOSED_TO_WRITE;
	if (access == 0 ||
	    !heap_overlap(messenger->transport->heap, messenger->transport->attachments[0].region,
			  registration->base, registration->length, &part))
		return;
	exposure_publish(&messenger->exposures, messenger->transport->attachments[0].member, registration,
			 registration->key, registration->address + part.before, access, &part);
}

void direct_conceal(struct messenger *messenger, const struct registration *registration)
{
	if (messenger->exposures.published != 0 &&
	    attachment_holds_slot(&messenger->transport->attachments[0]))
		exposure_withdraw(&messenger->exposures, messenger->transport->attachments[0].member,
				  registration);
}

/* ---- the initiator: lookup ---- */

static uint32_t slot_of_key(uint64_t key)
{
	key = (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(key >> 32) & (KNOWN - 1);
}

/* Looks up a key that is not in the cache. */
static __attribute__((noinline)) bool find_exposed(struct messenger *messenger, struct msg_peer *to,
						   uint64_t key, struct exposed *known)
{
	if (exposure_find(messenger->transport->attachments[0].region, to->peer.slot, to->peer.epoch, key,
			  known))
		return true;
	transport_fail(messenger->transport, &to->peer, -EPROTO, "the peer exposed memory that cannot exist");
	return false;
}

/* A range that is mapped here, and the owner of its section. */
struct reached {
	shared_bytes *bytes;
	uint32_t slot;
	uint32_t epoch;
};

/*
 * Whether the peer and the memory's section still have the owner that was looked up, and this endpoint still
 * holds its slot.
 */
static bool is_theirs(const struct messenger *messenger, const struct msg_peer *to,
		      const struct reached *reached)
{
	return transport_intact(&to->peer) && transport_holds_slot(&to->peer) &&
	       (__builtin_expect(reached->slot == to->peer.slot, 1) ||
		member_is_intact(messenger->transport->attachments[0].region, reached->slot, reached->epoch));
}

/* Announces a store. Returns false if the memory is no longer the target's. */
static bool enter(const struct messenger *messenger, const struct msg_peer *to, const struct reached *reached)
{
	exposure_enter(messenger->transport->attachments[0].member, reached->slot, reached->epoch);
	return is_theirs(messenger, to, reached);
}

/* Finds the memory of a range. Returns false if the operation must be a request. */
static bool reach(struct messenger *messenger, struct msg_peer *to, const struct fi_rma_iov *range,
		  uint32_t access, struct reached *reached)
{
	struct exposed *known = to->remote.exposed;

	if (__builtin_expect(known == NULL, 0)) {
		known = calloc(KNOWN, sizeof(*known));
		if (known == NULL)
			return false;
		to->remote.exposed = known;
	}
	known += slot_of_key(range->key);
	if (__builtin_expect(known->key != range->key || !exposure_is_valid(known), 0) &&
	    (!find_exposed(messenger, to, range->key, known) || known->word == NULL))
		return false;
	/* A range without bytes accesses nothing, but the target may count it. */
	if (known->length == 0 || range->len == 0)
		return false;
	*reached = (struct reached){exposure_view(known, range->addr, range->len, access), known->slot,
				    known->epoch};
	/* Checked after the line was read: the line is the peer's own only if its section still is. */
	return reached->bytes != NULL && is_theirs(messenger, to, reached);
}

/* ---- the initiator: operations ---- */

/*
 * Copies the range that begins at `offset` of the operation. Returns false if the target did not own its
 * memory throughout.
 */
static bool copy(const struct messenger *messenger, const struct remote_request *request, uint64_t offset,
		 const struct reached *reached, uint64_t length)
{
	struct buffer buffer;

	if (request->kind == REMOTE_WRITE && !enter(messenger, request->to, reached))
		return false;
	buffer_open(&buffer, request->pieces, request->count);
	for (uint64_t done = 0; done < length;) {
		size_t part = length - done < PART_BYTES ? (size_t)(length - done) : PART_BYTES;
		shared_bytes *bytes = reached->bytes + done;
		if (request->kind == REMOTE_WRITE)
			buffer_to_region(&buffer, offset + done, bytes, part);
		else if (buffer_in_one(&buffer, offset + done, part))
			/*
			 * The target may have just written these bytes, so copy by lines: see copy_method.h.
			 */
			copy_linewise_in(buffer_at(&buffer, offset + done), bytes, part);
		else
			(void)buffer_from_region(&buffer, offset + done, bytes, part);
		if (!is_theirs(messenger, request->to, reached))
			return false;
		done += part;
	}
	return true;
}

/* The common case: up to a cache line, from or to one piece. */
static bool copy_short(const struct messenger *messenger, const struct remote_request *request,
		       const struct reached *reached)
{
	if (request->kind == REMOTE_WRITE) {
		if (!enter(messenger, request->to, reached))
			return false;
		copy_small_out(reached->bytes, request->pieces[0].iov_base, request->length);
		return true;
	}
	copy_small_in(request->pieces[0].iov_base, reached->bytes, request->length);
	return is_theirs(messenger, request->to, reached);
}

static void apply_to(const struct remote_request *request, shared_bytes *bytes, uint64_t length,
		     const void *operand, const void *compare, void *result)
{
	atomic_apply(request->datatype, request->operation, exposure_data(bytes), operand, compare, result,
		     length / atomic_element_bytes(request->datatype));
}

/* For operands or results in several pieces. */
static __attribute__((noinline)) void apply_scattered(const struct remote_request *request, uint64_t offset,
						      shared_bytes *bytes, uint64_t length)
{
	unsigned char operands[WIRE_ATOMIC_BYTES];
	unsigned char compares[WIRE_ATOMIC_BYTES];
	unsigned char results[WIRE_ATOMIC_BYTES];
	const unsigned char *operand = NULL;
	const unsigned char *compare = NULL;
	struct buffer buffer;

	if (request->operation != FI_ATOMIC_READ)
		operand = buffer_in_a_row(request->pieces, request->count, offset, length, operands);
	if (request->form == ATOMIC_COMPARE)
		compare =
			buffer_in_a_row(request->compares, request->compare_count, offset, length, compares);
	if (request->form == ATOMIC_BASE) {
		apply_to(request, bytes, length, operand, compare, NULL);
		return;
	}
	apply_to(request, bytes, length, operand, compare, results);
	buffer_open(&buffer, request->results, request->result_count);
	(void)buffer_from_memory(&buffer, offset, results, length);
}

static void *piece_at(const struct iovec *pieces, uint64_t offset)
{
	return (char *)pieces[0].iov_base + offset;
}

static bool apply(const struct messenger *messenger, const struct remote_request *request, uint64_t offset,
		  const struct reached *reached, uint64_t length)
{
	bool reads = request->operation == FI_ATOMIC_READ;
	bool compares = request->form == ATOMIC_COMPARE;
	bool fetches = request->form != ATOMIC_BASE;

	if (!enter(messenger, request->to, reached))
		return false;
	if ((reads || request->count == 1) && (!compares || request->compare_count == 1) &&
	    (!fetches || request->result_count == 1))
		apply_to(request, reached->bytes, length, reads ? NULL : piece_at(request->pieces, offset),
			 compares ? piece_at(request->compares, offset) : NULL,
			 fetches ? piece_at(request->results, offset) : NULL);
	else
		apply_scattered(request, offset, reached->bytes, length);
	return !fetches || is_theirs(messenger, request->to, reached);
}

static bool carry_out(const struct messenger *messenger, const struct remote_request *request,
		      const struct reached *reached)
{
	uint64_t offset = 0;

	if (request->kind != REMOTE_ATOMIC && request->length <= REGION_LINE && request->range_count == 1 &&
	    request->count == 1)
		return copy_short(messenger, request, reached);
	for (size_t i = 0; i < request->range_count; i++) {
		uint64_t length = request->ranges[i].len;
		bool done = request->kind == REMOTE_ATOMIC
				    ? apply(messenger, request, offset, &reached[i], length)
				    : copy(messenger, request, offset, &reached[i], length);
		if (!done)
			return false;
		offset += length;
	}
	return true;
}

static uint32_t access_of(const struct remote_request *request)
{
	if (request->kind == REMOTE_WRITE)
		return EXPOSED_TO_WRITE;
	if (request->kind == REMOTE_READ || request->operation == FI_ATOMIC_READ)
		return EXPOSED_TO_READ;
	return request->form == ATOMIC_BASE ? EXPOSED_TO_WRITE : EXPOSED_TO_READ | EXPOSED_TO_WRITE;
}

bool direct_carry_out(struct messenger *messenger, const struct remote_request *request)
{
	struct msg_peer *to = request->to;
	struct reached reached[REMOTE_RANGES];
	uint32_t access = access_of(request);
	bool atomic = request->kind == REMOTE_ATOMIC;

	if ((request->flags & FI_REMOTE_CQ_DATA) != 0 || (atomic && request->length > WIRE_ATOMIC_BYTES))
		return false;
	for (size_t i = 0; i < request->range_count; i++)
		if (!reach(messenger, to, &request->ranges[i], access, &reached[i]) ||
		    (atomic && !atomic_is_native(request->datatype, (uintptr_t)reached[i].bytes)))
			return false;
	if (__builtin_expect(to->remote.requests != to->remote.answered, 0)) {
		/*
		 * A direct operation would overtake them. The next request asks for an answer, after which
		 * direct operations are possible again.
		 */
		to->remote.asks = true;
		return false;
	}
	bool done = carry_out(messenger, request, reached);
	/*
	 * A complete operation is visible to all: before stores that this process makes elsewhere afterwards,
	 * and before its later loads.
	 */
	if (request->kind != REMOTE_READ) {
		exposure_leave(messenger->transport->attachments[0].member);
		shared_fence_full();
	}
	to->peer.messages++;
	to->peer.bytes += request->length;
	if (__builtin_expect(!done, 0))
		transport_break(messenger->transport, &to->peer, -ECONNRESET,
				"the peer is gone, and another member has its slot");
	remote_complete(messenger, request->kind, atomic && request->form != ATOMIC_BASE, request->context,
			request->flags, done ? 0 : ECONNRESET, done ? NULL : to->peer.reason);
	return true;
}
