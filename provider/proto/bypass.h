/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bypass.h - whether the pieces of large messages go to a peer through our cache or past it.
 *
 * Where both CPUs share a cache, a piece that was just written there is read at once. Where
 * they do not, each of its lines crosses between the caches twice, once to be read and once to
 * be owned again, and stores that go past the cache to memory are three times as fast.
 * Nothing tells us which it is: the hypervisor moves our CPU, the scheduler the peer. So our
 * own copies are timed, both ways, again and again: docs/performance.md.
 */
#ifndef VICINAL_PROTO_BYPASS_H
#define VICINAL_PROTO_BYPASS_H

#include <stdbool.h>
#include <stdint.h>

/* Shorter copies are over before the processor's store buffer shows what they cost. */
#define BYPASS_MEASURED_BYTES 16384U
/* Shorter ones are not worth it. */
#define BYPASS_BYTES 4096U

/* A peer's, private. Zeroed is where it begins: through the cache. */
struct bypass {
	uint64_t cost[2]; /* ticks for a MiB as last measured: through the cache, past it */
	uint64_t ticks;   /* in this block */
	uint64_t bytes;   /* in this block */
	uint32_t pieces;  /* in this block, those before the measured ones included */
	uint32_t blocks;  /* since the other way was tried */
	uint32_t patience;
	bool past;   /* the way that pieces go now */
	bool trying; /* in this block it is the other way than the one that won */
};

/* A piece of BYPASS_MEASURED_BYTES or more was copied in so many ticks. */
void bypass_count(struct bypass *bypass, uint64_t ticks, uint32_t bytes);

/* A clock that is cheap to read; only ratios of its differences mean something. 0: there is none. */
static inline uint64_t bypass_clock(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

#endif
