/* SPDX-License-Identifier: BSD-3-Clause */
/* mixed.c - see mixed.h */
#include "mixed.h"

#include <complex.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "steps.h"

/* More than an accumulate updates at a time, with elements of 8 bytes. */
enum { ELEMENTS = 5001, RANKS_MAX = 8, THREADS_MAX = 16, SINGLES = 40, WINDOWS = 6 };

static const MPI_Datatype *types(void)
{
	static MPI_Datatype all[6];

	all[0] = MPI_INT32_T;
	all[1] = MPI_INT64_T;
	all[2] = MPI_UINT16_T;
	all[3] = MPI_FLOAT;
	all[4] = MPI_DOUBLE;
	all[5] = MPI_C_FLOAT_COMPLEX;
	return all;
}
static const char *const type_names[] = {"MPI_INT32_T", "MPI_INT64_T", "MPI_UINT16_T",
					 "MPI_FLOAT",   "MPI_DOUBLE",  "MPI_C_FLOAT_COMPLEX"};
enum { TYPES = 6 };

static void store_one(MPI_Datatype type, int i, void *bytes)
{
	if (type == MPI_INT32_T)
		((int32_t *)bytes)[i] = 1;
	else if (type == MPI_INT64_T)
		((int64_t *)bytes)[i] = 1;
	else if (type == MPI_UINT16_T)
		((uint16_t *)bytes)[i] = 1;
	else if (type == MPI_FLOAT)
		((float *)bytes)[i] = 1;
	else if (type == MPI_DOUBLE)
		((double *)bytes)[i] = 1;
	else
		((float complex *)bytes)[i] = 1;
}

static long value_of(MPI_Datatype type, int i, const void *bytes)
{
	return type == MPI_INT32_T    ? ((const int32_t *)bytes)[i]
	       : type == MPI_INT64_T  ? (long)((const int64_t *)bytes)[i]
	       : type == MPI_UINT16_T ? ((const uint16_t *)bytes)[i]
	       : type == MPI_FLOAT    ? (long)((const float *)bytes)[i]
	       : type == MPI_DOUBLE   ? (long)((const double *)bytes)[i]
				      : (long)crealf(((const float complex *)bytes)[i]);
}

/* An origin: a thread of a rank. */
struct origin {
	pthread_t thread;
	struct draw draw;
	MPI_Win window;
	MPI_Datatype type;
	MPI_Datatype every_second;
	int bytes; /* of an element */
	int ranks;
	int count;
	bool locks; /* an epoch for each operation, else one for all */
	bool singles_first;
	unsigned char *ones;
	unsigned char *before;
	int32_t added[RANKS_MAX][ELEMENTS];
};

static void count_added(struct origin *origin, int target, int first, int step, int elements)
{
	for (int i = 0; i < elements; i++)
		origin->added[target][first + i * step]++;
}

/* Adds one to an element, by compare-and-swap. */
static void swap_until_added(struct origin *origin, int target, int element)
{
	int64_t compare = 0;
	int64_t next = 0;
	int64_t before = 1;

	while (memcmp(&compare, &before, (size_t)origin->bytes) != 0) {
		memcpy(&compare, &before, (size_t)origin->bytes);
		/* Little endian, so that one works for all lengths. */
		next = compare + 1;
		MPI_Compare_and_swap(&next, &compare, &before, origin->type, target, element, origin->window);
		MPI_Win_flush(target, origin->window);
	}
}

static void add_singles(struct origin *origin, int target)
{
	bool swaps = origin->type == MPI_INT32_T || origin->type == MPI_INT64_T;

	for (int i = 0; i < SINGLES; i++) {
		int element = draw_below(&origin->draw, ELEMENTS);
		if (swaps && draw_below(&origin->draw, 3) == 0)
			swap_until_added(origin, target, element);
		else
			MPI_Fetch_and_op(origin->ones, origin->before, origin->type, target, element, MPI_SUM,
					 origin->window);
		count_added(origin, target, element, 1, 1);
	}
}

static void add_once(struct origin *origin, bool singles)
{
	int target = draw_below(&origin->draw, origin->ranks);
	int elements = 1 + draw_below(&origin->draw, ELEMENTS);
	int first = draw_below(&origin->draw, ELEMENTS - elements + 1);
	int halves = elements / 2;

	if (origin->locks)
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, origin->window);
	switch (singles ? 0 : draw_below(&origin->draw, 4)) {
	case 0:
		add_singles(origin, target);
		break;
	case 1:
		MPI_Accumulate(origin->ones, elements, origin->type, target, first, elements, origin->type,
			       MPI_SUM, origin->window);
		count_added(origin, target, first, 1, elements);
		break;
	case 2:
		MPI_Get_accumulate(origin->ones, elements, origin->type, origin->before, elements,
				   origin->type, target, first, elements, origin->type, MPI_SUM,
				   origin->window);
		count_added(origin, target, first, 1, elements);
		break;
	default:
		MPI_Accumulate(origin->ones, halves, origin->type, target, first, halves,
			       origin->every_second, MPI_SUM, origin->window);
		count_added(origin, target, first, 2, halves);
		break;
	}
	if (origin->locks)
		MPI_Win_unlock(target, origin->window);
	else
		MPI_Win_flush(target, origin->window);
}

