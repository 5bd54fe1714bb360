/* SPDX-License-Identifier: BSD-3-Clause */
/* movement.c - see movement.h. Long data goes in pieces, one a step, so that all members copy at once. */
#include "collectives/movement.h"

static size_t piece_of(int64_t length, int64_t at, size_t most)
{
	return (uint64_t)(length - at) < most ? (size_t)(length - at) : most;
}

enum outcome choose_cells(struct communicator *communicator, int64_t bytes, int64_t limit, bool *staged)
{
	*staged = false;
	if (bytes < 0 || bytes > limit)
		return OUTCOME_PASS;
	if (bytes <= (int64_t)CELL_DATA)
		return OUTCOME_DONE;
	*staged = true;
	if (communicator->staging == NULL && !communicator->no_staging && !communicator_stage(communicator))
		return OUTCOME_FAILED;
	return communicator->no_staging || are_pieces_short(communicator, bytes) ? OUTCOME_PASS
										 : OUTCOME_DONE;
}

size_t cell_room(const struct communicator *communicator, bool staged)
{
	return staged ? communicator->piece : CELL_DATA;
}

/* A step without data. Returns false if the communicator is broken. */
static bool meet(struct communicator *communicator, uint64_t kind)
{
	uint64_t step = step_begin(communicator);

	if (step == 0)
		return false;
	step_publish(communicator, step, kind, 0);
	for (int rank = 0; rank < communicator->size; rank++)
		if (rank != communicator->rank && step_read(communicator, rank, step, kind, false) == NULL)
			return false;
	step_end(communicator, step, true);
	return true;
}

enum outcome pass_alike(struct communicator *communicator, uint64_t kind)
{
	return meet(communicator, kind) ? OUTCOME_PASS : OUTCOME_FAILED;
}

enum outcome move_barrier(struct communicator *communicator)
{
	if (!meet(communicator, step_kind(COLLECTIVE_BARRIER, 0, 0)))
		return OUTCOME_FAILED;
	/*
	 * Programs test or probe once after a barrier for what another rank sent before it. MPI does not
	 * promise that they find it, but with a barrier by messages they do. One poll is enough for all
	 * tests of mpi4py, among them one of MPI_Win_test.
	 */
	progress();
	return OUTCOME_DONE;
}

enum outcome move_bcast(struct communicator *communicator, unsigned char *bytes, int64_t length, int root)
{
	bool staged = false;
	bool is_root = communicator->rank == root;
	enum outcome chosen = choose_cells(communicator, length, MOVEMENT_LIMIT, &staged);
	uint64_t kind = step_kind(COLLECTIVE_BCAST, root, (uint64_t)length);

	if (chosen != OUTCOME_DONE)
		return chosen;
	for (int64_t at = 0; at < length;) {
		size_t piece = piece_of(length, at, cell_room(communicator, staged));
		uint64_t step = step_begin(communicator);
		if (step == 0)
			return OUTCOME_FAILED;
		if (is_root) {
			move_out(step_data(communicator, step, staged), bytes + at, piece);
			step_publish(communicator, step, kind, piece);
		} else {
			const shared_bytes *data = step_read(communicator, root, step, kind, staged);
			if (data == NULL)
				return OUTCOME_FAILED;
			move_in(bytes + at, data, piece);
		}
		step_end(communicator, step, false);
		at += (int64_t)piece;
	}
	return OUTCOME_DONE;
}

/* Each member publishes its bytes. `root`, or every member if it is negative, reads those of all others. */
static enum outcome collect(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			    int64_t length, int root)
{
	bool staged = false;
	bool reads = root < 0 || communicator->rank == root;
	enum outcome chosen = choose_cells(communicator, length, MOVEMENT_LIMIT, &staged);
	uint64_t kind = step_kind(root < 0 ? COLLECTIVE_ALLGATHER : COLLECTIVE_GATHER, root < 0 ? 0 : root,
				  (uint64_t)length);

