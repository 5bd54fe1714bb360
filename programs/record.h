/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record.h - what the parts of record know of each other: what can be recorded, and the
 * samples of one size.
 */
#ifndef PROGRAMS_RECORD_H
#define PROGRAMS_RECORD_H

#define MEASURE_ARGUMENTS \
	"OPERATION [--sizes BYTES,...] [--samples N] [--seconds S] [--window N] " \
	"[--synchronization flush|lock|pscw|fence] [--clock auto|counter|system]"

#include "exchanges.h"
#include "recorder.h"

enum synchronization { FLUSH, LOCK, PSCW, FENCE };

/* One operation at one size, ready to be run on this rank. */
struct subject {
	struct exchange *exchange;
	exchange_function *run;    /* one iteration is one sample */
	exchange_function *before; /* each sample, if they are apart, and no part of it */
	long messages;             /* or calls, that are in one sample */
	bool kept;                 /* whether this rank's samples say anything */
};

struct operation {
	const char *name;
	const char *sample; /* what one is, for who reads it */
	int window;         /* messages in flight where --window does not say; 0: it has none */
	bool sizes;         /* whether it has a size at all */
	bool pairs;         /* of two ranks each */
	bool apart;         /* a sample does not begin where the one before ended */
	bool remote;        /* --synchronization applies */
	size_t multiple;    /* of which a size is one */
	/* Checks its answer once, where it has one, before anything is timed. */
	void (*open)(struct subject *subject, int kind, size_t size, int window,
		     enum synchronization synchronization);
	void (*close)(struct subject *subject);
	int kind; /* for open() */
};

/* Every operation; ends with one that has no name. */
extern const struct operation pair_operations[];
extern const struct operation remote_operations[];
extern const struct operation collective_operations[];

/* What was recorded at one size. */
struct series {
	size_t size;
	long messages;
	long count;
	bool kept;
	int64_t *samples; /* ticks */
};

/* Prints everything on rank 0, ranks after each other; all ranks call it when all is measured. */
void record_print(const struct recorder *recorder, const struct series *series, int count);

/* The rank that `rank` forms a pair with: each of the first half with one of the second. */
static inline int record_peer(int rank, int ranks)
{
	return rank < ranks / 2 ? rank + ranks / 2 : rank - ranks / 2;
}

#endif