static void *add_all(void *argument)
{
	struct origin *origin = argument;

	for (int i = 0; i < origin->count; i++)
		add_once(origin, origin->singles_first && i < origin->count / 2);
	return NULL;
}

static void open_origin(struct origin *origin, int thread, int rank, int window)
{
	origin->draw = draw_from((uint64_t)window, (uint64_t)thread, (uint64_t)rank);
	origin->ones = malloc((size_t)ELEMENTS * (size_t)origin->bytes);
	origin->before = malloc((size_t)ELEMENTS * (size_t)origin->bytes);
	memset(origin->added, 0, sizeof(origin->added));
	for (int i = 0; i < ELEMENTS; i++)
		store_one(origin->type, i, origin->ones);
}

static void check_sums(MPI_Datatype type, const void *own, const int32_t *added, int ranks)
{
	int32_t *expected = malloc(sizeof(int32_t) * (size_t)ELEMENTS);

	MPI_Reduce_scatter_block(added, expected, ELEMENTS, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < ELEMENTS; i++)
		if (value_of(type, i, own) != expected[i])
			wrong("element %d is %ld, not %d, among %d ranks", i, value_of(type, i, own),
			      expected[i], ranks);
	free(expected);
}

/* A vector whose elements lie two apart, and end behind the last one, so that several follow each other. */
static MPI_Datatype make_every_second(MPI_Datatype type, int bytes)
{
	MPI_Datatype made;

	MPI_Type_create_resized(type, 0, 2 * (MPI_Aint)bytes, &made);
	MPI_Type_commit(&made);
	return made;
}

static void mix_in_window(struct origin *origins, int threads, int rank, int number)
{
	struct origin *first = &origins[0];
	unsigned char *own;

	MPI_Type_size(first->type, &first->bytes);
	first->every_second = make_every_second(first->type, first->bytes);
	MPI_Win_allocate((MPI_Aint)ELEMENTS * first->bytes, first->bytes, MPI_INFO_NULL, MPI_COMM_WORLD, &own,
			 &first->window);
	memset(own, 0, (size_t)ELEMENTS * (size_t)first->bytes);
	for (int i = 0; i < threads; i++) {
		/* The numbers of the elements are the last member. */
		if (i > 0)
			memcpy(&origins[i], first, offsetof(struct origin, added));
		open_origin(&origins[i], i, rank, number);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!first->locks)
		MPI_Win_lock_all(0, first->window);
	for (int i = 0; i < threads; i++)
		if (threads > 1)
			pthread_create(&origins[i].thread, NULL, add_all, &origins[i]);
		else
			add_all(first);
	for (int i = 0; i < threads; i++) {
		if (threads > 1)
			pthread_join(origins[i].thread, NULL);
		for (int at = 0; i > 0 && at < RANKS_MAX * ELEMENTS; at++)
			first->added[at / ELEMENTS][at % ELEMENTS] +=
				origins[i].added[at / ELEMENTS][at % ELEMENTS];
		free(origins[i].ones);
		free(origins[i].before);
	}
	if (!first->locks)
		MPI_Win_unlock_all(first->window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, first->window);
	check_sums(first->type, own, first->added[0], first->ranks);
	MPI_Win_unlock(rank, first->window);
	MPI_Type_free(&first->every_second);
	MPI_Win_free(&first->window);
}

void mixed_sums(int count, int threads)
{
	struct origin *origins = calloc(THREADS_MAX, sizeof(*origins));
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &origins[0].ranks);
	if (origins[0].ranks > RANKS_MAX || threads > THREADS_MAX)
		wrong("too many ranks or threads");
	for (int number = 0; number < WINDOWS * TYPES; number++) {
		describe("%s, window %d", type_names[number % TYPES], number);
		origins[0].type = types()[number % TYPES];
		origins[0].count = count;
		/* An epoch of locks has one thread. */
		origins[0].locks = number / TYPES % 2 == 1 && threads == 1;
		origins[0].singles_first = number / TYPES % 3 == 0;
		mix_in_window(origins, threads, rank, number);
	}
	free(origins);
}
