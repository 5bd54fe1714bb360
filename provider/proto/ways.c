/* SPDX-License-Identifier: BSD-3-Clause */
/* ways.c - trying all ways, and keeping to the fastest one. */
#include "proto/ways.h"

/* Pieces that meet in the chunks what another way left there, then those that are measured. */
#define PIECES_BEFORE 4U
#define PIECES_MEASURED 8U
/*
 * Blocks until another way is tried: few at first and after a change, then twice as many each
 * time that one loses. 512 blocks of 64 KiB pieces are 384 MiB, some 20 to 60 ms: a try that
 * costs three times as much is then less than half a per cent.
 */
#define PATIENCE_LEAST 2U
#define PATIENCE_MOST 512U

/* Longer, and we were taken off the CPU, or the clock differs between two CPUs. */
#define TICKS_MOST (UINT64_C(1) << 22)

static uint32_t cost_of(uint64_t ticks, uint64_t bytes)
{
	uint64_t cost = (ticks << 16) / bytes;

	return cost > UINT32_MAX ? UINT32_MAX : (uint32_t)cost;
}

/* Both sides copy at the same time: the slower one is what counts. */
static uint32_t cost(const struct ways *ways, enum way way)
{
	uint32_t here = ways->copying[way];
	uint32_t there = ways->taking_there[way];

	return here > there ? here : there;
}

/* It must win clearly: a change costs something itself. One not measured yet wins nothing. */
static bool wins(const struct ways *ways, enum way way, enum way against)
{
	uint32_t least = cost(ways, against);

	return ways->copying[way] != 0 && cost(ways, way) < least - least / 8;
}

/* The best by all that is known now, which may be what a peer said of a try after its end. */
static enum way find_best(const struct ways *ways)
{
	enum way best = ways->best;

	for (enum way way = 0; way < WAYS; way++)
		if (way != best && wins(ways, way, best))
			best = way;
	return best;
}

static void try_another(struct ways *ways)
{
	ways->tried = (ways->tried + 1) % WAYS;
	if (ways->tried == ways->best)
		ways->tried = (ways->tried + 1) % WAYS;
	ways->way = ways->tried;
	ways->blocks = 0;
}

static void end_block(struct ways *ways)
{
	enum way best = ways->best;
	bool tried = ways->way != best;

	ways->copying[ways->way] = cost_of(ways->ticks, ways->bytes);
	ways->pieces = 0;
	ways->ticks = 0;
	ways->bytes = 0;
	ways->best = find_best(ways);
	ways->way = ways->best;
	if (ways->best != best || ways->patience == 0)
		ways->patience = PATIENCE_LEAST;
	else if (tried && ways->patience < PATIENCE_MOST)
		ways->patience *= 2;
	if (!tried && ++ways->blocks >= ways->patience)
		try_another(ways);
}

void ways_copied(struct ways *ways, uint64_t ticks, uint32_t bytes)
{
	if (ticks > TICKS_MOST)
		return;
	if (++ways->pieces > PIECES_BEFORE) {
		ways->ticks += ticks;
		ways->bytes += bytes;
	}
	if (ways->pieces == PIECES_BEFORE + PIECES_MEASURED)
		end_block(ways);
}

void ways_taken(struct ways *ways, enum way way, uint64_t ticks, uint32_t bytes)
{
	uint32_t *taking = &ways->taking[way];

	if (ticks > TICKS_MOST)
		return;
	/* A mean over the last few pieces. */
	*taking = *taking == 0 ? cost_of(ticks, bytes) : *taking - *taking / 4 + cost_of(ticks, bytes) / 4;
}

void ways_told(struct ways *ways, const struct wire_taking *taking)
{
	for (enum way way = 0; way < WAYS; way++)
		ways->taking_there[way] = taking->cost[way] * WIRE_TAKING_TICKS;
}

struct wire_taking ways_tell(const struct ways *ways)
{
	struct wire_taking told = {0};

	for (enum way way = 0; way < WAYS; way++) {
		uint32_t units = ways->taking[way] / WIRE_TAKING_TICKS;
		told.cost[way] = units > UINT16_MAX ? UINT16_MAX : (uint16_t)units;
	}
	return told;
}
