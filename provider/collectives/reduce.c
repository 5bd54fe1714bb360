/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce.c - see reduce.h. */
#include "collectives/reduce.h"

#include <stdlib.h>

/* Bytes up to which the region is faster than the MPI library: docs/decisions/0034. */
#define REDUCE_LIMIT (INT64_C(128) << 10)
/*
 * From this many members and bytes of a piece on, each member reduces a share of the piece and publishes the
 * result, because otherwise each member would reduce everything.
 */
#define SHARING_MEMBERS 4
#define SHARING_BYTES 4096U

struct operation operation_of(handle type, handle op)
{
	struct basic_type basic = mpi_basic_type(type);
	enum operator known = mpi_operator(op);

	return (struct operation){
		.kernel = known != OPERATOR_NONE ? find_reduction(basic, known) : NULL,
		.type = type,
		.op = op,
		.size = data_bytes(1, type),
	};
}

/* ---- one piece ---- */

/* The data of each rank for a piece, in the region or in the application's buffer. */
struct operands {
	const void *of[COMMUNICATOR_MEMBERS_MAX];
	int count;
};

/* Elements of any datatype in memory of this library. */
struct typed {
	void *allocated;
	void *elements;
};

static struct typed typed_open(const struct operation *operation, int64_t count)
{
	intptr_t low = 0;
	intptr_t extent = 0;
	intptr_t true_low = 0;
	intptr_t true_extent = 0;

	(void)MPI_CALL(Type_get_extent, handle, intptr_t *, intptr_t *)(operation->type, &low, &extent);
	(void)MPI_CALL(Type_get_true_extent, handle, intptr_t *, intptr_t *)(operation->type, &true_low,
									     &true_extent);
	/* The last element lies before the first one if the extent is negative. */
	intptr_t span = (intptr_t)(count - 1) * extent;
	intptr_t lowest = true_low + (span < 0 ? span : 0);
	intptr_t bytes = true_extent + (span < 0 ? -span : span);
	struct typed typed = {.allocated = calloc(1, (size_t)bytes + 1)};
	typed.elements = (void *)((uintptr_t)typed.allocated - (uintptr_t)lowest);
	return typed;
}

static bool unpack(const struct operation *operation, const void *bytes, int64_t count, void *elements)
{
	int position = 0;

	if (mpi_basic_type(operation->type).size != 0) {
		shared_copy_in(elements, bytes, (size_t)(count * operation->size));
		return true;
	}
	return MPI_CALL(Unpack, const void *, int, int *, void *, int, handle,
			handle)(bytes, (int)(count * operation->size), &position, elements, (int)count,
				operation->type, mpi.comm_self) == MPI_OK;
}

static bool pack(const struct operation *operation, const void *elements, int64_t count, void *bytes)
{
	int position = 0;

	if (mpi_basic_type(operation->type).size != 0) {
		memcpy(bytes, elements, (size_t)(count * operation->size));
		return true;
	}
	return MPI_CALL(Pack, const void *, int, handle, void *, int, int *,
			handle)(elements, (int)count, operation->type, bytes, (int)(count * operation->size),
				&position, mpi.comm_self) == MPI_OK;
}

/* By the MPI library, on private copies: a user's function must not see bytes that change. */
static __attribute__((noinline)) bool
fold_by_library(const struct operation *operation, const struct operands *operands, void *out, int64_t count)
{
	struct typed result = typed_open(operation, count);
	struct typed next = typed_open(operation, count);
	bool done = result.allocated != NULL && next.allocated != NULL &&
		    unpack(operation, operands->of[0], count, result.elements);

	for (int rank = 1; rank < operands->count && done; rank++) {
		done = unpack(operation, operands->of[rank], count, next.elements) &&
		       MPI_CALL(Reduce_local, const void *, void *, int, handle,
				handle)(result.elements, next.elements, (int)count, operation->type,
					operation->op) == MPI_OK;
		struct typed reduced = next;
		next = result;
		result = reduced;
	}
	done = done && pack(operation, result.elements, count, out);
	free(result.allocated);
	free(next.allocated);
	return done;
}

