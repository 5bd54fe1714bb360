/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record - the time of every single iteration of one operation, for each message size.
 *
 * The other programs print means, which say nothing about tails. This program keeps every
 * iteration's time in memory, as recorder.h describes, and prints them all after the last
 * measurement; record_print.c describes the format. For every size there is a warm-up of up to a
 * quarter of `seconds`, then `samples` iterations, or fewer if they would take longer than
 * `seconds`; their number is the same on all ranks. Nothing is printed between sizes, because the
 * launcher would still forward it during the next measurement.
 *
 * Pairs of ranks (the first half with the second half, all at the same time):
 *     latency, bandwidth, bidirectional           a window is one sample
 *     put, get, accumulate, put-bidirectional     --synchronization flush, lock, pscw or fence
 *
 * All ranks: barrier, bcast, allgather, allreduce, alltoall. Iteration `i` is the same call on all
 * ranks, so that the slowest rank of each call can be found.
 *
 *     mpiexec -n 2 record latency [--sizes 8,4096] [--samples 10000] [--seconds 1]
 *     mpiexec -n 8 record bandwidth --window 64          four pairs; also the rate of messages
 *     mpiexec -n 2 record put --synchronization pscw
 */
#include "record.h"

#define SAMPLES_MAX 100000000L /* 8 bytes each: still one MPI message */
#define WARM_UP_PART 8         /* part of a size's time for the last of the warm-up's doubling loops */

struct record_options {
	struct measure_options measure; /* sizes, seconds, window; window 0: the operation's default */
	long samples;
	enum synchronization synchronization;
	enum recorder_clock clock;
};

static const char *const synchronizations[] = {
	[FLUSH] = "flush", [LOCK] = "lock", [PSCW] = "pscw", [FENCE] = "fence"};

static const struct operation *find_operation(const char *name)
{
	const struct operation *const tables[] = {pair_operations, remote_operations, collective_operations};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct operation *operation = tables[i]; operation->name != NULL; operation++)
			if (strcmp(operation->name, name) == 0)
				return operation;
	measure_usage("record", "no operation has that name");
}

static enum synchronization find_synchronization(const char *name)
{
	for (int i = 0; i < (int)(sizeof(synchronizations) / sizeof(synchronizations[0])); i++)
		if (strcmp(synchronizations[i], name) == 0)
			return (enum synchronization)i;
	measure_usage("record", "--synchronization is flush, lock, pscw or fence");
}

static enum recorder_clock find_clock(const char *name)
{
	if (strcmp(name, "system") == 0)
		return RECORDER_SYSTEM;
	if (strcmp(name, "counter") == 0)
		return RECORDER_COUNTER;
	if (strcmp(name, "auto") != 0)
		measure_usage("record", "--clock is auto, counter or system");
	return recorder_counter_invariant() ? RECORDER_COUNTER : RECORDER_SYSTEM;
}

static void check_options(const struct operation *operation, const struct record_options *options)
{
	if (options->samples < 1 || options->samples > SAMPLES_MAX)
		measure_usage("record", "--samples is from 1 to 100000000");
	if (operation->window == 0 && options->measure.window != 0)
		measure_usage("record", "this operation has no --window");
	if (strcmp(operation->name, "put-bidirectional") == 0 && options->synchronization < PSCW)
		measure_usage("record", "puts in both directions need --synchronization pscw or fence");
	for (int i = 0; i < options->measure.size_count; i++) {
		if (options->measure.sizes[i] % operation->multiple != 0)
			measure_usage("record", "sizes are multiples of 8 bytes here");
		if (options->measure.sizes[i] > INT32_MAX)
			measure_usage("record", "a size is too large for MPI");
		if (operation->remote && options->measure.sizes[i] == 0)
			measure_usage("record", "sizes start at 1 here");
	}
}

/* Removes the options that measure.h does not know from the arguments. */
static struct record_options read_options(int argc, char **argv, const struct operation *operation)
{
	struct record_options options = {.samples = 10000, .clock = find_clock("auto")};
	bool seconds = false, window = false, synchronized = false;
	int kept = 1;

