/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - what the parts of the program memory have in common. */
#ifndef PROGRAMS_MEMORY_H
#define PROGRAMS_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#define LINE 64

/* A word on a cache line of its own. */
struct line {
	_Alignas(LINE) atomic_long word;
	char rest[LINE - sizeof(atomic_long)];
};

/* The monotonic clock, in nanoseconds. */
double now_ns(void);

/* A page-aligned buffer, every byte written; ends the program where there is no memory. */
char *new_buffer(size_t size);

/*
 * Starts a thread on one CPU; ends the program where that is not possible. It begins there:
 * on ours it would never run beside us, who wait for it without a pause, where the
 * scheduler's policy is a real-time one. The caller joins it.
 */
void start_thread(unsigned long *thread, int cpu, void *(*run)(void *), void *argument);

/*
 * Prints the bandwidth of copying messages of `size` bytes from one thread's buffer through
 * shared chunks to that of a thread on `other_cpu`, once for each size of chunk.
 */
void measure_pipeline(int other_cpu, size_t size, int repetition);

#endif
