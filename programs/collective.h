/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective.h - the collective operations that collectives and record measure, and the check of
 * their results.
 *
 * The size refers to one rank's part: the broadcast message, the block of each rank in a gather, a
 * scatter, an allgather and an alltoall, the vector of a reduction (sums of doubles), and the part of
 * the result that each rank gets of a reduce-scatter. A barrier has no size.
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

static inline int root_of(const struct exchange *exchange, long iteration)
{
	/* It changes, so that no root runs ahead. */
	return (int)(iteration % group_of(exchange)->ranks);
}

static inline void barrier(const struct exchange *exchange, long iterations)
{
	(void)exchange;
	for (long i = 0; i < iterations; i++)
		MPI_Barrier(MPI_COMM_WORLD);
}

static inline void bcast(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Bcast(exchange->buffer, exchange->size, MPI_CHAR, root_of(exchange, i), MPI_COMM_WORLD);
}

static inline void reduce(const struct exchange *exchange, long iterations)
{
	int count = exchange->size / (int)sizeof(double);

	for (long i = 0; i < iterations; i++)
		MPI_Reduce(exchange->buffer, group_of(exchange)->received, count, MPI_DOUBLE, MPI_SUM,
			   root_of(exchange, i), MPI_COMM_WORLD);
}

static inline void reduce_scatter(const struct exchange *exchange, long iterations)
{
	int count = exchange->size / (int)sizeof(double);

	for (long i = 0; i < iterations; i++)
		MPI_Reduce_scatter_block(exchange->buffer, group_of(exchange)->received, count, MPI_DOUBLE,
					 MPI_SUM, MPI_COMM_WORLD);
}

static inline void gather(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Gather(exchange->buffer, exchange->size, MPI_CHAR, group_of(exchange)->received,
			   exchange->size, MPI_CHAR, root_of(exchange, i), MPI_COMM_WORLD);
}

static inline void scatter(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Scatter(exchange->buffer, exchange->size, MPI_CHAR, group_of(exchange)->received,
			    exchange->size, MPI_CHAR, root_of(exchange, i), MPI_COMM_WORLD);
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

enum {
	BARRIER,
	BCAST,
	REDUCE,
	ALLREDUCE,
	REDUCE_SCATTER,
	GATHER,
	SCATTER,
	ALLGATHER,
	ALLTOALL,
	COLLECTIVES,
};

static const struct collective {
	const char *name;
	exchange_function *run;
} collectives[COLLECTIVES] = {
	[BARRIER] = {"barrier", barrier},
	[BCAST] = {"bcast", bcast},
	[REDUCE] = {"reduce", reduce},
	[ALLREDUCE] = {"allreduce", allreduce},
	[REDUCE_SCATTER] = {"reduce-scatter", reduce_scatter},
	[GATHER] = {"gather", gather},
	[SCATTER] = {"scatter", scatter},
	[ALLGATHER] = {"allgather", allgather},
	[ALLTOALL] = {"alltoall", alltoall},
};

/* Byte `i` of block `block` in the buffer of `rank`. */
static inline char collective_byte(int rank, int block, int i)
{
	return (char)(31 * rank + 17 * block + 7 * i + 1);
}

static inline int collective_reduces(int operation)
{
	return operation == REDUCE || operation == ALLREDUCE || operation == REDUCE_SCATTER;
}

/* Double `i` of the contribution of `rank` to a reduction: small integers, whose sums are exact. */
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
	for (int i = 0; collective_reduces(operation) && i < group->ranks * (size / (int)sizeof(double)); i++)
		numbers[i] = collective_number(group->exchange.rank, i);
	memset(group->received, 0, (size_t)group->ranks * (size_t)size);
}

/* The number of blocks that one call gives to this rank. Rank 0 is the root of the first call. */
static inline int collective_blocks(const struct group *group, int operation)
{
	switch (operation) {
	case BARRIER:
		return 0;
	case REDUCE:
		return group->exchange.rank == 0 ? 1 : 0;
	case GATHER:
		return group->exchange.rank == 0 ? group->ranks : 0;
	case ALLGATHER:
	case ALLTOALL:
		return group->ranks;
	default:
		return 1;
	}
}

/*
 * Whether byte `i` of block `block` is correct after one call. A bcast's result is in the buffer
 * itself.
 */
static inline int collective_right(const struct group *group, int operation, int block, int i)
{
	size_t at = (size_t)block * (size_t)group->exchange.size + (size_t)i;
	int number = i / (int)sizeof(double);
	int first = operation == REDUCE_SCATTER
			    ? group->exchange.rank * (group->exchange.size / (int)sizeof(double))
			    : 0;
	double sum = 0;

	switch (operation) {
	case BCAST:
		return group->exchange.buffer[at] == collective_byte(0, 0, i);
	case GATHER:
	case ALLGATHER:
		return group->received[at] == collective_byte(block, 0, i);
	case SCATTER:
		return group->received[at] == collective_byte(0, group->exchange.rank, i);
	case REDUCE:
	case ALLREDUCE:
	case REDUCE_SCATTER:
		for (int rank = 0; rank < group->ranks; rank++)
			sum += collective_number(rank, first + number);
		return ((const double *)(const void *)group->received)[number] == sum;
	default:
		return group->received[at] == collective_byte(block, group->exchange.rank, i);
	}
}

/* Ends the job if the operation's result is wrong. */
static inline void collective_verify(const struct group *group, int operation)
{
	int blocks = collective_blocks(group, operation);

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
