/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle.c - what a rank does that finds nothing, again and again.
 *
 * It must not burn the machine: with more ranks than cores, the one that it waits for
 * may need its core. It must not sleep either while an answer may be microseconds away.
 * So: look again at once, then offer the core at each look, then sleep briefly. But a rank
 * that does other work between two looks is not waiting, and must not be kept from it.
 */
#include "api/provider.h"

#include <sched.h>
#include <time.h>

/* A look takes 20 to 100 ns with an MPI around it: some 100 us of plain looking. */
#define READS_BEFORE_YIELD 2000U
/* A yield takes about half a microsecond when nobody else wants the core: some 10 ms. */
#define READS_BEFORE_SLEEP 20000U
#define SLEEP_NANOSECONDS 20000L
/* An MPI that waits is back sooner. */
#define WORK_NANOSECONDS 3000U

static _Thread_local uint64_t last_look;

bool idle_pause(struct domain *domain, uint32_t empty)
{
	(void)domain;
	if (empty < READS_BEFORE_YIELD) {
		cpu_pause();
		return false;
	}
	if (empty < READS_BEFORE_SLEEP) {
		(void)sched_yield();
		return false;
	}
	const struct timespec pause = {.tv_nsec = SLEEP_NANOSECONDS};
	bool waits = monotonic_now() - last_look < WORK_NANOSECONDS;
	if (waits)
		(void)nanosleep(&pause, NULL);
	last_look = monotonic_now();
	return waits;
}
