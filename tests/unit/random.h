/* SPDX-License-Identifier: BSD-3-Clause */
/* random.h - a small, seeded generator (xorshift). Tests state their seed and repeat exactly. */
#ifndef VICINAL_TESTS_RANDOM_H
#define VICINAL_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
	return (uint32_t)((next_random(state) >> 11) % limit);
}

#endif
