/* SPDX-License-Identifier: BSD-3-Clause */
/* shared.c - see shared.h */
#include "shared.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "steps.h"

enum { RANKS_MAX = 64 };

static int me; /* in `node` */
static int size;
static MPI_Comm node;
static char library[MPI_MAX_LIBRARY_VERSION_STRING];

/* ---- groups -------------------------------------------------------------------------------------- */

/* Makes the communicator of the ranks that share memory with this one, in the reverse order of the world. */
static void make_node(void)
{
	int rank;
	int ranks;
	int first;
	int lengths[RANKS_MAX];
	MPI_Comm none;

	describe("groups");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &node);
	MPI_Comm_rank(node, &me);
	MPI_Comm_size(node, &size);
	first = rank;
	MPI_Bcast(&first, 1, MPI_INT, 0, node);
	if (first < rank || (me == 0 && first != rank) || (size == ranks && me != ranks - 1 - rank))
		wrong("key -%d gave place %d of %d behind rank %d", rank, me, size, first);
	int length = me == 0 ? size : 0;
	MPI_Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("groups of");
		for (int i = 0; i < ranks; i++)
			if (lengths[i] != 0)
				printf(" %d", lengths[i]);
		printf("\n");
	}
	/* The last rank wants no communicator, and says so by another type than the others. */
	MPI_Comm_split_type(MPI_COMM_WORLD, rank == ranks - 1 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0,
			    MPI_INFO_NULL, &none);
	if ((none == MPI_COMM_NULL) != (rank == ranks - 1))
		wrong("MPI_UNDEFINED");
	if (none != MPI_COMM_NULL)
		MPI_Comm_free(&none);
}

/* ---- one window ---------------------------------------------------------------------------------- */

struct shared {
	MPI_Win window;
	int64_t *own;
	MPI_Aint words[RANKS_MAX]; /* of all ranks */
	int units[RANKS_MAX];
	int64_t *bases[RANKS_MAX];
	bool contiguous;
};

static void check_attributes(const struct shared *shared)
{
	const struct {
		int key;
		MPI_Aint value;
	} wanted[] = {
		{MPI_WIN_SIZE, shared->words[me] * 8},
		{MPI_WIN_DISP_UNIT, shared->units[me]},
		{MPI_WIN_CREATE_FLAVOR, MPI_WIN_FLAVOR_SHARED},
		{MPI_WIN_MODEL, MPI_WIN_UNIFIED},
	};
	void *value = NULL;
	int found = 0;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		MPI_Win_get_attr(shared->window, wanted[i].key, &value, &found);
		MPI_Aint got = i == 0 ? *(MPI_Aint *)value : *(int *)value;
		if (!found || got != wanted[i].value)
			wrong("attribute %zu is %lld", i, (long long)got);
	}
	MPI_Win_get_attr(shared->window, MPI_WIN_BASE, &value, &found);
	if (!found || (shared->words[me] != 0 && value != shared->own))
		wrong("MPI_WIN_BASE");
}

static void query_all(struct shared *shared)
{
	int64_t *end = NULL;
	int64_t *first = NULL;
	MPI_Aint bytes = -1;
	int unit = -1;

	for (int rank = 0; rank < size; rank++) {
		MPI_Win_shared_query(shared->window, rank, &bytes, &unit, &shared->bases[rank]);
		if (bytes != shared->words[rank] * 8 || unit != shared->units[rank])
			wrong("rank %d has %lld bytes, unit %d", rank, (long long)bytes, unit);
		if (bytes == 0)
			continue;
		first = first != NULL ? first : shared->bases[rank];
		if (shared->contiguous && end != NULL && shared->bases[rank] != end)
			wrong("the memory of rank %d is not behind that of the ranks before", rank);
		end = shared->bases[rank] + shared->words[rank];
	}
	int64_t *base = NULL;
	MPI_Win_shared_query(shared->window, MPI_PROC_NULL, &bytes, &unit, &base);
	if (first != NULL && base != first)
		wrong("MPI_PROC_NULL names other memory");
	if (shared->words[me] != 0 && shared->bases[me] != shared->own)
		wrong("a rank's own memory is elsewhere");
}

