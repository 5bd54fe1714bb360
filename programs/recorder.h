/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recorder.h - records the time of every iteration with little disturbance.
 *
 * Between two iterations there is only one reading of a clock, and one store of a difference into
 * memory that was touched before. Nothing is printed, allocated or converted before the end of the
 * measurements. The clock is the processor's time stamp counter if it is invariant (its rate does
 * not depend on the core's state), otherwise the system's clock. The counter's rate is determined
 * at the end, from two pairs of readings with the whole run between them: the longer the run, the
 * more precise the rate.
 *
 * The counter is read without a fence: the end of an iteration may be read some instructions early,
 * by less than a memory access takes. If iterations are chained, the next one begins at that
 * reading, so nothing is lost or counted twice.
 *
 * The cost of recording is measured by the same loops, around an iteration that does nothing.
 */
#ifndef PROGRAMS_RECORDER_H
#define PROGRAMS_RECORDER_H

#include "measure.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

#define RECORDER_BILLION 1000000000
#define RECORDER_CALIBRATION_NS 50000000 /* minimum time between the two pairs of readings */
#define RECORDER_EMPTY_SAMPLES 65536
#define RECORDER_EMPTY_LOOPS 9 /* odd, because the median counts */

enum recorder_clock { RECORDER_SYSTEM, RECORDER_COUNTER };

static inline int64_t recorder_system_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (int64_t)now.tv_sec * RECORDER_BILLION + now.tv_nsec;
}

#ifdef __x86_64__
static inline int64_t recorder_counter_now(void)
{
	return (int64_t)__rdtsc();
}

/* Whether the processor reports that its counter runs at one rate in every state of the core. */
static inline bool recorder_counter_invariant(void)
{
	unsigned a, b, c, d = 0;

	return __get_cpuid(0x80000007U, &a, &b, &c, &d) && (d & 1U << 8U) != 0;
}
#else
static inline int64_t recorder_counter_now(void)
{
	return recorder_system_now();
}

static inline bool recorder_counter_invariant(void)
{
	return false;
}
#endif

/* In ticks: nanoseconds of the system's clock, or steps of the counter. */
static inline int64_t recorder_now(enum recorder_clock clock)
{
	return clock == RECORDER_COUNTER ? recorder_counter_now() : recorder_system_now();
}

/* Both clocks at the same moment. */
struct recorder_pair {
	int64_t system;
	int64_t counter;
};

static inline struct recorder_pair recorder_pair(void)
{
	struct recorder_pair best = {0, 0};
	int64_t narrowest = INT64_MAX;

	/*
	 * An interrupt between two readings spoils them, so the shortest of several attempts is
	 * used.
	 */
	for (int i = 0; i < 16; i++) {
		int64_t before = recorder_counter_now(), system = recorder_system_now(),
			after = recorder_counter_now();

		if (after - before < narrowest) {
			narrowest = after - before;
			best = (struct recorder_pair){system, before + narrowest / 2};
		}
	}
	return best;
}

struct recorder {
	enum recorder_clock clock;
	struct recorder_pair began;
	double nanoseconds_per_tick; /* from recorder_end() on */
	double calibrated_seconds;   /* time over which nanoseconds_per_tick was determined */
	double sample_ticks;         /* cost of recording in a sample */
	double iteration_ticks;      /* cost of recording in an iteration */
};

/* Run iterations, and record the time from the end of each to the end of the next. */
static inline __attribute__((always_inline)) void recorder_chain(enum recorder_clock clock,
								 exchange_function *run,
								 const struct exchange *exchange,
								 int64_t *samples, long count)
{
	int64_t last = recorder_now(clock);

	for (long i = 0; i < count; i++) {
		int64_t now;

		run(exchange, 1);
		now = recorder_now(clock);
		samples[i] = now - last;
		last = now;
	}
}

/* Run iterations with another function before each, whose time is not recorded. */
static inline __attribute__((always_inline)) void
recorder_apart(enum recorder_clock clock, exchange_function *before, exchange_function *run,
	       const struct exchange *exchange, int64_t *samples, long count)
{
	for (long i = 0; i < count; i++) {
		int64_t start;

		before(exchange, 1);
		start = recorder_now(clock);
		run(exchange, 1);
		samples[i] = recorder_now(clock) - start;
	}
}

/* Record `count` iterations, chained if `before` is NULL. The clock is a constant in each loop. */
static inline void recorder_run(const struct recorder *recorder, exchange_function *before,
				exchange_function *run, const struct exchange *exchange, int64_t *samples,
				long count)
{
	bool counter = recorder->clock == RECORDER_COUNTER;

	if (before == NULL && counter)
		recorder_chain(RECORDER_COUNTER, run, exchange, samples, count);
	else if (before == NULL)
		recorder_chain(RECORDER_SYSTEM, run, exchange, samples, count);
	else if (counter)
		recorder_apart(RECORDER_COUNTER, before, run, exchange, samples, count);
	else
		recorder_apart(RECORDER_SYSTEM, before, run, exchange, samples, count);
}

static __attribute__((noinline)) void recorder_nothing(const struct exchange *exchange, long iterations)
{
	__asm__ volatile("" : : "r"(exchange), "r"(iterations));
}

static inline int recorder_compare(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return (a > b) - (a < b);
}

static inline int64_t recorder_middle(int64_t *values)
{
	qsort(values, RECORDER_EMPTY_LOOPS, sizeof(values[0]), recorder_compare);
	return values[RECORDER_EMPTY_LOOPS / 2];
}

/* Measure the cost of recording, with or without a function `before` each iteration. */
static inline struct recorder recorder_begin(enum recorder_clock clock, bool before)
{
	struct recorder recorder = {.clock = clock, .began = recorder_pair()};
	int64_t *samples = measure_buffer(RECORDER_EMPTY_SAMPLES * sizeof(int64_t));
	int64_t loops[RECORDER_EMPTY_LOOPS], sums[RECORDER_EMPTY_LOOPS];

	for (int i = 0; i < RECORDER_EMPTY_LOOPS; i++) {
		int64_t start = recorder_now(clock);

		recorder_run(&recorder, before ? recorder_nothing : NULL, recorder_nothing, NULL, samples,
			     RECORDER_EMPTY_SAMPLES);
		loops[i] = recorder_now(clock) - start;
		sums[i] = 0;
		for (int j = 0; j < RECORDER_EMPTY_SAMPLES; j++)
			sums[i] += samples[j];
	}
	free(samples);
	recorder.sample_ticks = (double)recorder_middle(sums) / RECORDER_EMPTY_SAMPLES;
	recorder.iteration_ticks = (double)recorder_middle(loops) / RECORDER_EMPTY_SAMPLES;
	return recorder;
}

/* Determine the length of a tick. Call after the last measurement. */
static inline void recorder_end(struct recorder *recorder)
{
	struct recorder_pair ended;
	double nanoseconds;

	do
		ended = recorder_pair();
	while (ended.system - recorder->began.system < RECORDER_CALIBRATION_NS);
	nanoseconds = (double)(ended.system - recorder->began.system);
	recorder->calibrated_seconds = nanoseconds / RECORDER_BILLION;
	recorder->nanoseconds_per_tick = 1;
	if (recorder->clock == RECORDER_COUNTER)
		recorder->nanoseconds_per_tick =
			nanoseconds / (double)(ended.counter - recorder->began.counter);
}

#endif
