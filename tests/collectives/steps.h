/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * steps.h - one step: a collective operation with everything about it drawn, and the result that it must
 * have.
 *
 * Each rank knows what each rank sends, because all is drawn from the seed, the step's number and the ranks.
 */
#ifndef COLLECTIVES_STEPS_H
#define COLLECTIVES_STEPS_H

#include "types.h"

enum { STEP_TEXT = 400 };

/* The communicators of a thread. */
struct communicators {
	MPI_Comm world, copy, halves, reversed, self, between, messages;
};

/* A communicator as a step uses it. `sources` are the ranks whose data a rank gets: those of the remote group
 * of an intercommunicator. */
struct group {
	MPI_Comm handle;
	const char *name;
	int rank, size, sources;
	bool is_inter, is_own;
	uint64_t own, remote; /* from which the data of the own ranks and of the sources are drawn */
};

struct step {
	uint64_t seed;
	long number;
	struct draw all, one; /* the same on all ranks; different on each rank */
	struct group group;
	struct type type;
	struct operation operation;
	int count; /* elements of a message or block */
	int root;  /* of an intercommunicator: in the group that `own` is the greater number of */
	bool in_place;
	bool may_flatten; /* ranks may pass the same values by different datatypes */
	char *text;       /* STEP_TEXT bytes: what runs, for messages */
};

/* The names of all collective operations, the last one NULL. */
extern const char *const collective_names[];

/* What limits the steps. */
struct limits {
	const char *only; /* names of collectives, separated by commas; NULL: all */
	size_t bytes;     /* of a block, at most */
	bool one_clock;   /* the ranks' nodes have one clock */
	bool world;       /* no other communicator */
	bool faults;      /* what MPI libraries are known to do wrong, too: see known.c */
};

void communicators_make(struct communicators *made, MPI_Comm world);
void communicators_free(struct communicators *made);
/* Runs a step. Ends the process if its result is wrong. */
void step_run(const struct communicators *all, const struct limits *limits, uint64_t seed, long number,
	      char *text);
/* Says what is wrong with the step, and ends the process. */
void step_fail(const struct step *step, const char *format, ...)
	__attribute__((noreturn, format(printf, 2, 3)));

/* --- of the step's parts --- */

void run_moving(struct step *step, const char *name, bool one_clock); /* moving.c: what only moves data */
void run_reducing(struct step *step, const char *name);               /* reducing.c: what combines it */
/* The root as this rank names it, which in an intercommunicator is not its rank. */
int root_of(const struct step *step, bool *is_root);
bool is_reducing(const char *name);

/* widths.c: calls with a count for each rank, by the form with plain or with large counts. */
struct counts {
	int number, counts[64], places[64]; /* places in elements */
};
void call_allgatherv(struct step *step, const void *from, int count, MPI_Datatype type, void *to,
		     const struct counts *counts, MPI_Datatype to_type);
void call_gatherv(struct step *step, const void *from, int count, MPI_Datatype type, void *to,
		  const struct counts *counts, MPI_Datatype to_type, int root);
void call_scatterv(struct step *step, const void *from, const struct counts *counts, MPI_Datatype type,
		   void *to, int count, MPI_Datatype to_type, int root);
void call_alltoallv(struct step *step, const void *from, const struct counts *sent, MPI_Datatype type,
		    void *to, const struct counts *received, MPI_Datatype to_type);
/* Some blocks are passed as one element of a datatype of their own. */
void call_alltoallw(struct step *step, const void *from, const struct counts *sent, const struct type *type,
		    void *to, const struct counts *received, const struct type *to_type);
void call_reduce_scatter(struct step *step, const void *from, void *to, const int *counts);

/* known.c: faults of MPI libraries. Whether the step cannot pass with this library; then it gets MPI_LONG. */
bool is_known_fault(const struct step *step, const char *name);
/* Whether ranks may pass the same values by different datatypes with this library. */
bool may_flatten(const struct step *step, const char *name);
/* Whether a step of this length may be in place with this library. */
bool may_be_in_place(const struct step *step, const char *name);
/* Whether blocks may have drawn places with this library. */
bool may_place(const struct step *step, const char *name);
/* Whether a receive of any tag from the own rank cannot pass with this library. */
extern const bool any_tag_of_itself_is_faulty;

/* buffers.c: memory of the elements `from 0 to elements` of a type, with guards on both sides. */
struct buffer {
	const struct step *step;
	const char *name;
	const struct type *type;
	size_t bytes;
	unsigned char *memory, *expected, *marks;
	ptrdiff_t first; /* offset of element 0 */
};

void buffer_make(struct buffer *buffer, struct step *step, const char *name, const struct type *type,
		 long elements);
/* The address for MPI. */
void *buffer_address(const struct buffer *buffer);
/* Sets the values that `source` sends: values `from` to `from + count * units`, beginning with an element.
 * With `is_input` they are stored; without it they are only expected. */
void buffer_put(struct buffer *buffer, long element, int count, uint64_t source, long from, bool is_input);
/* Expects the sources' values from `from` on, combined in the order of the sources. */
void buffer_expect(struct buffer *buffer, long element, int count, const uint64_t *sources, int number,
		   long from);
/* Expects anything in the elements. */
void buffer_ignore(struct buffer *buffer, long element, int count);
/* Checks the buffer, and frees it. */
void buffer_check(struct buffer *buffer);
/* What a rank sends, as `source` above: to each rank the same, or to a rank. */
uint64_t source_of(uint64_t group, int rank);
uint64_t source_to(uint64_t group, int rank, int to);

#endif
