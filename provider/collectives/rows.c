/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c - see varying.h: scatter and alltoall, in which a member publishes a block for each other one. */
#include <stdlib.h>

#include "collectives/varying.h"
#include "collectives/verdict.h"
#include "collectives/wait.h"

/*
 * What a member sends, as one row of bytes: the block of the next rank, of the one after it, and so on. So
 * members read from different places at the same time. In the cell are the word, the ends of all blocks but
 * the last one, whose end is in the word, and the row; if it is too long, it is staged, a piece a step.
 */
struct row {
	int64_t total; /* bytes; -1: a block is invalid or too long */
	uint32_t ends[COMMUNICATOR_MEMBERS_MAX];
	struct data blocks[COMMUNICATOR_MEMBERS_MAX]; /* `opened` of them, from 1 on, as in `ends` */
	int opened;
};

/* What a member receives from another one. */
struct share {
	const shared_bytes *row;
	uint64_t begin; /* in the row */
	uint64_t end;
	uint64_t total; /* bytes of the row */
	struct data to;
};

static size_t row_offset(const struct communicator *communicator)
{
	size_t ends = (size_t)communicator->size - 2;

	return WORD_BYTES + (ends * sizeof(uint32_t) + 7) / 8 * 8;
}

static size_t row_room(const struct communicator *communicator)
{
	return CELL_DATA - row_offset(communicator);
}

static uint64_t pieces_of(const struct communicator *communicator, uint64_t total)
{
	return total <= row_room(communicator) ? 1 : (total + communicator->piece - 1) / communicator->piece;
}

static void close_row(struct row *row)
{
	for (int i = 1; i <= row->opened; i++)
		data_sent(&row->blocks[i]);
}

/* The bytes of a block in memory of this library. */
static bool copy_aside(struct data *data)
{
	if (data->owned != NULL)
		return true;
	data->owned = malloc((size_t)data->length + 1);
	if (data->owned == NULL)
		return false;
	data->bytes = memcpy(data->owned, data->bytes, (size_t)data->length);
	return true;
}

/*
 * Returns false if no memory is left. `aside`: the blocks are received into the same buffer, so a row of
 * several pieces must be copied first.
 */
static bool open_row(const struct communicator *communicator, struct row *row, const struct blocks *send,
		     int64_t limit, bool aside)
{
	int64_t lengths[COMMUNICATOR_MEMBERS_MAX];

	row->total = 0;
	row->opened = 0;
	row->ends[0] = 0;
	for (int i = 1; i < communicator->size; i++) {
		lengths[i] = block_length(send, (communicator->rank + i) % communicator->size);
		if (lengths[i] < 0 || lengths[i] > limit) {
			row->total = -1;
			return true;
		}
		row->total += lengths[i];
		row->ends[i] = (uint32_t)row->total;
	}
	aside = aside && row->total > (int64_t)row_room(communicator);
	for (int i = 1; i < communicator->size; i++) {
		int rank = (communicator->rank + i) % communicator->size;
		row->blocks[i] = (struct data){.bytes = NULL};
		row->opened = i;
		if (lengths[i] == 0)
			continue;
		row->blocks[i] = block_to_send(send, rank, lengths[i]);
		if (data_lacks_memory(&row->blocks[i]) || (aside && !copy_aside(&row->blocks[i])))
			return false;
	}
	return true;
}

/* Copies the row's bytes from `first` on that have room. Returns how many. */
static size_t copy_row(const struct row *row, shared_bytes *to, uint64_t first, uint64_t room)
{
	size_t copied = 0;

	for (int i = 1; i <= row->opened; i++) {
		uint64_t begin = row->ends[i - 1];
		uint64_t from = begin > first ? begin : first;
		uint64_t end = row->ends[i] < first + room ? row->ends[i] : first + room;
		if (from < end) {
			move_out(to + (from - first), row->blocks[i].bytes + (from - begin), end - from);
			copied += end - from;
		}
	}
	return copied;
}

/* Publishes the piece from `first` on. */
static void publish_row(const struct communicator *communicator, uint64_t step, uint64_t kind,
			const struct row *row, enum verdict verdict, uint64_t first)
{
	shared_bytes *cell = step_data(communicator, step, false);
	uint64_t total = row->total < 0 ? 0 : (uint64_t)row->total;
	uint64_t word = (uint64_t)verdict << VERDICT_SHIFT | total;
	size_t copied = 0;

	shared_copy_out(cell, &word, WORD_BYTES);
	if (verdict == VERDICT_GO) {
		bool staged = total > row_room(communicator);
		shared_copy_out(cell + WORD_BYTES, &row->ends[1],
				((size_t)communicator->size - 2) * sizeof(row->ends[0]));
		if (staged)
			copied = copy_row(row, step_data(communicator, step, true), first,
					  communicator->piece);
		else
			copied =
				copy_row(row, cell + row_offset(communicator), first, row_room(communicator));
	}
	step_publish(communicator, step, kind, copied);
}