	for (int i = 2; i + 1 < argc; i += 2) {
		char *name = argv[i], *value = argv[i + 1];

		if (strcmp(name, "--samples") == 0) {
			options.samples = measure_number("record", value);
		} else if (strcmp(name, "--synchronization") == 0) {
			options.synchronization = find_synchronization(value);
			synchronized = true;
		} else if (strcmp(name, "--clock") == 0) {
			options.clock = find_clock(value);
		} else {
			seconds |= strcmp(name, "--seconds") == 0;
			window |= strcmp(name, "--window") == 0;
			argv[kept++] = name;
			argv[kept++] = value;
		}
	}
	if (argc % 2 != 0)
		measure_usage("record", "an option without its value");
	if (synchronized && !operation->remote)
		measure_usage("record", "--synchronization applies only to one-sided operations");
	options.measure = measure_options(kept, argv);
	if (!seconds)
		options.measure.seconds = 1;
	if (!window)
		options.measure.window = 0;
	if (!operation->sizes) {
		options.measure.size_count = 1;
		options.measure.sizes[0] = 0;
	}
	check_options(operation, &options);
	return options;
}

/* Seconds of `count` samples on rank 0, the same value on all ranks. */
static double run(const struct recorder *recorder, const struct subject *subject, int64_t *samples,
		  long count)
{
	double seconds;

	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime();
	recorder_run(recorder, subject->before, subject->run, subject->exchange, samples, count);
	seconds = MPI_Wtime() - seconds;
	MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	return seconds;
}

/* The number of samples that fit into the time. The search is also the warm-up. */
static long warm_up(const struct recorder *recorder, const struct subject *subject, int64_t *samples,
		    const struct record_options *options)
{
	double part = options->measure.seconds / WARM_UP_PART, taken;
	long count = 1;

	while ((taken = run(recorder, subject, samples, count)) < part && count < options->samples)
		count = 2 * count < options->samples ? 2 * count : options->samples;
	if ((double)count * options->measure.seconds / taken >= (double)options->samples)
		return options->samples;
	count = (long)((double)count * options->measure.seconds / taken);
	if (count < ITERATIONS_MIN)
		count = ITERATIONS_MIN;
	return count < options->samples ? count : options->samples;
}

static struct series record(const struct recorder *recorder, const struct operation *operation,
			    const struct record_options *options, size_t size)
{
	int window = options->measure.window == 0 ? operation->window : options->measure.window;
	struct series series = {.size = size};
	struct subject subject;

	if (window != 0)
		window = window_for(window, size);
	operation->open(&subject, operation->kind, size, window, options->synchronization);
	series.samples = measure_buffer((size_t)options->samples * sizeof(*series.samples));
	series.count = warm_up(recorder, &subject, series.samples, options);
	run(recorder, &subject, series.samples, series.count);
	series.messages = subject.messages;
	series.kept = subject.kept;
	operation->close(&subject);
	return series;
}

static void print_head(const struct operation *operation, const struct record_options *options, int rank,
		       int ranks)
{
	measure_print_run("record", rank, ranks);
	if (rank != 0)
		return;
	printf("{\"format\": 1, \"operation\": \"%s\", \"sample\": \"%s\", \"apart\": %s, "
	       "\"synchronization\": ",
	       operation->name, operation->sample, operation->apart ? "true" : "false");
	if (operation->remote)
		measure_print_string(synchronizations[options->synchronization]);
	else
		printf("null");
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct operation *operation;
	struct record_options options;
	struct recorder recorder;
	struct series series[SIZES_MAX];
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	operation = find_operation(argc > 1 ? argv[1] : "");
	if (operation->pairs && ranks % 2 != 0)
		refuse("record: error: %s started with %d ranks: start it with 2, 4, 6, ...\n",
		       operation->name, ranks);
	options = read_options(argc, argv, operation);
	print_head(operation, &options, rank, ranks);
	recorder = recorder_begin(options.clock, operation->apart);
	for (int i = 0; i < options.measure.size_count; i++)
		series[i] = record(&recorder, operation, &options, options.measure.sizes[i]);
	recorder_end(&recorder);
	record_print(&recorder, series, options.measure.size_count);
	for (int i = 0; i < options.measure.size_count; i++)
		free(series[i].samples);
	MPI_Finalize();
	return 0;
}
