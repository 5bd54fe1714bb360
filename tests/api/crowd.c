/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd.c - ranks that share a core, and read in a loop: who waits gives it up soon. */
#include "harness.h"

#include <sched.h>
#include <sys/resource.h>

#define ROUNDS 2000
/*
 * Processor time of a round, in which a rank waits once. One that looks for as long as it does where
 * it has a core of its own takes 100 us and more.
 */
#define ROUND_CPU_SECONDS 50e-6

static char buffer[64];

static double used(void)
{
	struct rusage usage;

	SAME(getrusage(RUSAGE_SELF, &usage), 0);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* All ranks on the first core that they may use. */
static void move_together(void)
{
	cpu_set_t all;
	cpu_set_t one;
	size_t core = 0;

	SAME(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(core, &all))
		core++;
	CPU_ZERO(&one);
	CPU_SET(core, &one);
	SAME(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void one_core(int rank)
{
	struct side side;

	move_together();
	side_open(&side, rank, NULL);
	barrier(&side);
	double before = used();
	for (int round = 0; round < ROUNDS; round++) {
		SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[1 - rank], 1, 0, NULL),
		     0);
		if (rank == 0)
			POST(&side, fi_tinject(side.endpoint, &round, sizeof(round), side.peer[1], 1));
		(void)next_completion(side.received);
		CHECK(memcmp(buffer, &round, sizeof(round)) == 0);
		if (rank == 1)
			POST(&side, fi_tinject(side.endpoint, &round, sizeof(round), side.peer[0], 1));
	}
	CHECK(used() - before < ROUNDS * ROUND_CPU_SECONDS);
	barrier(&side);
	side_close(&side);
}

const struct scenario crowd_scenarios[] = {
	{"one_core", 2, one_core},
	{0},
};