/* Reads where this member's share of a row is. Returns false if the communicator is broken. */
static bool read_share(struct communicator *communicator, int rank, uint64_t step, uint64_t kind,
		       int64_t limit, struct share *share, enum verdict *verdict)
{
	uint64_t word = 0;
	uint32_t begin = 0;
	uint32_t end = 0;
	int place = (communicator->rank - rank + communicator->size) % communicator->size;
	const shared_bytes *cell = NULL;

	if (!read_word(communicator, rank, step, kind, &word, &cell))
		return false;
	*verdict = verdict_in(word);
	if (*verdict != VERDICT_GO)
		return true;
	const shared_bytes *ends = cell + WORD_BYTES;
	share->row = cell + row_offset(communicator);
	share->total = word & LENGTH_MASK;
	share->end = share->total;
	if (place > 1)
		shared_copy_in(&begin, ends + (size_t)(place - 2) * sizeof(begin), sizeof(begin));
	share->begin = begin;
	if (place < communicator->size - 1) {
		shared_copy_in(&end, ends + (size_t)(place - 1) * sizeof(end), sizeof(end));
		share->end = end;
	}
	if (share->total > (uint64_t)limit * ((uint64_t)communicator->size - 1) ||
	    share->begin > share->end || share->end > share->total ||
	    (share->total > row_room(communicator) && communicator->staging == NULL)) {
		communicator_break(communicator, rank, "broke the rules of the region");
		return false;
	}
	return true;
}

/* Copies what the step's piece, which begins at `first` in the row, has of the share. */
static void copy_share(const struct communicator *communicator, const struct share *share, uint64_t first)
{
	uint64_t last = first + (share->total > row_room(communicator) ? communicator->piece : share->total);
	uint64_t end = share->end < last ? share->end : last;
	uint64_t from = share->begin > first ? share->begin : first;

	/* There is no block to receive into if it has too little room: see open_shares(). */
	if (from < end && share->to.bytes != NULL)
		move_in(share->to.bytes + (from - share->begin), share->row + (from - first), end - from);
}

/* A scatter or alltoall under way. */
struct distribution {
	struct communicator *communicator;
	const struct blocks *receive; /* NULL: this member receives nothing */
	int root;                     /* the only sender; negative: all send */
	bool sends;
	int64_t limit; /* bytes of a block */
	uint64_t kind;
	uint64_t step;
	uint64_t pieces;
	struct row row;                                /* of a sender */
	struct share shares[COMMUNICATOR_MEMBERS_MAX]; /* by rank */
};

/* The sender number `i`, from 1 on, that this member reads from; -1: it is not read. */
static int sender(const struct distribution *all, int i)
{
	int rank = (all->communicator->rank + i) % all->communicator->size;

	return all->root < 0 || rank == all->root ? rank : -1;
}

/* The first step: all find out what becomes of the collective. Returns false if the communicator is broken.
 */
static bool find_verdict(struct distribution *all, enum verdict *verdict)
{
	struct communicator *communicator = all->communicator;
	int asks = communicator->rank;

	all->step = step_begin(communicator);
	all->pieces = 1;
	*verdict = VERDICT_GO;
	if (all->step == 0)
		return false;
	if (all->sends) {
		*verdict = judge(communicator, all->row.total, row_room(communicator));
		publish_row(communicator, all->step, all->kind, &all->row, *verdict, 0);
		if (*verdict == VERDICT_GO)
			all->pieces = pieces_of(communicator, (uint64_t)all->row.total);
	}
	for (int i = 1; i < communicator->size; i++) {
		enum verdict theirs = VERDICT_GO;
		int rank = sender(all, i);
		if (rank < 0)
			continue;
		if (!read_share(communicator, rank, all->step, all->kind, all->limit, &all->shares[rank],
				&theirs))
			return false;
		if (theirs > *verdict) {
			*verdict = theirs;
			asks = rank;
		}
		if (theirs == VERDICT_GO && all->pieces < pieces_of(communicator, all->shares[rank].total))
			all->pieces = pieces_of(communicator, all->shares[rank].total);
	}
	if (*verdict == VERDICT_GO)
		return true;
	step_end(communicator, all->step, all->root < 0);
	return *verdict == VERDICT_PASS || verdict_stage(communicator, asks);
}