/* out = operand 0 op operand 1 op ... `out` may be operand 0 or 1, or overlap none. */
static bool fold(const struct operation *operation, const struct operands *operands, void *out, int64_t count)
{
	if (operation->kernel == NULL)
		return fold_by_library(operation, operands, out, count);
	if (operands->count == 1) {
		memmove(out, operands->of[0], (size_t)(count * operation->size));
		return true;
	}
	operation->kernel(out, operands->of[0], operands->of[1], (size_t)count);
	for (int rank = 2; rank < operands->count; rank++)
		operation->kernel(out, out, operands->of[rank], (size_t)count);
	return true;
}

/*
 * What this member reduces with the data of others: its data in the application's buffer, which is in the
 * cache. NULL if fold() would write its result there before it reads it: then what was published is reduced.
 */
static const void *own_operand(const struct communicator *communicator, const unsigned char *from,
			       const unsigned char *to, int64_t offset)
{
	return from != to || communicator->rank <= 1 ? from + offset : NULL;
}

/*
 * Waits for the data of the ranks below `end`, at `offset` in their cells. `own` is this member's data, or
 * NULL if it is to be read from its cell.
 */
static bool collect_operands(struct communicator *communicator, uint64_t step, uint64_t kind, bool staged,
			     size_t offset, int end, const void *own, struct operands *operands)
{
	if (own == NULL)
		own = (const void *)(step_data(communicator, step, staged) + offset);
	operands->count = end;
	for (int rank = 0; rank < end; rank++)
		operands->of[rank] = own;
	for (int i = 0; i < communicator->size; i++) {
		int rank = (communicator->rank + i) % communicator->size;
		const shared_bytes *data = NULL;
		if (rank >= end || rank == communicator->rank)
			continue;
		data = step_read(communicator, rank, step, kind, staged);
		if (data == NULL)
			return false;
		operands->of[rank] = (const void *)(data + offset);
	}
	return true;
}

/* Publishes `length` bytes in a new step. Returns the step, or 0. */
static uint64_t publish(struct communicator *communicator, uint64_t kind, bool staged,
			const unsigned char *bytes, size_t length)
{
	uint64_t step = step_begin(communicator);

	if (step == 0)
		return 0;
	shared_bytes *data = step_data(communicator, step, staged);
	move_out(data, bytes, length);
	step_publish(communicator, step, kind, length);
	return step;
}

/* The elements of the piece that begins with element `at`, if `most` bytes have room. */
static int64_t elements_of(int64_t count, int64_t at, int64_t size, size_t most)
{
	int64_t elements = (int64_t)most / size;

	return elements < count - at ? elements : count - at;
}

/* `most` are the bytes that fit into a step. */
static enum outcome choose(struct communicator *communicator, const struct operation *operation,
			   int64_t count, int64_t limit, bool *staged, size_t *most)
{
	int64_t bytes = 0;

	*most = 0;
	if (operation->size <= 0 || __builtin_mul_overflow(operation->size, count, &bytes))
		return OUTCOME_PASS;
	enum outcome chosen = choose_cells(communicator, bytes, limit, staged);
	*most = cell_room(communicator, *staged);
	return chosen == OUTCOME_DONE && (int64_t)*most < operation->size ? OUTCOME_PASS : chosen;
}

/* ---- the collectives ---- */

enum outcome reduce_to_root(struct communicator *communicator, const struct operation *operation,
			    const unsigned char *from, unsigned char *to, int64_t count, int root)
{
	bool staged = false;
	size_t most = 0;
	struct operands operands;
	enum outcome chosen = choose(communicator, operation, count, REDUCE_LIMIT, &staged, &most);
	uint64_t kind = step_kind(COLLECTIVE_REDUCE, root, (uint64_t)(count * operation->size));

	if (chosen != OUTCOME_DONE)
		return chosen;
	for (int64_t at = 0; at < count;) {
		int64_t elements = elements_of(count, at, operation->size, most);
		size_t length = (size_t)(elements * operation->size);
		uint64_t step = publish(communicator, kind, staged, from + at * operation->size, length);
		bool is_root = communicator->rank == root;
		if (step == 0 ||
		    (is_root && (!collect_operands(communicator, step, kind, staged, 0, communicator->size,
						   own_operand(communicator, from, to, at * operation->size),
						   &operands) ||
				 !fold(operation, &operands, to + at * operation->size, elements))))
			return OUTCOME_FAILED;
		step_end(communicator, step, is_root);
		at += elements;
	}
	return OUTCOME_DONE;
}

