/* SPDX-License-Identifier: BSD-3-Clause */
/* measure.c - measures by copies whether the region is mapped as ordinary memory. */
#include <stdlib.h>
#include <time.h>

#include "region/member.h"

#define MEASURE_BYTES 16384U
#define MEASURE_PASSES 4 /* the first warms up: page faults, cold caches */
/*
 * On an overloaded machine, all passes of one measurement were once 22 times slower, and a job
 * ended because of that. So a slow result is measured again, for a tenth of a second.
 */
#define MEASUREMENTS_MAX 20
#define MEASURE_PAUSE_NANOSECONDS 5000000

static uint64_t time_copies(shared_bytes *there, unsigned char *here)
{
	uint64_t best = UINT64_MAX;

	for (int pass = 0; pass < MEASURE_PASSES; pass++) {
		uint64_t start = monotonic_now();
		shared_copy_out(there, here, MEASURE_BYTES);
		atomic_signal_fence(memory_order_seq_cst);
		shared_copy_in(here, there, MEASURE_BYTES);
		atomic_signal_fence(memory_order_seq_cst);
		uint64_t elapsed = monotonic_now() - start;
		if (pass > 0 && elapsed < best)
			best = elapsed;
	}
	return best == 0 ? 1 : best;
}

double member_measure(const struct member *self, double enough)
{
	const struct timespec pause = {.tv_nsec = MEASURE_PAUSE_NANOSECONDS};
	const struct region *region = self->region;
	shared_bytes *arena =
		section_view(region, self->slot, section_arena_end(region) - MEASURE_BYTES, MEASURE_BYTES);
	unsigned char *memory = calloc(2, MEASURE_BYTES);
	double lowest = 1.0;

	for (int i = 0; memory != NULL && arena != NULL && i < MEASUREMENTS_MAX; i++) {
		if (i > 0)
			(void)nanosleep(&pause, NULL);
		uint64_t private = time_copies((shared_bytes *)(memory + MEASURE_BYTES), memory);
		double slower = (double)time_copies(arena, memory) / (double)private;
		lowest = i == 0 || slower < lowest ? slower : lowest;
		if (lowest < enough)
			break;
	}
	free(memory);
	return lowest;
}
