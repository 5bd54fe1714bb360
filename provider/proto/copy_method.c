/* SPDX-License-Identifier: BSD-3-Clause */
/* copy_method.c - tries all copy methods, and keeps the fastest one. */
#include "proto/copy_method.h"

/* The first pieces of a block meet chunks as another method left them; only the later pieces are measured. */
#define PIECES_BEFORE 4U
#define PIECES_MEASURED 8U
/*
 * Blocks until another method is tried: few at first and after a change of the best method, then twice as
 * many each time that a tried method loses. 512 blocks of 64 KiB pieces are 384 MiB, some 20 to 60 ms: a try
 * that costs three times as much then takes less than half a per cent.
 */
#define PATIENCE_MIN 2U
#define PATIENCE_MAX 512U

/* A longer copy was interrupted by the scheduler, or the clocks of two CPUs differ. */
#define TICKS_MAX (UINT64_C(1) << 22)

static uint32_t cost_of(uint64_t ticks, uint64_t bytes)
{
	uint64_t cost = (ticks << 16) / bytes;

	return cost > UINT32_MAX ? UINT32_MAX : (uint32_t)cost;
}

/* Both sides copy at the same time, so the slower side counts. */
static uint32_t cost(const struct copy_methods *methods, enum copy_method method)
{
	uint32_t here = methods->copying[method];
	uint32_t there = methods->taking_there[method];

	return here > there ? here : there;
}

/* The method must win clearly, because a change has a cost. A method that was not measured yet never wins. */
static bool wins(const struct copy_methods *methods, enum copy_method method, enum copy_method against)
{
	uint32_t least = cost(methods, against);

	return methods->copying[method] != 0 && cost(methods, method) < least - least / 8;
}

/* The best method by all present costs. A peer may report its costs after a try has ended. */
static enum copy_method find_best(const struct copy_methods *methods)
{
	enum copy_method best = methods->best;

	for (enum copy_method method = 0; method < COPY_METHODS; method++)
		if (method != best && wins(methods, method, best))
			best = method;
	return best;
}

static void try_another(struct copy_methods *methods)
{
	methods->tried = (methods->tried + 1) % COPY_METHODS;
	if (methods->tried == methods->best)
		methods->tried = (methods->tried + 1) % COPY_METHODS;
	methods->method = methods->tried;
	methods->blocks = 0;
}

static void end_block(struct copy_methods *methods)
{
	enum copy_method best = methods->best;
	bool tried = methods->method != best;

	methods->copying[methods->method] = cost_of(methods->ticks, methods->bytes);
	methods->pieces = 0;
	methods->ticks = 0;
	methods->bytes = 0;
	methods->best = find_best(methods);
	methods->method = methods->best;
	if (methods->best != best || methods->patience == 0)
		methods->patience = PATIENCE_MIN;
	else if (tried && methods->patience < PATIENCE_MAX)
		methods->patience *= 2;
	if (!tried && ++methods->blocks >= methods->patience)
		try_another(methods);
}

void copy_methods_copied(struct copy_methods *methods, uint64_t ticks, uint32_t bytes)
{
	if (ticks > TICKS_MAX)
		return;
	if (++methods->pieces > PIECES_BEFORE) {
		methods->ticks += ticks;
		methods->bytes += bytes;
	}
	if (methods->pieces == PIECES_BEFORE + PIECES_MEASURED)
		end_block(methods);
}

void copy_methods_taken(struct copy_methods *methods, enum copy_method method, uint64_t ticks, uint32_t bytes)
{
	uint32_t *taking = &methods->taking[method];

	if (ticks > TICKS_MAX)
		return;
	/* A moving average over the last few pieces. */
	*taking = *taking == 0 ? cost_of(ticks, bytes) : *taking - *taking / 4 + cost_of(ticks, bytes) / 4;
}

void copy_methods_peer_costs(struct copy_methods *methods, const struct wire_taking *taking)
{
	for (enum copy_method method = 0; method < COPY_METHODS; method++)
		methods->taking_there[method] = taking->cost[method] * WIRE_TAKING_TICKS;
}

struct wire_taking copy_methods_own_costs(const struct copy_methods *methods)
{
	struct wire_taking told = {0};

	for (enum copy_method method = 0; method < COPY_METHODS; method++) {
		uint32_t units = methods->taking[method] / WIRE_TAKING_TICKS;
		told.cost[method] = units > UINT16_MAX ? UINT16_MAX : (uint16_t)units;
	}
	return told;
}
