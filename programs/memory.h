/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - shared declarations of the program memory. */
#ifndef PROGRAMS_MEMORY_H
#define PROGRAMS_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#define LINE 64

/* A word on its own cache line. */
struct line {
	_Alignas(LINE) atomic_long word;
	char rest[LINE - sizeof(atomic_long)];
};

/* The monotonic clock, in nanoseconds. */
double now_ns(void);

/* A page-aligned buffer with all bytes written. Ends the program if no memory is left. */
char *new_buffer(size_t size);

/*
 * Start a thread on one CPU. Ends the program if that is not possible. The thread starts on that
 * CPU: if it started on ours and the scheduling policy is real-time, it would never run, because we
 * wait for it without a pause. The caller must join it.
 */
void start_thread(unsigned long *thread, int cpu, void *(*run)(void *), void *argument);

/*
 * Print the bandwidth of copying messages of `size` bytes from one thread's buffer through shared
 * chunks to the buffer of a thread on `other_cpu`, once for each chunk size.
 */
void measure_pipeline(int other_cpu, size_t size, int repetition);

#endif
