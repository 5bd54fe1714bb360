/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * measure.h - shared parts of the measuring programs: the clock, the list of message sizes,
 * buffers, and the JSON lines.
 *
 * Rank 0 of each program prints one JSON object on each line: first one about the run, then one for
 * every repetition of every size, so that nothing is averaged here.
 */
#ifndef PROGRAMS_MEASURE_H
#define PROGRAMS_MEASURE_H

#include "refuse.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX 64
#define MEASURE_PAGE 4096U
#define ITERATIONS_MIN 5

struct measure_options {
	size_t sizes[SIZES_MAX]; /* bytes */
	int size_count;
	int repetitions; /* of each size */
	double seconds;  /* approximate time of one repetition */
	int window;      /* messages in flight; used by bandwidth only */
};

#ifndef MEASURE_ARGUMENTS /* unless the program defines its own */
#define MEASURE_ARGUMENTS "[--sizes BYTES,...] [--repetitions N] [--seconds S] [--window N]"
#endif

/* Ends the job with one line that says what is wrong with the arguments. */
__attribute__((noreturn)) static inline void measure_usage(const char *program, const char *problem)
{
	refuse("%s: error: %s: use %s " MEASURE_ARGUMENTS "\n", program, problem, program);
}

static inline long measure_number(const char *program, const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end != '\0' || value < 0)
		measure_usage(program, "not a number");
	return value;
}

static inline void measure_sizes(const char *program, const char *list, struct measure_options *options)
{
	const char *at = list;

	options->size_count = 0;
	while (*at != '\0') {
		char *end;
		long size = strtol(at, &end, 10);

		if (end == at || size < 0 || (*end != ',' && *end != '\0') ||
		    options->size_count == SIZES_MAX)
			measure_usage(program, "not a list of sizes");
		options->sizes[options->size_count++] = (size_t)size;
		at = *end == ',' ? end + 1 : end;
	}
	if (options->size_count == 0)
		measure_usage(program, "no sizes");
}

static inline struct measure_options measure_options(int argc, char **argv)
{
	struct measure_options options = {.repetitions = 5, .seconds = 0.05, .window = 64};
	const char *program = argv[0];

	measure_sizes(program,
		      "1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,"
		      "131072,262144,524288,1048576,2097152,4194304",
		      &options);
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			measure_usage(program, "an option without its value");
		if (strcmp(argv[i], "--sizes") == 0)
			measure_sizes(program, argv[i + 1], &options);
		else if (strcmp(argv[i], "--repetitions") == 0)
			options.repetitions = (int)measure_number(program, argv[i + 1]);
		else if (strcmp(argv[i], "--seconds") == 0)
			options.seconds = strtod(argv[i + 1], NULL);
		else if (strcmp(argv[i], "--window") == 0)
			options.window = (int)measure_number(program, argv[i + 1]);
		else
			measure_usage(program, "an option that does not exist");
	}
	if (options.window < 1 || options.repetitions < 1)
		measure_usage(program, "--window and --repetitions start at 1");
	if (!(options.seconds > 0))
		measure_usage(program, "--seconds is not a time");
	return options;
}

/* The timed operation, on all ranks: `iterations` times the same exchange. */
struct exchange {
	int rank;
	int peer; /* the other rank of a pair; the lower of the two begins */
	char *buffer;
	int size;   /* bytes */
	int window; /* messages in flight; used by bandwidth only */
	MPI_Request *requests;
};
typedef void exchange_function(const struct exchange *exchange, long iterations);

/* Seconds that `iterations` iterations take on this rank. */
static inline double measure_seconds(exchange_function *run, const struct exchange *exchange, long iterations)
{
	double start;

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	run(exchange, iterations);
	return MPI_Wtime() - start;
}

/*
 * The number of iterations that take about `seconds`, the same on both ranks. The search is also
 * the warm-up: the number is doubled until it takes a part of that time, then run once in full,
 * because a single interruption can spoil a short run.
 */
static inline long measure_calibrate(exchange_function *run, const struct exchange *exchange, double seconds)
{
	long iterations = 1;
	double taken = 0;

	for (int last = 0; !last;) {
		last = taken > seconds / 4;
		if (last)
			iterations = (long)((double)iterations * seconds / taken) + 1;
		else if (taken > 0)
			iterations *= 2;
		taken = measure_seconds(run, exchange, iterations);
		MPI_Bcast(&taken, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	}
	iterations = (long)((double)iterations * seconds / taken);
	return iterations < ITERATIONS_MIN ? ITERATIONS_MIN : iterations;
}

/* A page-aligned buffer with all pages touched, so that no page fault is timed. */
static inline void *measure_buffer(size_t size)
{
	size_t bytes = (size / MEASURE_PAGE + 1) * MEASURE_PAGE;
	void *buffer = aligned_alloc(MEASURE_PAGE, bytes);

	if (buffer == NULL) {
		fprintf(stderr, "error: no memory for a message of %zu bytes: use smaller --sizes\n", size);
		MPI_Abort(MPI_COMM_WORLD, 1);
		exit(1); /* for the compiler: MPI_Abort is not declared noreturn */
	}
	memset(buffer, 'v', bytes);
	return buffer;
}

/* Print `text` up to the end of its first line as a JSON string. */
static inline void measure_print_string(const char *text)
{
	putchar('"');
	for (; *text != '\0' && *text != '\n'; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		if ((unsigned char)*text >= ' ')
			putchar(*text);
	}
	putchar('"');
}

/*
 * The line about the run: the program, the MPI library, the number of ranks, and the host of each
 * rank, which shows whether they were on one node or on several.
 */
static inline void measure_print_run(const char *program, int rank, int ranks)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	char host[MPI_MAX_PROCESSOR_NAME] = "";
	char *hosts = measure_buffer((size_t)ranks * MPI_MAX_PROCESSOR_NAME);
	int length;

	MPI_Get_library_version(version, &length);
	MPI_Get_processor_name(host, &length);
	MPI_Gather(host, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, hosts, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 0,
		   MPI_COMM_WORLD);
	if (rank == 0) {
		printf("{\"program\": \"%s\", \"ranks\": %d, \"mpi\": ", program, ranks);
		measure_print_string(version);
		printf(", \"hosts\": [");
		for (int i = 0; i < ranks; i++) {
			printf("%s", i == 0 ? "" : ", ");
			measure_print_string(hosts + (size_t)i * MPI_MAX_PROCESSOR_NAME);
		}
		printf("]}\n");
		fflush(stdout);
	}
	free(hosts);
}

/* Ends the job unless it has two ranks, as the program requires. */
static inline void measure_need_two(const char *program, int ranks)
{
	if (ranks != 2)
		refuse("%s: error: started with %d ranks: start it with 2\n", program, ranks);
}

#endif
