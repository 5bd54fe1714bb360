/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory - the limits of this machine, beside which every figure has to be read.
 *
 * One cache line handed from one core to another and back, halved, in nanoseconds; and
 * memcpy between two buffers of one core, in MB/s (10^6 bytes), for several sizes. It
 * uses no MPI. It prints one JSON object for every repetition.
 *
 *     memory CPU CPU [REPETITIONS]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE 64
#define ROUNDS 200000
#define COPY_BYTES (256.0 * 1024 * 1024)
#define PAGE 4096U

static const size_t copy_sizes[] = {4096, 65536, 1048576, 4194304};

/* Two lines, one written by each side, so that a round trip moves each of them once. */
static struct {
	_Alignas(LINE) atomic_int word;
	char rest[LINE - sizeof(atomic_int)];
} ping, pong;

static double now_ns(void)
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

static void *answer(void *unused)
{
	(void)unused;
	for (int round = 1; round <= ROUNDS; round++) {
		while (atomic_load_explicit(&ping.word, memory_order_acquire) != round)
			;
		atomic_store_explicit(&pong.word, round, memory_order_release);
	}
	return NULL;
}

static void measure_line(int other_cpu, int repetition)
{
	pthread_attr_t attributes;
	pthread_t thread;
	cpu_set_t set;
	double start;

	/*
	 * The thread begins on its own CPU: on ours it would never run beside us, who wait for
	 * it without a pause, where the scheduler's policy is a real-time one.
	 */
	CPU_ZERO(&set);
	CPU_SET((size_t)other_cpu, &set);
	pthread_attr_init(&attributes);
	atomic_store(&ping.word, 0);
	atomic_store(&pong.word, 0);
	if (pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) != 0 ||
	    pthread_create(&thread, &attributes, answer, NULL) != 0) {
		fprintf(stderr, "memory: error: cannot start a thread: look at ulimit -u\n");
		exit(1);
	}
	/* The first round trip waits until the thread runs; it is not timed. */
	atomic_store_explicit(&ping.word, 1, memory_order_release);
	while (atomic_load_explicit(&pong.word, memory_order_acquire) != 1)
		;
	start = now_ns();
	for (int round = 2; round <= ROUNDS; round++) {
		atomic_store_explicit(&ping.word, round, memory_order_release);
		while (atomic_load_explicit(&pong.word, memory_order_acquire) != round)
			;
	}
	printf("{\"limit\": \"cache-line\", \"repetition\": %d, \"nanoseconds\": %.3f}\n", repetition,
	       (now_ns() - start) / (ROUNDS - 1) / 2);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
}

static void measure_copy(size_t size, int repetition)
{
	char *from = aligned_alloc(PAGE, size), *to = aligned_alloc(PAGE, size);
	long copies = (long)(COPY_BYTES / (double)size);
	double start;

	if (from == NULL || to == NULL) {
		fprintf(stderr, "memory: error: no memory for two buffers of %zu bytes: free some\n", size);
		exit(1);
	}
	memset(from, 'v', size);
	memset(to, 'w', size);
	start = now_ns();
	for (long i = 0; i < copies; i++) {
		memcpy(to, from, size);
		/* The compiler must believe that somebody reads every copy. */
		__asm__ volatile("" : : "r"(to) : "memory");
	}
	printf("{\"limit\": \"memcpy\", \"size\": %zu, \"repetition\": %d, "
	       "\"megabytes_per_second\": %.3f}\n",
	       size, repetition, (double)size * (double)copies / (now_ns() - start) * 1e3);
	free(from);
	free(to);
}

/* The number that `text` is, or -1 if it is none. */
static int number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	return *text == '\0' || *end != '\0' || value < 0 || value > 1000000 ? -1 : (int)value;
}

int main(int argc, char **argv)
{
	int repetitions = argc == 4 ? number(argv[3]) : 5;

	if (argc < 3 || argc > 4 || repetitions < 1 || strcmp(argv[1], argv[2]) == 0) {
		fprintf(stderr,
			"memory: error: two different CPUs are needed: use memory CPU CPU [REPETITIONS]\n");
		return 2;
	}
	pin(number(argv[1]));
	for (int repetition = 0; repetition < repetitions; repetition++) {
		measure_line(number(argv[2]), repetition);
		for (size_t i = 0; i < sizeof(copy_sizes) / sizeof(copy_sizes[0]); i++)
			measure_copy(copy_sizes[i], repetition);
	}
	return 0;
}
