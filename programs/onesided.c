/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * onesided - the time of a put, a get and an accumulate, for each message size, and of a fetch-and-op of 8
 * bytes.
 *
 * Rank 0 accesses a window of rank 1 within one passive epoch (MPI_Win_lock_all). MPI_Win_flush
 * follows every operation, so that the time includes all of the operation. With `--together N`, it
 * follows every N operations, and the time is that of one operation in a stream. Rank 1 waits in
 * MPI_Barrier meanwhile, where a library that needs its progress gets it. `--window create` creates
 * a window on memory that the program allocated. With `allocate`, the library allocates the memory,
 * possibly where both ranks can access it directly. An accumulate adds 64-bit integers. Each
 * operation's result is checked once, before the measurement.
 *
 *     mpiexec -n 2 onesided [--window create|allocate] [--together 1] [--sizes 8] [--repetitions 5]
 */
#include <stdint.h>

#include "measure.h"

#define TARGET 1

struct epoch {
	struct exchange exchange; /* first: the operations get a pointer to it */
	MPI_Win window;
	long together; /* operations for each flush */
};

static MPI_Win window_of(const struct exchange *exchange)
{
	return ((const struct epoch *)(const void *)exchange)->window;
}

/* Call after operation `i` of `iterations`. */
static void flush_in_turn(const struct exchange *exchange, long i, long iterations)
{
	const struct epoch *epoch = (const struct epoch *)(const void *)exchange;

	if ((i + 1) % epoch->together == 0 || i + 1 == iterations)
		MPI_Win_flush(TARGET, epoch->window);
}

static void put(const struct exchange *exchange, long iterations)
{
	if (exchange->rank != 0)
		return;
	for (long i = 0; i < iterations; i++) {
		MPI_Put(exchange->buffer, exchange->size, MPI_CHAR, TARGET, 0, exchange->size, MPI_CHAR,
			window_of(exchange));
		flush_in_turn(exchange, i, iterations);
	}
}

static void get(const struct exchange *exchange, long iterations)
{
	if (exchange->rank != 0)
		return;
	for (long i = 0; i < iterations; i++) {
		MPI_Get(exchange->buffer, exchange->size, MPI_CHAR, TARGET, 0, exchange->size, MPI_CHAR,
			window_of(exchange));
		flush_in_turn(exchange, i, iterations);
	}
}

static void accumulate(const struct exchange *exchange, long iterations)
{
	int count = exchange->size / (int)sizeof(int64_t);

	if (exchange->rank != 0)
		return;
	for (long i = 0; i < iterations; i++) {
		MPI_Accumulate(exchange->buffer, count, MPI_INT64_T, TARGET, 0, count, MPI_INT64_T, MPI_SUM,
			       window_of(exchange));
		flush_in_turn(exchange, i, iterations);
	}
}

static void fetch_and_op(const struct exchange *exchange, long iterations)
{
	int64_t before = 0;

	if (exchange->rank != 0)
		return;
	for (long i = 0; i < iterations; i++) {
		MPI_Fetch_and_op(exchange->buffer, &before, MPI_INT64_T, TARGET, 0, MPI_SUM,
				 window_of(exchange));
		flush_in_turn(exchange, i, iterations);
	}
}

/* `only`: the only size, or 0. */
static const struct {
	const char *name;
	exchange_function *run;
	int only;
} operations[] = {
	{"put", put, 0},
	{"get", get, 0},
	{"accumulate", accumulate, 0},
	{"fetch-and-op", fetch_and_op, (int)sizeof(int64_t)},
};

/* 5 is put, 7 is added twice, and once more to the first element: the get must return 26, and 19 behind it.
 */
static void verify(struct epoch *epoch)
{
	struct exchange exchange = epoch->exchange;
	size_t count = (size_t)exchange.size / sizeof(int64_t);
	int64_t *values = (int64_t *)(void *)exchange.buffer;

	if (exchange.rank == 0) {
		for (size_t i = 0; i < count; i++)
			values[i] = 5;
		put(&epoch->exchange, 1);
		for (size_t i = 0; i < count; i++)
			values[i] = 7;
		accumulate(&epoch->exchange, 2);
		fetch_and_op(&epoch->exchange, 1);
		get(&epoch->exchange, 1);
		for (size_t i = 0; i < count; i++) {
			long long right = i == 0 ? 26 : 19;
			if (values[i] != right) {
				fprintf(stderr,
					"onesided: error: element %zu is %lld, not %lld: the figures would "
					"be "
					"invalid\n",
					i, (long long)values[i], right);
				MPI_Abort(MPI_COMM_WORLD, 3);
			}
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* As measure_seconds(), with a barrier at the end: rank 1 has nothing to do but wait. */
static void measure_operation(const struct measure_options *options, struct epoch *epoch, int number)
{
	const struct exchange *exchange = &epoch->exchange;
	exchange_function *run = operations[number].run;
	long iterations = measure_calibrate(run, exchange, options->seconds);

	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double seconds = measure_seconds(run, exchange, iterations);

		if (exchange->rank == 0) {
			printf("{\"operation\": \"%s\", \"size\": %d, \"repetition\": %d, "
			       "\"iterations\": %ld, \"microseconds\": %.6f}\n",
			       operations[number].name, exchange->size, repetition, iterations,
			       seconds * 1e6 / (double)iterations);
			fflush(stdout);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void measure(const struct measure_options *options, int allocate, long together, int rank, size_t size)
{
	struct epoch epoch = {
		.exchange = {.rank = rank, .buffer = measure_buffer(size), .size = (int)size},
		.together = together,
	};
	char *own = NULL;

	if (allocate) {
		void *memory;

		MPI_Win_allocate((MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &epoch.window);
		memset(memory, 0, size);
	} else {
		own = measure_buffer(size);
		memset(own, 0, size);
		MPI_Win_create(own, (MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &epoch.window);
	}
	MPI_Win_lock_all(0, epoch.window);
	MPI_Barrier(MPI_COMM_WORLD);
	verify(&epoch);
	for (int i = 0; i < (int)(sizeof(operations) / sizeof(operations[0])); i++)
		if (operations[i].only == 0 || operations[i].only == (int)size)
			measure_operation(options, &epoch, i);
	MPI_Win_unlock_all(epoch.window);
	MPI_Win_free(&epoch.window);
	free(own);
	free(epoch.exchange.buffer);
}

int main(int argc, char **argv)
{
	struct measure_options options;
	int rank, ranks, allocate = 0;
	long together = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	measure_need_two("onesided", ranks);
	if (argc > 2 && strcmp(argv[1], "--window") == 0) {
		allocate = strcmp(argv[2], "allocate") == 0;
		if (!allocate && strcmp(argv[2], "create") != 0)
			measure_usage("onesided", "--window is create or allocate");
		argv[2] = argv[0];
		argc -= 2;
		argv += 2;
	}
	if (argc > 2 && strcmp(argv[1], "--together") == 0) {
		together = strtol(argv[2], NULL, 10);
		if (together < 1)
			measure_usage("onesided", "--together is a number from 1 on");
		argv[2] = argv[0];
		argc -= 2;
		argv += 2;
	}
	options = measure_options(argc, argv);
	measure_print_run("onesided", rank, ranks);
	for (int i = 0; i < options.size_count; i++) {
		if (options.sizes[i] == 0 || options.sizes[i] % sizeof(int64_t) != 0)
			measure_usage("onesided", "sizes are multiples of 8 bytes");
		measure(&options, allocate, together, rank, options.sizes[i]);
	}
	MPI_Finalize();
	return 0;
}