static struct shared make_shared(uint64_t seed, int number)
{
	struct shared shared = {.contiguous = number % 3 != 2};
	struct draw draw = draw_from(seed, (uint64_t)number, 0);
	MPI_Info info = MPI_INFO_NULL;

	if (!shared.contiguous) {
		MPI_Info_create(&info);
		MPI_Info_set(info, "alloc_shared_noncontig", "true");
	}
	for (int rank = 0; rank < size; rank++) {
		/* Often all in one rank, and sometimes nothing at all. */
		bool none = (number % 4 == 1 && rank != number % size) || number % 16 == 7;
		shared.words[rank] = none ? 0 : 1 + draw_below(&draw, number % 8 == 0 ? 40000 : 700);
		shared.units[rank] = draw_below(&draw, 2) == 0 ? 8 : 1;
	}
	MPI_Win_allocate_shared(shared.words[me] * 8, shared.units[me], info, node, &shared.own,
				&shared.window);
	if (info != MPI_INFO_NULL)
		MPI_Info_free(&info);
	check_attributes(&shared);
	query_all(&shared);
	return shared;
}

/* ---- loads and stores ---------------------------------------------------------------------------- */

enum sync { SYNC_FENCE, SYNC_LOCK_ALL, SYNC_LOCK, SYNC_POST, SYNCS };

/* Between the accesses of all ranks before and behind it. */
static void synchronize(MPI_Win window, enum sync sync)
{
	MPI_Group group;

	switch (sync) {
	case SYNC_FENCE:
		MPI_Win_fence(0, window);
		break;
	case SYNC_LOCK_ALL:
		MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
		MPI_Win_sync(window);
		MPI_Barrier(node);
		MPI_Win_sync(window);
		MPI_Win_unlock_all(window);
		break;
	case SYNC_LOCK:
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, window);
		MPI_Win_unlock(me, window);
		MPI_Barrier(node);
		MPI_Win_lock(MPI_LOCK_SHARED, (me + 1) % size, 0, window);
		MPI_Win_unlock((me + 1) % size, window);
		break;
	default:
		MPI_Win_get_group(window, &group);
		MPI_Win_post(group, 0, window);
		MPI_Win_start(group, 0, window);
		MPI_Win_complete(window);
		MPI_Win_wait(window);
		MPI_Group_free(&group);
	}
}

static int64_t word_at(int rank, MPI_Aint at, int round)
{
	return ((int64_t)rank << 40) + ((int64_t)round << 24) + at;
}

/* Each rank stores words in the memory of the rank `shift` places further, and loads those of all. */
static void check_loads(const struct shared *shared, int round, enum sync sync)
{
	int target = (me + round) % size;

	for (MPI_Aint i = 0; i < shared->words[target]; i++)
		shared->bases[target][i] = word_at(target, i, round);
	synchronize(shared->window, sync);
	for (int rank = 0; rank < size; rank++)
		for (MPI_Aint i = 0; i < shared->words[rank]; i++)
			if (shared->bases[rank][i] != word_at(rank, i, round))
				wrong("word %lld of rank %d is %llx in round %d", (long long)i, rank,
				      (unsigned long long)shared->bases[rank][i], round);
	synchronize(shared->window, sync);
}

/* Elements of more than 8 bytes, which the MPI library accumulates. Open MPI 5.0.11 itself does that wrong.
 */
static void check_long_elements(const struct shared *shared, int next)
{
	long double value = 1.5L + me;
	long double sum = 0;

	if (strstr(library, "Open MPI") != NULL)
		return;
	if (shared->words[me] > 1)
		memset(shared->own, 0, sizeof(value));
	MPI_Win_fence(0, shared->window);
	if (shared->words[next] > 1)
		MPI_Accumulate(&value, 1, MPI_LONG_DOUBLE, next, 0, 1, MPI_LONG_DOUBLE, MPI_SUM,
			       shared->window);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, shared->window);
	for (int rank = 0; rank < size; rank++) {
		if (shared->words[rank] < 2)
			continue;
		memcpy(&sum, shared->bases[rank], sizeof(sum));
		if (sum != 1.5L + (rank + size - 1) % size)
			wrong("rank %d has a sum of %Lg", rank, sum);
	}
	MPI_Barrier(node);
}

