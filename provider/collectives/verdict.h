/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verdict.h - how members agree on what becomes of a collective whose lengths not all of them know, and what
 * they do if counts do not match.
 *
 * A member that knows lengths publishes a word in front of its data: its verdict in the upper byte, and bytes
 * below. What a peer publishes is loaded once, and is only compared with what this member expects, or checked
 * against limits.
 */
#ifndef VICINAL_COLLECTIVES_VERDICT_H
#define VICINAL_COLLECTIVES_VERDICT_H

#include "collectives/blocks.h"
#include "collectives/movement.h"

/* If members differ, the greatest verdict counts. */
enum verdict {
	VERDICT_GO,    /* the data is here */
	VERDICT_STAGE, /* it needs staging buffers, which are not known yet: then the step is repeated */
	VERDICT_PASS,  /* it is invalid or too long: the MPI library does the collective */
};

#define WORD_BYTES sizeof(uint64_t)
#define VERDICT_SHIFT 56
#define LENGTH_MASK ((UINT64_C(1) << VERDICT_SHIFT) - 1)

/* `length` is negative if it is invalid or too long. Up to `room`, it lies in a cell. */
static inline enum verdict judge(const struct communicator *communicator, int64_t length, size_t room)
{
	bool is_long = length > (int64_t)room;

	if (length < 0 || (is_long && communicator->no_staging))
		return VERDICT_PASS;
	if (is_long && communicator->staging == NULL)
		return VERDICT_STAGE;
	return is_long && are_pieces_short(communicator, length) ? VERDICT_PASS : VERDICT_GO;
}

static inline enum verdict verdict_in(uint64_t word)
{
	uint64_t verdict = word >> VERDICT_SHIFT;

	return verdict < VERDICT_PASS ? (enum verdict)verdict : VERDICT_PASS;
}

/* Waits for a member's cell, and reads its word. Returns false if the communicator is broken. */
static inline bool read_word(struct communicator *communicator, int rank, uint64_t step, uint64_t kind,
			     uint64_t *word, const shared_bytes **data)
{
	*data = step_read(communicator, rank, step, kind, false);
	if (*data == NULL)
		return false;
	shared_copy_in(word, *data, WORD_BYTES);
	return true;
}

/*
 * Makes the staging buffers after VERDICT_STAGE of the member `rank`. Returns false if the communicator is
 * broken, also if the member has given that verdict before.
 */
bool verdict_stage(struct communicator *communicator, int rank);

/* Has a block room for the bytes that the member `from` sends? If not, says so. */
bool has_room(const struct communicator *communicator, int from, uint64_t sent, int64_t room);

/* Stores what was received, which may be less than the block has room for. Returns false on failure. */
bool store_received(struct data *to, uint64_t received);

/* Copies a member's block to itself. Returns false if counts do not match, or no memory is left. */
bool keep_own(const struct communicator *communicator, const struct blocks *send,
	      const struct blocks *receive);

#endif