/* The elements of a piece that the member `rank` reduces: from *first on. */
static int64_t share_of(int64_t elements, int size, int rank, int64_t *first)
{
	int64_t each = (elements + size - 1) / size;

	*first = each * rank < elements ? each * rank : elements;
	return each < elements - *first ? each : elements - *first;
}

/* Second half of a piece that is shared among the members: each publishes its share of the result. */
static bool exchange_shares(struct communicator *communicator, const struct operation *operation,
			    const struct operands *operands, unsigned char *to, int64_t elements)
{
	int64_t size = operation->size;
	int64_t first = 0;
	int64_t share = share_of(elements, communicator->size, communicator->rank, &first);
	uint64_t kind = step_kind(COLLECTIVE_SHARE, 0, (uint64_t)(elements * size));
	uint64_t step = step_begin(communicator);

	if (step == 0)
		return false;
	shared_bytes *data = step_data(communicator, step, true);
	if (share > 0 && !fold(operation, operands, (void *)data, share))
		return false;
	step_publish(communicator, step, kind, (size_t)(share * size));
	for (int i = 0; i < communicator->size; i++) {
		int rank = (communicator->rank + i) % communicator->size;
		share = share_of(elements, communicator->size, rank, &first);
		if (rank != communicator->rank)
			data = (shared_bytes *)(uintptr_t)step_read(communicator, rank, step, kind, true);
		if (data == NULL)
			return false;
		shared_copy_in(to + first * size, data, (size_t)(share * size));
	}
	step_end(communicator, step, true);
	return true;
}

enum outcome reduce_to_all(struct communicator *communicator, const struct operation *operation,
			   const unsigned char *from, unsigned char *to, int64_t count)
{
	bool staged = false;
	size_t most = 0;
	struct operands operands;
	int64_t size = operation->size;
	enum outcome chosen = choose(communicator, operation, count, REDUCE_LIMIT, &staged, &most);
	uint64_t kind = step_kind(COLLECTIVE_ALLREDUCE, 0, (uint64_t)(count * size));

	if (chosen != OUTCOME_DONE)
		return chosen;
	for (int64_t at = 0; at < count;) {
		int64_t elements = elements_of(count, at, size, most);
		size_t length = (size_t)(elements * size);
		bool shares = staged && communicator->size >= SHARING_MEMBERS && length >= SHARING_BYTES;
		int64_t first = 0;
		if (shares)
			(void)share_of(elements, communicator->size, communicator->rank, &first);
		uint64_t step = publish(communicator, kind, staged, from + at * size, length);
		if (step == 0 || !collect_operands(communicator, step, kind, staged, (size_t)(first * size),
						   communicator->size,
						   shares ? from + (at + first) * size
							  : own_operand(communicator, from, to, at * size),
						   &operands))
			return OUTCOME_FAILED;
		if (shares ? !exchange_shares(communicator, operation, &operands, to + at * size, elements)
			   : !fold(operation, &operands, to + at * size, elements))
			return OUTCOME_FAILED;
		/* With shares, the later step of exchange_shares() has ended this one too. */
		if (!shares)
			step_end(communicator, step, true);
		at += elements;
	}
	return OUTCOME_DONE;
}

/*
 * The most elements of each block in a step: as many as fit into `room` elements, if shorter blocks leave
 * their share of the room to longer ones. 0: the room is too small.
 */
static int64_t share_room(const int64_t *counts, int size, int64_t room)
{
	int64_t share = 0;
	int64_t long_blocks = size;

	for (;;) {
		int64_t left = room;
		int64_t still_long = 0;
		for (int rank = 0; rank < size; rank++)
			if (counts[rank] <= share)
				left -= counts[rank];
			else
				still_long++;
		if (still_long == 0)
			return share;
		/* Each round, blocks that fit drop out, or the share is final. */
		if (share > 0 && still_long == long_blocks)
			return share;
		long_blocks = still_long;
		share = left / still_long;
		if (share == 0)
			return 0;
	}
}

/* What a step of reduce_scatter() publishes: of each block, the elements from `at` on. */
struct slices {
	int64_t at;
	int64_t most; /* of a block */
};

