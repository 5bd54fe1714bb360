/* SPDX-License-Identifier: BSD-3-Clause */
/* movement.h - collectives that move data and compute nothing. */
#ifndef VICINAL_COLLECTIVES_MOVEMENT_H
#define VICINAL_COLLECTIVES_MOVEMENT_H

#include "collectives/communicator.h"
#include "collectives/data.h"

enum collective {
	COLLECTIVE_BARRIER = 1,
	COLLECTIVE_BCAST,
	COLLECTIVE_GATHER,
	COLLECTIVE_ALLGATHER,
	COLLECTIVE_SCATTER,
	COLLECTIVE_ALLTOALL,
	COLLECTIVE_REDUCE,
	COLLECTIVE_ALLREDUCE,
	COLLECTIVE_REDUCE_SCATTER,
	COLLECTIVE_SCAN,
	COLLECTIVE_EXSCAN,
	COLLECTIVE_SHARE, /* the second half of a long allreduce */
};

/* What became of a call. */
enum outcome {
	OUTCOME_PASS, /* nothing was done: the MPI library does it. The same on all members */
	OUTCOME_DONE,
	OUTCOME_FAILED, /* the communicator is broken, or no memory is left */
};

/*
 * Whether data of `bytes` a step's cell goes through the region, and how: sets *staged. Makes the staging
 * buffers at their first use.
 */
enum outcome choose_cells(struct communicator *communicator, int64_t bytes, int64_t limit, bool *staged);

/* Bytes that a member can publish in one step. */
size_t cell_room(const struct communicator *communicator, bool staged);

/* Lengths are in bytes, for each rank. Buffers of bytes may overlap only as MPI_IN_PLACE says. */
enum outcome move_barrier(struct communicator *communicator);
enum outcome move_bcast(struct communicator *communicator, unsigned char *bytes, int64_t length, int root);
/* `to` is NULL on ranks that receive nothing. */
enum outcome move_gather(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			 int64_t length, int root);
enum outcome move_allgather(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			    int64_t length);
/* `from` is NULL on ranks that send nothing; `to` is NULL if the root keeps its own part in place. */
enum outcome move_scatter(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			  int64_t length, int root);
enum outcome move_alltoall(struct communicator *communicator, const unsigned char *from, unsigned char *to,
			   int64_t length);

#endif