/* Operations on the memory are seen by loads, and add up with those of all ranks. */
static void check_operations(const struct shared *shared)
{
	int next = (me + 1) % size;
	int64_t value = 100 + me;
	int64_t one = 1;
	int64_t got = -1;

	if (shared->words[me] != 0)
		shared->own[0] = shared->own[shared->words[me] - 1] = 0;
	MPI_Win_fence(0, shared->window);
	if (shared->words[next] > 1)
		MPI_Put(&value, 1, MPI_INT64_T, next, (shared->words[next] - 1) * 8 / shared->units[next], 1,
			MPI_INT64_T, shared->window);
	MPI_Win_fence(0, shared->window);
	if (shared->words[next] > 1)
		MPI_Get(&got, 1, MPI_INT64_T, next, (shared->words[next] - 1) * 8 / shared->units[next], 1,
			MPI_INT64_T, shared->window);
	for (int rank = 0; rank < size; rank++)
		if (shared->words[rank] != 0)
			MPI_Accumulate(&one, 1, MPI_INT64_T, rank, 0, 1, MPI_INT64_T, MPI_SUM,
				       shared->window);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, shared->window);
	if (shared->words[next] > 1 && got != value)
		wrong("put %lld and got %lld", (long long)value, (long long)got);
	for (int rank = 0; rank < size; rank++) {
		MPI_Aint words = shared->words[rank];
		if (words > 1 && shared->bases[rank][words - 1] != 100 + (rank + size - 1) % size)
			wrong("the put to rank %d is not seen", rank);
		if (words != 0 && shared->bases[rank][0] != size)
			wrong("%d ranks added up to %lld", size, (long long)shared->bases[rank][0]);
	}
	MPI_Barrier(node);
	MPI_Win_lock_all(0, shared->window);
	for (int rank = 0; rank < size; rank++)
		if (shared->words[rank] != 0) {
			MPI_Fetch_and_op(&one, &got, MPI_INT64_T, rank, 0, MPI_SUM, shared->window);
			MPI_Win_flush(rank, shared->window);
			if (got < size || got >= 2 * size)
				wrong("fetched %lld", (long long)got);
		}
	MPI_Win_unlock_all(shared->window);
	MPI_Barrier(node);
	check_long_elements(shared, next);
}

void shared_run(int count)
{
	int length;

	make_node();
	MPI_Get_library_version(library, &length);
	for (int number = 0; number < count; number++) {
		describe("shared window %d of %d ranks", number, size);
		struct shared shared = make_shared(35, number);
		for (int round = 0; round < 4; round++)
			check_loads(&shared, number + round, (enum sync)((number + round) % SYNCS));
		check_operations(&shared);
		MPI_Win_free(&shared.window);
	}
	MPI_Comm_free(&node);
}

/* ---- a stencil ----------------------------------------------------------------------------------- */

enum { CELLS = 200 }; /* of each rank */

static double advance(double left, double own, double right)
{
	return 0.25 * left + 0.5 * own + 0.25 * right + 1e-3 * own * (right - left);
}

/* What a program on one rank computes, in place. */
static void reference(double *cells, int length, int steps)
{
	double *next = malloc((size_t)length * sizeof(*next));

	for (int step = 0; step < steps; step++) {
		for (int i = 0; i < length; i++)
			next[i] =
				advance(cells[(i + length - 1) % length], cells[i], cells[(i + 1) % length]);
		memcpy(cells, next, (size_t)length * sizeof(*next));
	}
	free(next);
}

