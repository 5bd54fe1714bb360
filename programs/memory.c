/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory - the limits of this machine, as a reference for all other figures.
 *
 * line: one cache line passed from one core to another and back, halved, in nanoseconds. copy:
 * memcpy between two buffers of one core. pipeline: two cores that copy through shared chunks, see
 * memory_pipeline.c. Copies are in MB/s (10^6 bytes). The program uses no MPI. It prints one JSON
 * object for every repetition.
 *
 *     memory CPU CPU [--only line|copy|pipeline] [--sizes 4096,65536] [--repetitions 5]
 */
#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 20000 /* in a burst, which takes 2 to 6 ms */
#define BURSTS 3     /* of which the fastest counts, because the others may have been interrupted */
#define COPY_BYTES (256.0 * 1024 * 1024)
#define PAGE 4096U
#define SIZES_MAX 16

struct options {
	const char *only; /* one of the limits, or NULL for all */
	size_t sizes[SIZES_MAX];
	int size_count;
	int repetitions;
};

/* Two lines, each written by one side, so that a round trip moves each of them once. */
static struct line ping, pong;

double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0) {
		fprintf(stderr, "memory: error: cannot run on CPU %d: name two CPUs of this machine\n", cpu);
		exit(2);
	}
}

char *new_buffer(size_t size)
{
	size_t bytes = (size + PAGE - 1) / PAGE * PAGE;
	char *buffer = aligned_alloc(PAGE, bytes);

	if (buffer == NULL) {
		fprintf(stderr, "memory: error: no memory for a buffer of %zu bytes: free some\n", size);
		exit(1);
	}
	memset(buffer, 'v', bytes);
	return buffer;
}

void start_thread(unsigned long *thread, int cpu, void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	pthread_attr_init(&attributes);
	if (pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) != 0 ||
	    pthread_create(thread, &attributes, run, argument) != 0) {
		fprintf(stderr,
			"memory: error: cannot start a thread on CPU %d: name another CPU, and check ulimit "
			"-u\n",
			cpu);
		exit(1);
	}
	pthread_attr_destroy(&attributes);
}

static void *answer(void *unused)
{
	(void)unused;
	for (long round = 1; round <= ROUNDS; round++) {
		while (atomic_load_explicit(&ping.word, memory_order_acquire) != round)
			;
		atomic_store_explicit(&pong.word, round, memory_order_release);
	}
	return NULL;
}

/* Nanoseconds that one transfer of a line takes, averaged over a burst. */
static double line_burst(int other_cpu)
{
	unsigned long thread;
	double start;

	atomic_store(&ping.word, 0);
	atomic_store(&pong.word, 0);
	start_thread(&thread, other_cpu, answer, NULL);
	/* The first round trip waits until the thread runs, so it is not timed. */
	atomic_store_explicit(&ping.word, 1, memory_order_release);
	while (atomic_load_explicit(&pong.word, memory_order_acquire) != 1)
		;
	start = now_ns();
	for (long round = 2; round <= ROUNDS; round++) {
		atomic_store_explicit(&ping.word, round, memory_order_release);
		while (atomic_load_explicit(&pong.word, memory_order_acquire) != round)
			;
	}
	start = now_ns() - start;
	pthread_join(thread, NULL);
	return start / (ROUNDS - 1) / 2;
}

static void measure_line(int other_cpu, int repetition)
{
	double best = line_burst(other_cpu);

	for (int burst = 1; burst < BURSTS; burst++) {
		double taken = line_burst(other_cpu);

		best = taken < best ? taken : best;
	}
	printf("{\"limit\": \"cache-line\", \"repetition\": %d, \"nanoseconds\": %.3f}\n", repetition, best);
}

static void measure_copy(size_t size, int repetition)
{
	char *from = new_buffer(size), *to = new_buffer(size);
	long copies = (long)(COPY_BYTES / (double)size) + 1;
	double start = now_ns();

	for (long i = 0; i < copies; i++) {
		memcpy(to, from, size);
		/* The compiler must assume that every copy is read. */
		__asm__ volatile("" : : "r"(to) : "memory");
	}
	printf("{\"limit\": \"memcpy\", \"size\": %zu, \"repetition\": %d, "
	       "\"megabytes_per_second\": %.3f}\n",
	       size, repetition, (double)size * (double)copies / (now_ns() - start) * 1e3);
	free(from);
	free(to);
}

static void usage(const char *problem)
{
	fprintf(stderr,
		"memory: error: %s: use memory CPU CPU [--only line|copy|pipeline] "
		"[--sizes BYTES,...] [--repetitions N]\n",
		problem);
	exit(2);
}

/* The number at the beginning of `text`; `*end` is set after it. */
static long number(const char *text, char **end)
{
	long value = strtol(text, end, 10);

	if (*end == text || value < 0 || value > 1L << 30)
		usage("not a number");
	return value;
}

static long whole_number(const char *text)
{
	char *end;
	long value = number(text, &end);

	if (*end != '\0')
		usage("not a number");
	return value;
}

static void read_sizes(const char *list, struct options *options)
{
	char *at;

	options->size_count = 0;
	for (;; list = at + 1) {
		long size = number(list, &at);

		if (size < 1 || (*at != ',' && *at != '\0') || options->size_count == SIZES_MAX)
			usage("not a list of sizes");
		options->sizes[options->size_count++] = (size_t)size;
		if (*at == '\0')
			return;
	}
}

static struct options read_options(int argc, char **argv)
{
	struct options options = {.repetitions = 5};

	read_sizes("4096,65536,1048576,4194304", &options);
	if (argc < 3 || argc % 2 == 0 || whole_number(argv[1]) == whole_number(argv[2]))
		usage("two different CPUs are needed");
	for (int i = 3; i < argc; i += 2) {
		if (strcmp(argv[i], "--only") == 0)
			options.only = argv[i + 1];
		else if (strcmp(argv[i], "--sizes") == 0)
			read_sizes(argv[i + 1], &options);
		else if (strcmp(argv[i], "--repetitions") == 0)
			options.repetitions = (int)whole_number(argv[i + 1]);
		else
			usage("an option that does not exist");
	}
	if (options.only != NULL && strcmp(options.only, "line") != 0 && strcmp(options.only, "copy") != 0 &&
	    strcmp(options.only, "pipeline") != 0)
		usage("there is no such limit");
	return options;
}

static int wanted(const struct options *options, const char *limit)
{
	return options->only == NULL || strcmp(options->only, limit) == 0;
}

int main(int argc, char **argv)
{
	struct options options = read_options(argc, argv);
	int other_cpu = (int)whole_number(argv[2]);

	pin((int)whole_number(argv[1]));
	for (int repetition = 0; repetition < options.repetitions; repetition++) {
		if (wanted(&options, "line"))
			measure_line(other_cpu, repetition);
		for (int i = 0; i < options.size_count; i++) {
			if (wanted(&options, "copy"))
				measure_copy(options.sizes[i], repetition);
			if (wanted(&options, "pipeline"))
				measure_pipeline(other_cpu, options.sizes[i], repetition);
		}
	}
	return 0;
}
