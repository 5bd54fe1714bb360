/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd.c - ranks that share a core and read in a loop: a waiting rank soon gives the core away. */
#include "harness.h"

#include <sched.h>

#define ROUNDS 2000
/*
 * The mean number of reads in a round that find nothing. A rank that polls as long as on a core of its own
 * reads 2000 times before it gives the core away for the first time.
 */
#define READS_PER_ROUND 200

static char buffer[64];

/* Move all ranks to the first core that they may use. */
static void pin_to_one_core(void)
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

/* Returns the number of reads that found nothing before one found a message. */
static uint64_t wait_for_message(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry = {0};
	uint64_t reads = 0;
	ssize_t result = 0;

	while ((result = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		reads++;
	SAME(result, 1);
	return reads;
}

static void one_core(int rank)
{
	struct side side;
	uint64_t reads = 0;

	pin_to_one_core();
	side_open(&side, rank, NULL);
	barrier(&side);
	for (int round = 0; round < ROUNDS; round++) {
		SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[1 - rank], 1, 0, NULL),
		     0);
		if (rank == 0)
			POST(&side, fi_tinject(side.endpoint, &round, sizeof(round), side.peer[1], 1));
		reads += wait_for_message(side.received);
		CHECK(memcmp(buffer, &round, sizeof(round)) == 0);
		if (rank == 1)
			POST(&side, fi_tinject(side.endpoint, &round, sizeof(round), side.peer[0], 1));
	}
	CHECK(reads < ROUNDS * READS_PER_ROUND);
	barrier(&side);
	side_close(&side);
}

const struct scenario crowd_scenarios[] = {
	{"one_core", 2, one_core},
	{0},
};
