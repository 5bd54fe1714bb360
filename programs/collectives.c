/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collectives - how long a broadcast, an allgather, an allreduce and an alltoall take.
 *
 * The size is that of one rank's part: of the message that is broadcast, of what each rank
 * contributes to an allgather, of the vector of an allreduce (sums of doubles), and of the
 * block that each rank sends to each other in an alltoall. Calls follow each other without
 * a barrier; a broadcast's root is another rank each time, so that no root runs ahead. The
 * time of a repetition is that of the slowest rank. Before anything is timed each
 * operation's answer is checked once.
 *
 *     mpiexec -n 4 collectives [--sizes 8,65536] [--repetitions 5] [--seconds 0.05]
 */
#include "measure.h"

struct group {
	struct exchange exchange; /* first: the operations get a pointer to it */
	char *received;
	int ranks;
};

static const struct group *group_of(const struct exchange *exchange)
{
	return (const struct group *)(const void *)exchange;
}

static void bcast(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Bcast(exchange->buffer, exchange->size, MPI_CHAR, (int)(i % group_of(exchange)->ranks),
			  MPI_COMM_WORLD);
}

static void allgather(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Allgather(exchange->buffer, exchange->size, MPI_CHAR, group_of(exchange)->received,
			      exchange->size, MPI_CHAR, MPI_COMM_WORLD);
}

static void allreduce(const struct exchange *exchange, long iterations)
{
	int count = exchange->size / (int)sizeof(double);

	for (long i = 0; i < iterations; i++)
		MPI_Allreduce(exchange->buffer, group_of(exchange)->received, count, MPI_DOUBLE, MPI_SUM,
			      MPI_COMM_WORLD);
}

static void alltoall(const struct exchange *exchange, long iterations)
{
	for (long i = 0; i < iterations; i++)
		MPI_Alltoall(exchange->buffer, exchange->size, MPI_CHAR, group_of(exchange)->received,
			     exchange->size, MPI_CHAR, MPI_COMM_WORLD);
}

static const struct operation {
	const char *name;
	exchange_function *run;
} operations[] = {
	{"bcast", bcast}, {"allgather", allgather}, {"allreduce", allreduce}, {"alltoall", alltoall}};

/* Each rank's doubles in block `block` of its buffer. */
static double element(int rank, int block, int i)
{
	return 1000.0 * rank + 100.0 * block + i % 97;
}

static void fill(const struct group *group)
{
	double *values = (double *)(void *)group->exchange.buffer;
	int count = group->exchange.size / (int)sizeof(double);

	for (int block = 0; block < group->ranks; block++)
		for (int i = 0; i < count; i++)
			values[block * count + i] = element(group->exchange.rank, block, i);
}

/* What element `i` of block `block` has to be after one call; of a bcast, in the buffer itself. */
static double expected(const struct group *group, int operation, int block, int i)
{
	double sum = 0;

	switch (operation) {
	case 0:
		return element(0, 0, i);
	case 1:
		return element(block, 0, i);
	case 2:
		for (int rank = 0; rank < group->ranks; rank++)
			sum += element(rank, 0, i);
		return sum;
	default:
		return element(block, group->exchange.rank, i);
	}
}

static void verify(const struct group *group, int operation)
{
	int count = group->exchange.size / (int)sizeof(double);
	int blocks = operation == 0 || operation == 2 ? 1 : group->ranks;
	const double *values =
		(const double *)(const void *)(operation == 0 ? group->exchange.buffer : group->received);

	fill(group);
	memset(group->received, 0, (size_t)group->ranks * (size_t)group->exchange.size);
	operations[operation].run(&group->exchange, 1);
	for (int block = 0; block < blocks; block++) {
		for (int i = 0; i < count; i++) {
			if (values[block * count + i] == expected(group, operation, block, i))
				continue;
			fprintf(stderr,
				"collectives: error: %s of %d bytes is wrong at element %d of block %d: "
				"the figures would mean nothing\n",
				operations[operation].name, group->exchange.size, i, block);
			MPI_Abort(MPI_COMM_WORLD, 3);
		}
	}
}

static void measure(const struct measure_options *options, struct group *group, int operation)
{
	long iterations;

	verify(group, operation);
	iterations = measure_calibrate(operations[operation].run, &group->exchange, options->seconds);
	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double taken = measure_seconds(operations[operation].run, &group->exchange, iterations);
		double slowest;

		MPI_Reduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		if (group->exchange.rank == 0) {
			printf("{\"operation\": \"%s\", \"size\": %d, \"repetition\": %d, "
			       "\"iterations\": %ld, \"microseconds\": %.6f}\n",
			       operations[operation].name, group->exchange.size, repetition, iterations,
			       slowest * 1e6 / (double)iterations);
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	struct measure_options options;
	struct group group = {0};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &group.exchange.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &group.ranks);
	options = measure_options(argc, argv);
	measure_print_run("collectives", group.exchange.rank, group.ranks);
	for (int i = 0; i < options.size_count; i++) {
		if (options.sizes[i] == 0 || options.sizes[i] % sizeof(double) != 0)
			measure_usage("collectives", "sizes are multiples of 8 bytes");
		group.exchange.size = (int)options.sizes[i];
		group.exchange.buffer = measure_buffer((size_t)group.ranks * options.sizes[i]);
		group.received = measure_buffer((size_t)group.ranks * options.sizes[i]);
		for (int operation = 0; operation < (int)(sizeof(operations) / sizeof(operations[0]));
		     operation++)
			measure(&options, &group, operation);
		free(group.received);
		free(group.exchange.buffer);
	}
	MPI_Finalize();
	return 0;
}
