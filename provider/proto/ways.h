/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ways.h - which way the pieces of large messages take to a peer: how they are copied into
 * chunks and out of them.
 *
 * Where both CPUs share a cache, a piece that was just written there is read at once. Where
 * they do not, each of its lines crosses between the caches twice, once to be read and once to
 * be owned again, and stores that go past the cache to memory are three times as fast. And
 * the processor's string copy, which memcpy() uses for long pieces, is best where two
 * threads share a core, and half as fast as a loop over lines where they do not.
 * Nothing tells us which it is: the hypervisor moves our CPU, the scheduler the peer. So the
 * copies themselves are timed, each way, again and again, ours here and the peer's there; the
 * pipeline is as fast as the slower of the two. docs/decisions/0006
 */
#ifndef VICINAL_PROTO_WAYS_H
#define VICINAL_PROTO_WAYS_H

#include <stdint.h>

#include "proto/wire.h"

enum way {
	WAY_LINEWISE, /* memcpy() into the chunk, a loop over lines out of it. The first choice */
	WAY_STRING,   /* memcpy() both times */
	WAY_PAST,     /* past the cache into the chunk, memcpy() out of it */
	WAYS,
};

/* Shorter copies are over before the processor's store buffer shows what they cost. */
#define WAYS_MEASURED_BYTES 16384U
/* Shorter ones are not worth it. */
#define WAYS_BYTES 4096U

/* A peer's, private. Zeroed is where it begins. Costs are ticks for 64 KiB, 0 if not known. */
struct ways {
	uint32_t copying[WAYS];      /* our pieces into chunks */
	uint32_t taking_there[WAYS]; /* the same pieces out of them, as the peer says: it may lie */
	uint32_t taking[WAYS];       /* the peer's pieces out of its chunks, for it to know */
	uint64_t ticks;              /* in this block */
	uint64_t bytes;              /* in this block */
	uint32_t pieces;             /* in this block, those before the measured ones included */
	uint32_t blocks;             /* since another way was tried */
	uint32_t patience;           /* blocks until one is */
	enum way way;                /* that pieces go now */
	enum way best;               /* the same, unless another is being tried */
	enum way tried;              /* last */
};

/* We copied a piece of WAYS_MEASURED_BYTES or more in so many ticks. */
void ways_copied(struct ways *ways, uint64_t ticks, uint32_t bytes);

/* We took one that the peer had sent this way. */
void ways_taken(struct ways *ways, enum way way, uint64_t ticks, uint32_t bytes);

/* What the peer says that ours cost it. */
void ways_told(struct ways *ways, const struct wire_taking *taking);
struct wire_taking ways_tell(const struct ways *ways);

static inline uint32_t ways_wire_flags(enum way way)
{
	return way == WAY_PAST ? WIRE_PAST_CACHE : way == WAY_LINEWISE ? WIRE_LINEWISE : 0;
}

static inline enum way ways_of_flags(uint32_t wire_flags)
{
	return wire_flags & WIRE_PAST_CACHE ? WAY_PAST
	       : wire_flags & WIRE_LINEWISE ? WAY_LINEWISE
					    : WAY_STRING;
}

/* A clock that is cheap to read; only ratios of its differences mean something. 0: there is none. */
static inline uint64_t ways_clock(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

#endif
