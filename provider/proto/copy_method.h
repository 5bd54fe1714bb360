/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_method.h - by which method the pieces of large messages go to a peer: how they are copied into
 * chunks and out of them.
 *
 * Where both CPUs share a cache, a piece that was just written there is read at once. Where
 * they do not, each of its lines crosses between the caches twice, once to be read and once to
 * be owned again, and stores that go past the cache to memory are three times as fast. And
 * the processor's string copy, which memcpy() uses for long pieces, is best where two
 * threads share a core, and half as fast as a loop over lines where they do not.
 * Nothing tells us which it is: the hypervisor moves our CPU, the scheduler the peer. So the
 * copies themselves are timed, by each method, again and again, ours here and the peer's there; the
 * pipeline is as fast as the slower of the two. docs/decisions/0006
 */
#ifndef VICINAL_PROTO_COPY_METHOD_H
#define VICINAL_PROTO_COPY_METHOD_H

#include <stdint.h>

#include "proto/wire.h"

enum copy_method {
	COPY_LINEWISE,   /* memcpy() into the chunk, a loop over lines out of it. The first choice */
	COPY_STRING,     /* memcpy() both times */
	COPY_PAST_CACHE, /* past the cache into the chunk, memcpy() out of it */
	COPY_METHODS,
};

/* Shorter copies are over before the processor's store buffer shows what they cost. */
#define COPY_METHODS_MEASURED_BYTES 16384U
/* Shorter ones are not worth it. */
#define COPY_METHODS_BYTES 4096U

/* A peer's, private. Zeroed is where it begins. Costs are ticks for 64 KiB, 0 if not known. */
struct copy_methods {
	uint32_t copying[COPY_METHODS];      /* our pieces into chunks */
	uint32_t taking_there[COPY_METHODS]; /* the same pieces out of them, as the peer says: it may lie */
	uint32_t taking[COPY_METHODS];       /* the peer's pieces out of its chunks, for it to know */
	uint64_t ticks;                      /* in this block */
	uint64_t bytes;                      /* in this block */
	uint32_t pieces;                     /* in this block, those before the measured ones included */
	uint32_t blocks;                     /* since another method was tried */
	uint32_t patience;                   /* blocks until one is */
	enum copy_method method;             /* by which pieces go now */
	enum copy_method best;               /* the same, unless another is being tried */
	enum copy_method tried;              /* last */
};

/* We copied a piece of COPY_METHODS_MEASURED_BYTES or more in so many ticks. */
void copy_methods_copied(struct copy_methods *methods, uint64_t ticks, uint32_t bytes);

/* We took one that the peer had sent by this method. */
void copy_methods_taken(struct copy_methods *methods, enum copy_method method, uint64_t ticks,
			uint32_t bytes);

/* What the peer says that ours cost it. */
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

/* A clock that is cheap to read; only ratios of its differences mean something. 0: there is none. */
static inline uint64_t copy_methods_clock(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

#endif
