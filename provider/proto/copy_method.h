/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_method.h - chooses how the pieces of large messages to a peer are copied into chunks and out of them.
 *
 * If both CPUs share a cache, a piece that was just written there is read at once. If they do not, each cache
 * line crosses between the caches twice, to be read and to be owned again. Stores that bypass the cache are
 * then three times as fast. The processor's string copy, which memcpy() uses for long pieces, is best if two
 * threads share a core. If they do not, it is half as fast as a loop over cache lines.
 *
 * Nothing tells the provider which case it is: the hypervisor moves this CPU, the scheduler the peer. So the
 * copies themselves are timed, with each method, again and again, on both sides. The pipeline is as fast as
 * the slower side. docs/decisions/0006
 */
#ifndef VICINAL_PROTO_COPY_METHOD_H
#define VICINAL_PROTO_COPY_METHOD_H

#include <stdint.h>

#include "proto/wire.h"

enum copy_method {
	COPY_LINEWISE,   /* memcpy() into the chunk, a loop over lines out of it; the first choice */
	COPY_STRING,     /* memcpy() in both directions */
	COPY_PAST_CACHE, /* stores that bypass the cache into the chunk, memcpy() out of it */
	COPY_METHODS,
};

/* Shorter copies end before the processor's store buffer shows their cost. */
#define COPY_METHODS_MEASURED_BYTES 16384U
/* For shorter pieces a choice of method is not worth its cost. */
#define COPY_METHODS_BYTES 4096U

/* One for each peer, private, initialised to zero. Costs are ticks for 64 KiB; 0 if unknown. */
struct copy_methods {
	uint32_t copying[COPY_METHODS];      /* this side's pieces into chunks */
	uint32_t taking_there[COPY_METHODS]; /* the same pieces out of chunks; the peer may lie */
	uint32_t taking[COPY_METHODS];       /* the peer's pieces out of its chunks, to be reported to it */
	uint64_t ticks;                      /* in this block */
	uint64_t bytes;                      /* in this block */
	uint32_t pieces;                     /* in this block, including those before the measured ones */
	uint32_t blocks;                     /* since the last try of another method */
	uint32_t patience;                   /* blocks until the next try */
	enum copy_method method;             /* of the present block */
	enum copy_method best;               /* the same, unless another method is being tried */
	enum copy_method tried;              /* last tried method */
};

/* This side copied a piece of at least COPY_METHODS_MEASURED_BYTES into a chunk in `ticks`. */
void copy_methods_copied(struct copy_methods *methods, uint64_t ticks, uint32_t bytes);

/* This side copied a piece out of a chunk, which the peer had written by `method`. */
void copy_methods_taken(struct copy_methods *methods, enum copy_method method, uint64_t ticks,
			uint32_t bytes);

/* Stores the costs that the peer reports for this side's pieces. */
void copy_methods_peer_costs(struct copy_methods *methods, const struct wire_taking *taking);
struct wire_taking copy_methods_own_costs(const struct copy_methods *methods);

static inline uint32_t copy_method_wire_flags(enum copy_method method)
{
	return method == COPY_PAST_CACHE ? WIRE_PAST_CACHE : method == COPY_LINEWISE ? WIRE_LINEWISE : 0;
}

static inline enum copy_method copy_method_of_flags(uint32_t wire_flags)
{
	return wire_flags & WIRE_PAST_CACHE ? COPY_PAST_CACHE
	       : wire_flags & WIRE_LINEWISE ? COPY_LINEWISE
					    : COPY_STRING;
}

/* A clock that is cheap to read. Only ratios of its differences are meaningful. 0 if there is none. */
static inline uint64_t copy_methods_clock(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

#endif