static int64_t slice_of(const struct slices *slices, int64_t count)
{
	int64_t rest = count > slices->at ? count - slices->at : 0;

	return rest < slices->most ? rest : slices->most;
}

bool reduce_scatter_is_worth(const struct communicator *communicator, const struct operation *operation,
			     int64_t total)
{
	int64_t bytes = 0;

	return operation->size > 0 && !__builtin_mul_overflow(operation->size, total, &bytes) && bytes > 0 &&
	       bytes <= REDUCE_LIMIT * communicator->size;
}

enum outcome reduce_scatter(struct communicator *communicator, const struct operation *operation,
			    const unsigned char *from, unsigned char *to, const int64_t *counts)
{
	bool staged = false;
	size_t room = 0;
	struct operands operands;
	int own = communicator->rank;
	int64_t size = operation->size;
	int64_t total = 0;
	int64_t longest = 0;
	uint64_t hash = 0;

	for (int rank = 0; rank < communicator->size; rank++) {
		total += counts[rank];
		longest = counts[rank] > longest ? counts[rank] : longest;
		hash = lengths_hash(hash, counts[rank] * size);
	}
	uint64_t kind = step_kind(COLLECTIVE_REDUCE_SCATTER, 0, hash);
	enum outcome chosen = choose(communicator, operation, total,
				     REDUCE_LIMIT * (int64_t)communicator->size, &staged, &room);
	struct slices slices = {0, 0};
	if (chosen == OUTCOME_DONE && total > 0)
		slices.most = share_room(counts, communicator->size, (int64_t)room / size);
	if (chosen == OUTCOME_PASS || (chosen == OUTCOME_DONE && slices.most == 0))
		return pass_alike(communicator, kind);
	if (chosen != OUTCOME_DONE)
		return chosen;
	for (; slices.at < longest; slices.at += slices.most) {
		uint64_t step = step_begin(communicator);
		const unsigned char *block = from;
		const void *own_slice = NULL;
		size_t offset = 0; /* of this member's slice */
		if (step == 0)
			return OUTCOME_FAILED;
		shared_bytes *data = step_data(communicator, step, staged);
		for (int rank = 0; rank < communicator->size; rank++) {
			size_t length = (size_t)(slice_of(&slices, counts[rank]) * size);
			move_out(data, block + slices.at * size, length);
			data += length;
			offset += rank < own ? length : 0;
			if (rank == own && from != to)
				own_slice = block + slices.at * size;
			block += counts[rank] * size;
		}
		step_publish(communicator, step, kind,
			     (size_t)(data - step_data(communicator, step, staged)));
		int64_t elements = slice_of(&slices, counts[own]);
		if (!collect_operands(communicator, step, kind, staged, offset, communicator->size, own_slice,
				      &operands) ||
		    (elements > 0 && !fold(operation, &operands, to + slices.at * size, elements)))
			return OUTCOME_FAILED;
		step_end(communicator, step, true);
	}
	return OUTCOME_DONE;
}

enum outcome reduce_scan(struct communicator *communicator, const struct operation *operation,
			 const unsigned char *from, unsigned char *to, int64_t count, bool exclusive)
{
	bool staged = false;
	size_t most = 0;
	struct operands operands;
	int64_t size = operation->size;
	int end = exclusive ? communicator->rank : communicator->rank + 1;
	enum outcome chosen = choose(communicator, operation, count, REDUCE_LIMIT, &staged, &most);
	uint64_t kind =
		step_kind(exclusive ? COLLECTIVE_EXSCAN : COLLECTIVE_SCAN, 0, (uint64_t)(count * size));

	if (chosen != OUTCOME_DONE)
		return chosen;
	for (int64_t at = 0; at < count;) {
		int64_t elements = elements_of(count, at, size, most);
		size_t length = (size_t)(elements * size);
		uint64_t step = publish(communicator, kind, staged, from + at * size, length);
		if (step == 0 ||
		    !collect_operands(communicator, step, kind, staged, 0, end,
				      from != to ? from + at * size : NULL, &operands) ||
		    (end > 0 && !fold(operation, &operands, to + at * size, elements)))
			return OUTCOME_FAILED;
		/* Only the last rank has read the data of all others. */
		step_end(communicator, step, communicator->rank == communicator->size - 1 && !exclusive);
		at += elements;
	}
	return OUTCOME_DONE;
}
