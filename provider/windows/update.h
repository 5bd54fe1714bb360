/* SPDX-License-Identifier: BSD-3-Clause */
/* update.h - atomic updates of elements in a row. */
#ifndef VICINAL_WINDOWS_UPDATE_H
#define VICINAL_WINDOWS_UPDATE_H

#include "collectives/movement.h"

enum update_kind {
	UPDATE_READ, /* MPI_NO_OP */
	UPDATE_REPLACE,
	UPDATE_ADD, /* of integers */
	UPDATE_AND,
	UPDATE_OR,
	UPDATE_XOR,
	UPDATE_REDUCE, /* any other predefined operation */
};

struct update {
	handle type;
	handle op;
	uint32_t size; /* bytes of an element: 1, 2, 4, or 8 */
	enum update_kind kind;
	reduction *kernel; /* NULL: by MPI_Reduce_local() */
};

/*
 * NULL if the datatype's accumulates are passed on, or the operation is not a predefined one. Valid until the
 * next call in this thread.
 */
const struct update *update_of(handle type, handle op);

/*
 * Updates `count` elements at `target`, a multiple of their size, with those at `operand`, and stores the
 * former ones at `before` unless it is NULL. `operand` may be NULL for UPDATE_READ. OUTCOME_PASS: the
 * operation is not valid for the datatype, and nothing was done.
 */
enum outcome update_apply(const struct update *update, unsigned char *target, const unsigned char *operand,
			  unsigned char *before, size_t count);

/*
 * Stores `value` in an element if it equals `compare`, and the former element at `before`. Returns false, and
 * does nothing, for a length or an address that update_apply() does not take.
 */
bool update_swap(unsigned char *target, uint32_t size, const void *value, const void *compare, void *before);

#endif
