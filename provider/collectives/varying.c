/* SPDX-License-Identifier: BSD-3-Clause */
/* varying.c - see varying.h: allgather and gather. rows.c has scatter and alltoall. */
#include "collectives/varying.h"

#include "collectives/verdict.h"

/* ---- allgather ---- */

/* The bytes of a block that a step carries, which has room for `most`: from `at` on. */
static size_t piece_at(int64_t length, int64_t at, size_t most)
{
	uint64_t rest = length > at ? (uint64_t)(length - at) : 0;

	return rest < most ? rest : most;
}

/* One step of vary_allgather(). */
static bool exchange_pieces(struct communicator *communicator, uint64_t kind, bool staged, int64_t at,
			    const struct data *from, const struct data *to)
{
	uint64_t step = step_begin(communicator);

	if (step == 0)
		return false;
	size_t most = cell_room(communicator, staged);
	size_t piece = piece_at(from->length, at, most);
	move_out(step_data(communicator, step, staged), from->bytes + at, piece);
	step_publish(communicator, step, kind, piece);
	for (int i = 1; i < communicator->size; i++) {
		int rank = (communicator->rank + i) % communicator->size;
		const shared_bytes *data = step_read(communicator, rank, step, kind, staged);
		if (data == NULL)
			return false;
		move_in(to[rank].bytes + at, data, piece_at(to[rank].length, at, most));
	}
	step_end(communicator, step, true);
	return true;
}

/* After all lengths are known, and found to be good for the region. */
static enum outcome allgather(struct communicator *communicator, uint64_t kind, bool staged,
			      const struct blocks *send, const struct blocks *receive, int64_t longest)
{
	int own = communicator->rank;
	int64_t most = (int64_t)cell_room(communicator, staged);
	struct data to[COMMUNICATOR_MEMBERS_MAX];
	struct data from = block_to_send(send != NULL ? send : receive, own, block_length(receive, own));
	bool good = !data_lacks_memory(&from);

	for (int rank = 0; rank < communicator->size; rank++) {
		to[rank] = (struct data){.bytes = NULL};
		if (rank == own)
			continue;
		to[rank] = block_to_receive(receive, rank, block_length(receive, rank));
		good = good && !data_lacks_memory(&to[rank]);
	}
	for (int64_t at = 0; at < longest && good; at += most)
		good = exchange_pieces(communicator, kind, staged, at, &from, to);
	for (int rank = 0; rank < communicator->size; rank++) {
		if (good && rank != own)
			good = data_received(&to[rank]) == MPI_OK;
		data_sent(&to[rank]);
	}
	data_sent(&from);
	if (good && send != NULL)
		good = keep_own(communicator, send, receive);
	return good ? OUTCOME_DONE : OUTCOME_FAILED;
}

enum outcome vary_allgather(struct communicator *communicator, const struct blocks *send,
			    const struct blocks *receive)
{
	int own = communicator->rank;
	int64_t lengths[COMMUNICATOR_MEMBERS_MAX];
	int64_t longest = 0;
	uint64_t hash = 0;
	bool staged = false;

	for (int rank = 0; rank < communicator->size; rank++) {
		lengths[rank] = block_length(receive, rank);
		if (lengths[rank] < 0)
			return OUTCOME_PASS;
		if (lengths[rank] > longest)
			longest = lengths[rank];
		hash = lengths_hash(hash, lengths[rank]);
	}
	/* A hash that no other member has: all of them see that counts differ. */
	if (send != NULL && block_length(send, own) != lengths[own])
		hash = lengths_hash(hash, own + 1);
	uint64_t kind = step_kind(COLLECTIVE_ALLGATHERV, 0, hash);
	enum outcome chosen = choose_cells(communicator, longest, MOVEMENT_LIMIT, &staged);
	if (chosen == OUTCOME_PASS || longest == 0)
		return pass_alike(communicator, kind);
	return chosen != OUTCOME_DONE ? chosen
				      : allgather(communicator, kind, staged, send, receive, longest);
}

/* ---- gather ---- */

/* Blocks of gathers go in one step: through a cell or a piece, or by messages. */
#define GATHER_ROOM (CELL_DATA - WORD_BYTES)

static enum outcome gather_from_member(struct communicator *communicator, const struct blocks *send, int root)
{
	uint64_t kind = step_kind(COLLECTIVE_GATHERV, root, 0);
	int64_t length = block_length(send, communicator->rank);
	uint64_t word = (uint64_t)length;
	bool is_long = length > (int64_t)GATHER_ROOM;
	bool fits = length <= MOVEMENT_LIMIT;
	enum verdict verdict = VERDICT_STAGE;
	const shared_bytes *root_data = NULL;

