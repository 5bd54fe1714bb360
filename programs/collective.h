/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective.h - the collective operations that collectives and record measure, and the check of
 * their results.
 *
 * The size refers to one rank's part: the broadcast message, the contribution of each rank to an
 * allgather, the vector of an allreduce (sums of doubles), and the block that each rank sends to
 * each other rank in an alltoall.
 */
#ifndef PROGRAMS_COLLECTIVE_H
#define PROGRAMS_COLLECTIVE_H

#include "measure.h"

struct group {
	struct exchange exchange; /* first: the operations get a pointer to it */
	char *received;           /* as `exchange.buffer`, with `size` bytes for each rank */
	int ranks;
};

static inline const struct group *group_of(const struct exchange *exchange)
{
	return (const struct group *)(const void *)exchange;
}

/* The root changes with each iteration, so that no root runs ahead. */
static inline void bcast(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Bcast(exchange->buffer, exchange->size, MPI_CHAR, (int)(i % group_of(exchange)->ranks),
			  MPI_COMM_WORLD);
}

static inline void allgather(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Allgather(exchange->buffer, exchange->size, MPI_CHAR, group_of(exchange)->received,
			      exchange->size, MPI_CHAR, MPI_COMM_WORLD);
}

static inline void allreduce(const struct exchange *exchange, long iterations)
{
	int count = exchange->size / (int)sizeof(double);

	for (long i = 0; i < iterations; i++)
		MPI_Allreduce(exchange->buffer, group_of(exchange)->received, count, MPI_DOUBLE, MPI_SUM,
			      MPI_COMM_WORLD);
}

static inline void alltoall(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Alltoall(exchange->buffer, exchange->size, MPI_CHAR, group_of(exchange)->received,
			     exchange->size, MPI_CHAR, MPI_COMM_WORLD);
}

enum { BCAST, ALLGATHER, ALLREDUCE, ALLTOALL, COLLECTIVES };

static const struct collective {
	const char *name;
	exchange_function *run;
} collectives[COLLECTIVES] = {
	[BCAST] = {"bcast", bcast},
	[ALLGATHER] = {"allgather", allgather},
	[ALLREDUCE] = {"allreduce", allreduce},
	[ALLTOALL] = {"alltoall", alltoall},
};

/* Byte `i` of block `block` in the buffer of `rank`. */
static inline char collective_byte(int rank, int block, int i)
{
	return (char)(31 * rank + 17 * block + 7 * i + 1);
}

/*
 * Double `i` of the contribution of `rank` to an allreduce: small integers, whose sums are exact.
 */
static inline double collective_number(int rank, int i)
{
	return 1000.0 * rank + i % 97;
}

static inline void collective_fill(const struct group *group, int operation)
{
	int size = group->exchange.size;
	double *numbers = (double *)(void *)group->exchange.buffer;

	for (int block = 0; block < group->ranks; block++)
		for (int i = 0; i < size; i++)
			group->exchange.buffer[(size_t)block * (size_t)size + (size_t)i] =
				collective_byte(group->exchange.rank, block, i);
	for (int i = 0; operation == ALLREDUCE && i < size / (int)sizeof(double); i++)
		numbers[i] = collective_number(group->exchange.rank, i);
	memset(group->received, 0, (size_t)group->ranks * (size_t)size);
}

/*
 * Whether byte `i` of block `block` is correct after one call. A bcast's result is in the buffer
 * itself.
 */
static inline int collective_right(const struct group *group, int operation, int block, int i)
{
	size_t at = (size_t)block * (size_t)group->exchange.size + (size_t)i;
	int number = i / (int)sizeof(double);
	double sum = 0;

	switch (operation) {
	case BCAST:
		return group->exchange.buffer[at] == collective_byte(0, 0, i);
	case ALLGATHER:
		return group->received[at] == collective_byte(block, 0, i);
	case ALLREDUCE:
		for (int rank = 0; rank < group->ranks; rank++)
			sum += collective_number(rank, number);
		return ((const double *)(const void *)group->received)[number] == sum;
	default:
		return group->received[at] == collective_byte(block, group->exchange.rank, i);
	}
}

/* Ends the job if the operation's result is wrong. */
static inline void collective_verify(const struct group *group, int operation)
{
	int blocks = operation == BCAST || operation == ALLREDUCE ? 1 : group->ranks;

	collective_fill(group, operation);
	collectives[operation].run(&group->exchange, 1);
	for (int block = 0; block < blocks; block++) {
		for (int i = 0; i < group->exchange.size; i++) {
			if (collective_right(group, operation, block, i))
				continue;
			fprintf(stderr,
				"error: %s of %d bytes is wrong at byte %d of block %d: the figures would be "
				"invalid\n",
				collectives[operation].name, group->exchange.size, i, block);
			MPI_Abort(MPI_COMM_WORLD, 3);
		}
	}
}

#endif
