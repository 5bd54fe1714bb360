/* SPDX-License-Identifier: BSD-3-Clause */
/* bypass.c - trying both ways, and keeping to the faster one. */
#include "proto/bypass.h"

/* Pieces that meet in the chunks what the other way left there, then those that are measured. */
#define PIECES_BEFORE 4U
#define PIECES_MEASURED 8U
/*
 * Blocks until the other way is tried again: few at first and after a change, then twice as
 * many each time that it loses. 512 blocks of 64 KiB pieces are 384 MiB, some 20 to 60 ms: a
 * try that costs three times as much is then less than half a per cent.
 */
#define PATIENCE_LEAST 4U
#define PATIENCE_MOST 512U

/* The other way must win clearly: a change costs something itself. */
static bool wins(uint64_t cost, uint64_t against)
{
	return cost < against - against / 8;
}

static void try_the_other(struct bypass *bypass)
{
	bypass->past = !bypass->past;
	bypass->trying = true;
}

static void end_try(struct bypass *bypass)
{
	bypass->trying = false;
	bypass->blocks = 0;
	if (wins(bypass->cost[bypass->past], bypass->cost[!bypass->past])) {
		bypass->patience = PATIENCE_LEAST;
		return;
	}
	bypass->past = !bypass->past;
	if (bypass->patience < PATIENCE_MOST)
		bypass->patience *= 2;
}

static void end_block(struct bypass *bypass)
{
	bypass->cost[bypass->past] = (bypass->ticks << 20) / bypass->bytes;
	bypass->pieces = 0;
	bypass->ticks = 0;
	bypass->bytes = 0;
	if (bypass->patience == 0)
		bypass->patience = PATIENCE_LEAST;
	if (bypass->trying)
		end_try(bypass);
	else if (++bypass->blocks >= bypass->patience)
		try_the_other(bypass);
}

void bypass_count(struct bypass *bypass, uint64_t ticks, uint32_t bytes)
{
	/* A clock may differ between CPUs, and we may have been moved; or waited for ours. */
	if (ticks > UINT32_MAX)
		return;
	if (++bypass->pieces > PIECES_BEFORE) {
		bypass->ticks += ticks;
		bypass->bytes += bytes;
	}
	if (bypass->pieces == PIECES_BEFORE + PIECES_MEASURED)
		end_block(bypass);
}
