/* SPDX-License-Identifier: BSD-3-Clause */
/* record.h - shared declarations of record: the operations, and the samples of one size. */
#ifndef PROGRAMS_RECORD_H
#define PROGRAMS_RECORD_H

#define MEASURE_ARGUMENTS \
	"OPERATION [--sizes BYTES,...] [--samples N] [--seconds S] [--window N] " \
	"[--synchronization flush|lock|pscw|fence] [--clock auto|counter|system]"

#include "exchanges.h"
#include "recorder.h"

enum synchronization { FLUSH, LOCK, PSCW, FENCE };

/* One operation at one size, ready to run on this rank. */
struct subject {
	struct exchange *exchange;
	exchange_function *run;    /* one iteration is one sample */
	exchange_function *before; /* runs before each sample, if the samples are apart, and is not timed */
	long messages;             /* messages or calls in one sample */
	bool kept;                 /* whether this rank's samples are meaningful */
};

struct operation {
	const char *name;
	const char *sample; /* description of a sample, for the reader */
	int window;         /* default messages in flight; 0: the operation has no window */
	bool sizes;         /* the operation has sizes */
	bool pairs;         /* the operation runs between pairs of ranks */
	bool apart;         /* a sample does not begin at the end of the previous one */
	bool remote;        /* --synchronization applies */
	size_t multiple;    /* a size must be a multiple of this */
	/* Also checks the operation's result once, if it has one, before the measurement. */
	void (*open)(struct subject *subject, int kind, size_t size, int window,
		     enum synchronization synchronization);
	void (*close)(struct subject *subject);
	int kind; /* for open() */
};

/* All operations, terminated by an entry without a name. */
extern const struct operation pair_operations[];
extern const struct operation remote_operations[];
extern const struct operation collective_operations[];

/* The recorded samples of one size. */
struct series {
	size_t size;
	long messages;
	long count;
	bool kept;
	int64_t *samples; /* ticks */
};

/* Prints everything on rank 0, rank by rank. All ranks call it after the last measurement. */
void record_print(const struct recorder *recorder, const struct series *series, int count);

/* The partner of `rank`: a rank of the first half pairs with a rank of the second half. */
static inline int record_peer(int rank, int ranks)
{
	return rank < ranks / 2 ? rank + ranks / 2 : rank - ranks / 2;
}

#endif
