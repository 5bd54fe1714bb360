/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * blocks.h - the blocks of a collective that has a count for each rank (MPI_Gatherv and others), as the
 * application describes them: one block for each rank, anywhere in a buffer.
 */
#ifndef VICINAL_COLLECTIVES_BLOCKS_H
#define VICINAL_COLLECTIVES_BLOCKS_H

#include "collectives/data.h"

struct blocks {
	const void *buffer;
	const void *counts;        /* by rank: of type int, or MPI_Count if `large` */
	const void *displacements; /* by rank: of type int, or MPI_Aint if `large` */
	/* By rank: datatypes, as MPI_Alltoallw() has them. Then displacements are bytes. NULL: `type`. */
	const void *types;
	handle type;
	int64_t size; /* of an element of `type` without gaps, in bytes; -1: the datatype is invalid */
	intptr_t extent;
	bool large;
	bool single;   /* one block at the beginning of the buffer, whatever the rank: the rest does not count
			*/
	int64_t count; /* of the single block */
};

/* All blocks have the same datatype. */
struct blocks blocks_of(const void *buffer, const void *counts, const void *displacements, handle type,
			bool large);
/* Each block has a datatype of its own. */
struct blocks blocks_of_types(const void *buffer, const void *counts, const void *displacements,
			      const void *types, bool large);

/* One block for whatever rank. */
struct blocks blocks_of_one(const void *buffer, int64_t count, handle type);

/* The bytes of a rank's block without gaps; -1 if its count or datatype is invalid. */
int64_t block_length(const struct blocks *blocks, int rank);

/* As data_to_send() and data_to_receive(). `length` is of block_length(). */
struct data block_to_send(const struct blocks *blocks, int rank, int64_t length);
struct data block_to_receive(const struct blocks *blocks, int rank, int64_t length);

#endif