/* The cells of `rank` of the world, in both halves, if it shares memory with this one; else NULL. */
static double *neighbour(MPI_Win window, int rank)
{
	MPI_Group world;
	MPI_Group group;
	int there = 0;
	MPI_Aint bytes = 0;
	int unit = 0;
	double *base = NULL;

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Comm_group(node, &group);
	MPI_Group_translate_ranks(world, 1, &rank, group, &there);
	MPI_Group_free(&world);
	MPI_Group_free(&group);
	if (there == MPI_UNDEFINED)
		return NULL;
	MPI_Win_shared_query(window, there, &bytes, &unit, &base);
	return base;
}

void shared_halo(int count)
{
	int rank;
	int ranks;
	MPI_Win window;
	double *own;

	make_node();
	describe("stencil");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	double *all = malloc((size_t)ranks * CELLS * sizeof(*all));
	for (int i = 0; i < ranks * CELLS; i++)
		all[i] = (double)(i * 7919 % 1000) / 1000;
	MPI_Win_allocate_shared((MPI_Aint)(2 * CELLS * sizeof(double)), sizeof(double), MPI_INFO_NULL, node,
				&own, &window);
	memcpy(own, all + (size_t)rank * CELLS, CELLS * sizeof(double));
	int left = (rank + ranks - 1) % ranks;
	int right = (rank + 1) % ranks;
	const double *left_cells = neighbour(window, left);
	const double *right_cells = neighbour(window, right);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
	for (int step = 0; step < count; step++) {
		double *now = own + (size_t)(step % 2) * CELLS;
		double *next = own + (size_t)((step + 1) % 2) * CELLS;
		double from_left = 0;
		double from_right = 0;
		MPI_Request requests[4];
		int outstanding = 0;
		MPI_Win_sync(window);
		MPI_Barrier(node);
		MPI_Win_sync(window);
		if (left_cells != NULL) {
			from_left = left_cells[step % 2 * CELLS + CELLS - 1];
		} else {
			MPI_Irecv(&from_left, 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
				  &requests[outstanding++]);
			MPI_Isend(&now[0], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[outstanding++]);
		}
		if (right_cells != NULL) {
			from_right = right_cells[step % 2 * CELLS];
		} else {
			MPI_Irecv(&from_right, 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD,
				  &requests[outstanding++]);
			MPI_Isend(&now[CELLS - 1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD,
				  &requests[outstanding++]);
		}
		MPI_Waitall(outstanding, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < CELLS; i++)
			next[i] = advance(i > 0 ? now[i - 1] : from_left, now[i],
					  i < CELLS - 1 ? now[i + 1] : from_right);
	}
	MPI_Win_unlock_all(window);
	reference(all, ranks * CELLS, count);
	for (int i = 0; i < CELLS; i++)
		if (own[(size_t)(count % 2) * CELLS + (size_t)i] != all[rank * CELLS + i])
			wrong("cell %d is %g instead of %g", i, own[(size_t)(count % 2) * CELLS + (size_t)i],
			      all[rank * CELLS + i]);
	free(all);
	MPI_Win_free(&window);
	MPI_Comm_free(&node);
}

/* ---- errors -------------------------------------------------------------------------------------- */

static const char *class_of(int status)
{
	int class = MPI_SUCCESS;

	MPI_Error_class(status, &class);
	return class == MPI_SUCCESS          ? "none"
	       : class == MPI_ERR_NO_MEM     ? "no memory"
	       : class == MPI_ERR_RMA_SHARED ? "not shared"
					     : "another";
}

/* Which error there is for a window of so many bytes a rank. */
static const char *attempt(MPI_Comm comm, MPI_Aint bytes)
{
	MPI_Win window;
	void *base;

	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	int status = MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, &base, &window);
	if (status == MPI_SUCCESS)
		MPI_Win_free(&window);
	return class_of(status);
}

void shared_refused(void)
{
	int rank;

	make_node();
	describe("windows that cannot be");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	const char *too_long = attempt(node, (MPI_Aint)1 << 38);
	const char *apart = attempt(MPI_COMM_WORLD, 100);
	if (rank == 0)
		printf("too long: %s\nall: %s\n", too_long, apart);
	MPI_Comm_free(&node);
}
