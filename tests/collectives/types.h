/* SPDX-License-Identifier: BSD-3-Clause */
/* types.h - the datatypes and operations that steps draw from. */
#ifndef COLLECTIVES_TYPES_H
#define COLLECTIVES_TYPES_H

#include "values.h"

#include <mpi.h>

enum { UNITS_MAX = 12 }; /* values in one element of a derived datatype */

/* A datatype, and what one element has at which byte. */
struct type {
	MPI_Datatype handle;
	MPI_Datatype basic; /* MPI_DATATYPE_NULL if the values are of several types */
	char name[72];
	bool is_derived;
	unsigned actions; /* what the standard allows of MPI's own operations, a bit for each action */
	int units;
	ptrdiff_t at[UNITS_MAX];
	enum kind kinds[UNITS_MAX];
	MPI_Aint extent, low, high; /* distance of elements; the bytes of one, beside what is only padding */
	struct type *next;          /* in the list of derived datatypes */
};

struct operation {
	MPI_Op handle;
	const char *name;
	enum action action;
	bool is_own; /* to be freed */
};

/* Finds out which predefined datatypes this MPI has. */
void types_begin(void);
/* Draws a datatype; a derived one is made for the caller. */
void type_make(struct type *type, struct draw *draw);
/* MPI_LONG. */
void type_plain(struct type *type);
void type_free(struct type *type);
/* The predefined datatype whose values `type` consists of. Only if it has a `basic`. */
void type_flat(const struct type *type, struct type *flat);
/* Draws an operation that the datatype allows; one of a user is made for the caller. */
void operation_make(struct operation *operation, const struct type *type, struct draw *draw);
void operation_free(struct operation *operation);

#endif