	if (chosen != OUTCOME_DONE)
		return chosen;
	for (int64_t at = 0; at < length;) {
		size_t piece = piece_of(length, at, cell_room(communicator, staged));
		uint64_t step = step_begin(communicator);
		if (step == 0)
			return OUTCOME_FAILED;
		if (root < 0 || !reads) {
			move_out(step_data(communicator, step, staged), from + at, piece);
			step_publish(communicator, step, kind, piece);
		}
		for (int i = 1; i < communicator->size && reads; i++) {
			/* Starting behind itself, so that members read from different members. */
			int rank = (communicator->rank + i) % communicator->size;
			const shared_bytes *data = step_read(communicator, rank, step, kind, staged);
			if (data == NULL)
				return OUTCOME_FAILED;
			move_in(to + rank * length + at, data, piece);
		}
		step_end(communicator, step, reads);
		at += (int64_t)piece;
	}
	if (reads && to + communicator->rank * length != from)
		memcpy(to + communicator->rank * length, from, (size_t)length);
	return OUTCOME_DONE;
}

enum outcome move_gather(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			 int64_t length, int root)
{
	return collect(communicator, from, to, length, root);
}

enum outcome move_allgather(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			    int64_t length)
{
	return collect(communicator, from, to, length, -1);
}

/* The place of the part for `rank` in what `sender` publishes, which has none for itself. */
static size_t place_of(int rank, int sender)
{
	return (size_t)(rank < sender ? rank : rank - 1);
}

/*
 * Senders publish a part for each other member in one cell. `root`, or every member if it is negative, sends;
 * every member reads its part.
 */
static enum outcome distribute(struct communicator *communicator, const unsigned char *from,
			       unsigned char *to, int64_t length, int root)
{
	bool staged = false;
	bool sends = root < 0 || communicator->rank == root;
	int size = communicator->size;
	int64_t limit = parts_limit(communicator, root < 0);
	enum outcome chosen =
		choose_cells(communicator, length <= limit ? length * size : -1, limit * size, &staged);
	uint64_t kind = step_kind(root < 0 ? COLLECTIVE_ALLTOALL : COLLECTIVE_SCATTER, root < 0 ? 0 : root,
				  (uint64_t)length);

	if (chosen != OUTCOME_DONE)
		return chosen;
	size_t most = staged ? communicator->piece / (size_t)(size - 1) : CELL_DATA;
	/* Whole lines, so that two members never read the same line of a long part. */
	if (staged && most >= 64)
		most = most / 64 * 64;
	for (int64_t at = 0; at < length;) {
		size_t piece = piece_of(length, at, most);
		uint64_t step = step_begin(communicator);
		if (step == 0)
			return OUTCOME_FAILED;
		if (sends) {
			shared_bytes *data = step_data(communicator, step, staged);
			for (int rank = 0; rank < size; rank++)
				if (rank != communicator->rank)
					move_out(data + place_of(rank, communicator->rank) * piece,
						 from + rank * length + at, piece);
			step_publish(communicator, step, kind, piece * (size_t)(size - 1));
		}
		for (int i = 1; i < size; i++) {
			int rank = (communicator->rank + i) % size;
			if (root >= 0 && rank != root)
				continue;
			const shared_bytes *data = step_read(communicator, rank, step, kind, staged);
			if (data == NULL)
				return OUTCOME_FAILED;
			move_in(to + (root < 0 ? rank * length : 0) + at,
				data + place_of(communicator->rank, rank) * piece, piece);
		}
		step_end(communicator, step, root < 0);
		at += (int64_t)piece;
	}
	if (sends && to != NULL && to != from)
		memcpy(to + (root < 0 ? communicator->rank * length : 0), from + communicator->rank * length,
		       (size_t)length);
	return OUTCOME_DONE;
}

enum outcome move_scatter(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			  int64_t length, int root)
{
	return distribute(communicator, from, to, length, root);
}

enum outcome move_alltoall(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			   int64_t length)
{
	return distribute(communicator, from, to, length, -1);
}
