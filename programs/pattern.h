/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pattern.h - message contents of which every byte can be checked, and the counters of a check.
 *
 * A message is identified by (seed, source, destination, number). Its bytes depend only on that
 * name and on their offset. So a check finds every byte that belongs to another message, to another
 * offset in the same message, or to no message. Guards around each receive buffer detect bytes
 * written outside of it.
 */
#ifndef PROGRAMS_PATTERN_H
#define PROGRAMS_PATTERN_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64
#define GUARD 0xC5

/* The results of one check on this rank. */
struct tally {
	uint64_t messages;
	uint64_t bytes;
	uint64_t errors; /* wrong bytes, and wrong results of MPI */
	char first[160]; /* text of the first error; empty if there is none */
};

struct message_name {
	uint64_t seed;
	int source;
	int destination;
	int number;
};

/* The finalizer of splitmix64: every bit of the result depends on every bit of x. */
static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static inline uint64_t random_next(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*state);
}

static inline uint64_t pattern_start(const struct message_name *name)
{
	return mix(name->seed ^
		   mix((uint64_t)(uint32_t)name->source << 40 ^ (uint64_t)(uint32_t)name->destination << 20 ^
		       (uint64_t)(uint32_t)name->number));
}

static inline void *need_memory(void *memory)
{
	if (memory == NULL) {
		fprintf(stderr, "verify: error: no memory left: use a smaller --max-size\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

static inline void pattern_fill(unsigned char *buffer, size_t size, const struct message_name *name)
{
	uint64_t start = pattern_start(name);

	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = mix(start + at);

		memcpy(buffer + at, &word, size - at < 8 ? size - at : 8);
	}
}

static inline void tally_error(struct tally *tally, const char *what, long long got, long long wanted)
{
	if (tally->errors++ == 0)
		snprintf(tally->first, sizeof(tally->first), "%s: got %lld, expected %lld", what, got,
			 wanted);
}

static inline void tally_expect(struct tally *tally, const char *what, long long got, long long wanted)
{
	if (got != wanted)
		tally_error(tally, what, got, wanted);
}

static inline void pattern_check(struct tally *tally, const unsigned char *buffer, size_t size,
				 const struct message_name *name)
{
	uint64_t start = pattern_start(name);

	tally->messages++;
	tally->bytes += size;
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = mix(start + at);
		size_t part = size - at < 8 ? size - at : 8;

		if (memcmp(buffer + at, &word, part) == 0)
			continue;
		for (size_t i = 0; i < part; i++) {
			unsigned char wanted;
			char what[100];

			memcpy(&wanted, (unsigned char *)&word + i, 1);
			if (buffer[at + i] == wanted)
				continue;
			snprintf(what, sizeof(what), "byte %zu of message %d of %zu bytes from %d to %d",
				 at + i, name->number, size, name->source, name->destination);
			tally_error(tally, what, buffer[at + i], wanted);
		}
	}
}

/* A receive buffer of `size` bytes with a guard at both ends. */
static inline unsigned char *guarded_alloc(size_t size)
{
	unsigned char *memory = need_memory(malloc(size + 2 * (size_t)GUARD_BYTES));

	memset(memory, GUARD, size + 2 * (size_t)GUARD_BYTES);
	return memory + GUARD_BYTES;
}

/* Check that nothing was written beyond `used` bytes of a buffer of `size` bytes, and free it. */
static inline void guarded_free(struct tally *tally, unsigned char *buffer, size_t size, size_t used)
{
	for (size_t i = 0; i < GUARD_BYTES; i++)
		tally_expect(tally, "byte before the receive buffer", buffer[(long)i - GUARD_BYTES], GUARD);
	for (size_t i = used; i < size + GUARD_BYTES; i++)
		tally_expect(tally, "byte after the message in the receive buffer", buffer[i], GUARD);
	free(buffer - GUARD_BYTES);
}

#endif
