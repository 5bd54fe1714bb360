/* SPDX-License-Identifier: BSD-3-Clause */
/* varying.c - see varying.h: allgather. */
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
	enum outcome chosen = choose_cells(communicator, longest, ALL_SENDERS_LIMIT, &staged);
	if (chosen == OUTCOME_PASS || longest == 0)
		return pass_alike(communicator, kind);
	return chosen != OUTCOME_DONE ? chosen
				      : allgather(communicator, kind, staged, send, receive, longest);
}