	if (length < 0)
		return OUTCOME_PASS;
	struct data from = {.bytes = NULL};
	if (fits && length > 0)
		from = block_to_send(send, communicator->rank, length);
	if (fits && data_lacks_memory(&from))
		return OUTCOME_FAILED;
	while (verdict == VERDICT_STAGE) {
		uint64_t step = step_begin(communicator);
		uint64_t root_word = 0;
		if (step == 0)
			break;
		shared_bytes *cell = step_data(communicator, step, false);
		shared_copy_out(cell, &word, WORD_BYTES);
		if (fits && !is_long)
			move_out(cell + WORD_BYTES, from.bytes, (size_t)length);
		else if (fits && communicator->staging != NULL && length <= communicator->piece)
			move_out(step_data(communicator, step, true), from.bytes, (size_t)length);
		step_publish(communicator, step, kind, fits ? (size_t)length : 0);
		if (!read_word(communicator, root, step, kind, &root_word, &root_data))
			break;
		step_end(communicator, step, false);
		verdict = verdict_in(root_word);
		if (verdict == VERDICT_STAGE && !verdict_stage(communicator, root))
			break;
	}
	data_sent(&from);
	return verdict == VERDICT_GO ? OUTCOME_DONE : verdict == VERDICT_PASS ? OUTCOME_PASS : OUTCOME_FAILED;
}

/* Receives the block of one member. Sets *good to false if it cannot be stored. False: broken. */
static bool gather_block(struct communicator *communicator, int rank, uint64_t step, uint64_t kind,
			 const struct blocks *receive, bool *good)
{
	const shared_bytes *data = NULL;
	uint64_t sent = 0;
	int64_t room = block_length(receive, rank);

	if (!read_word(communicator, rank, step, kind, &sent, &data))
		return false;
	if (!has_room(communicator, rank, sent, room))
		*good = false;
	else if (sent > 0) {
		struct data to = block_to_receive(receive, rank, room);
		if (data_lacks_memory(&to)) {
			*good = false;
			return true;
		}
		/* `room` is longer than a cell only if it fits into a piece. */
		if (sent > GATHER_ROOM)
			data = step_read(communicator, rank, step, kind, true);
		else
			data += WORD_BYTES;
		if (data == NULL) {
			data_sent(&to);
			return false;
		}
		move_in(to.bytes, data, sent);
		*good = store_received(&to, sent) && *good;
	}
	return true;
}

static enum outcome gather_at_root(struct communicator *communicator, const struct blocks *send,
				   const struct blocks *receive)
{
	int root = communicator->rank;
	uint64_t kind = step_kind(COLLECTIVE_GATHERV, root, 0);
	enum verdict verdict = VERDICT_STAGE;
	int64_t longest = 0;
	bool good = true;

	for (int rank = 0; rank < communicator->size && longest >= 0; rank++) {
		int64_t length = rank == root ? 0 : block_length(receive, rank);
		if (length < 0 || length > MOVEMENT_LIMIT)
			longest = -1;
		else if (length > longest)
			longest = length;
	}
	while (verdict == VERDICT_STAGE) {
		uint64_t step = step_begin(communicator);
		verdict = judge(communicator, longest, GATHER_ROOM);
		if (verdict == VERDICT_GO && longest > (int64_t)GATHER_ROOM && longest > communicator->piece)
			verdict = VERDICT_PASS;
		uint64_t word = (uint64_t)verdict << VERDICT_SHIFT;
		if (step == 0)
			return OUTCOME_FAILED;
		shared_copy_out(step_data(communicator, step, false), &word, WORD_BYTES);
		step_publish(communicator, step, kind, 0);
		for (int i = 1; i < communicator->size && verdict == VERDICT_GO; i++)
			if (!gather_block(communicator, (root + i) % communicator->size, step, kind, receive,
					  &good))
				return OUTCOME_FAILED;
		step_end(communicator, step, verdict == VERDICT_GO);
		if (verdict == VERDICT_STAGE && !verdict_stage(communicator, root))
			return OUTCOME_FAILED;
	}
	if (verdict == VERDICT_PASS)
		return OUTCOME_PASS;
	if (send != NULL)
		good = keep_own(communicator, send, receive) && good;
	return good ? OUTCOME_DONE : OUTCOME_FAILED;
}

enum outcome vary_gather(struct communicator *communicator, const struct blocks *send,
			 const struct blocks *receive, int root)
{
	return communicator->rank == root ? gather_at_root(communicator, send, receive)
					  : gather_from_member(communicator, send, root);
}