/* Prepares the blocks that are received. Returns false if one has too little room, or no memory is left. */
static bool open_shares(struct distribution *all)
{
	bool good = true;

	for (int i = 1; i < all->communicator->size; i++) {
		int rank = sender(all, i);
		if (rank < 0)
			continue;
		struct share *share = &all->shares[rank];
		uint64_t sent = share->end - share->begin;
		int64_t room = block_length(all->receive, rank);
		share->to = (struct data){.bytes = NULL};
		if (!has_room(all->communicator, rank, sent, room)) {
			good = false;
		} else if (sent > 0) {
			share->to = block_to_receive(all->receive, rank, room);
			good = good && !data_lacks_memory(&share->to);
		}
	}
	return good;
}

/* Copies all pieces. Returns false if the communicator is broken. */
static bool copy_pieces(struct distribution *all)
{
	struct communicator *communicator = all->communicator;

	for (uint64_t piece = 0; piece < all->pieces; piece++) {
		if (piece > 0) {
			all->step = step_begin(communicator);
			if (all->step == 0)
				return false;
			if (all->sends)
				publish_row(communicator, all->step, all->kind, &all->row, VERDICT_GO,
					    piece * communicator->piece);
		}
		for (int i = 1; i < communicator->size; i++) {
			int rank = sender(all, i);
			if (rank < 0)
				continue;
			struct share *share = &all->shares[rank];
			bool staged = share->total > row_room(communicator);
			const shared_bytes *data =
				step_read(communicator, rank, all->step, all->kind, staged);
			if (data == NULL)
				return false;
			if (staged)
				share->row = data;
			copy_share(communicator, share, piece * communicator->piece);
		}
		step_end(communicator, all->step, all->root < 0);
	}
	return true;
}

/* Stores what was received, if all is `good`. */
static bool close_shares(struct distribution *all, bool good)
{
	for (int i = 1; i < all->communicator->size; i++) {
		int rank = sender(all, i);
		if (rank < 0)
			continue;
		struct share *share = &all->shares[rank];
		if (good && share->to.length > 0)
			good = store_received(&share->to, share->end - share->begin);
		data_sent(&share->to);
	}
	return good;
}

static enum outcome distribute(struct distribution *all)
{
	enum verdict verdict = VERDICT_STAGE;

	while (verdict == VERDICT_STAGE)
		if (!find_verdict(all, &verdict))
			return OUTCOME_FAILED;
	if (verdict == VERDICT_PASS)
		return OUTCOME_PASS;
	bool good = open_shares(all);
	/* The other members need all steps of this one. */
	bool whole = copy_pieces(all);
	return close_shares(all, good && whole) ? OUTCOME_DONE : OUTCOME_FAILED;
}

enum outcome vary_scatter(struct communicator *communicator, const struct blocks *send,
			  const struct blocks *receive, int root)
{
	struct distribution all;
	bool sends = communicator->rank == root;
	enum outcome outcome = OUTCOME_FAILED;

	if (!sends && block_length(receive, communicator->rank) < 0)
		return OUTCOME_PASS;
	all.communicator = communicator;
	all.receive = receive;
	all.root = root;
	all.sends = sends;
	all.limit = parts_limit(communicator, false);
	all.kind = step_kind(COLLECTIVE_SCATTERV, root, 0);
	if (!sends)
		return distribute(&all);
	if (open_row(communicator, &all.row, send, all.limit, false))
		outcome = distribute(&all);
	close_row(&all.row);
	if (outcome == OUTCOME_DONE && receive != NULL && !keep_own(communicator, send, receive))
		return OUTCOME_FAILED;
	return outcome;
}

enum outcome vary_alltoall(struct communicator *communicator, const struct blocks *send,
			   const struct blocks *receive)
{
	struct distribution all;
	enum outcome outcome = OUTCOME_FAILED;

	all.communicator = communicator;
	all.receive = receive;
	all.root = -1;
	all.sends = true;
	all.limit = parts_limit(communicator, true);
	all.kind = step_kind(COLLECTIVE_ALLTOALLV, 0, 0);
	if (open_row(communicator, &all.row, send != NULL ? send : receive, all.limit, send == NULL)) {
		for (int rank = 0; rank < communicator->size; rank++)
			if (block_length(receive, rank) < 0)
				all.row.total = -1;
		outcome = distribute(&all);
	}
	close_row(&all.row);
	if (outcome == OUTCOME_DONE && send != NULL && !keep_own(communicator, send, receive))
		return OUTCOME_FAILED;
	return outcome;
}
