/* SPDX-License-Identifier: BSD-3-Clause */
/* movement.h - collectives that move data and compute nothing. */
#ifndef VICINAL_COLLECTIVES_MOVEMENT_H
#define VICINAL_COLLECTIVES_MOVEMENT_H

#include "collectives/communicator.h"
#include "collectives/data.h"
#include "region/copy.h"

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
	COLLECTIVE_GATHERV,
	COLLECTIVE_ALLGATHERV,
	COLLECTIVE_SCATTERV,
	COLLECTIVE_ALLTOALLV,
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

/* Is data of this length, which is staged, the MPI library's, because pieces are short? */
static inline bool are_pieces_short(const struct communicator *communicator, int64_t bytes)
{
	return communicator->piece < STAGING_PIECE && bytes > SHORT_PIECES_MAX * (int64_t)communicator->piece;
}

/* Bytes that a member can publish in one step. */
size_t cell_room(const struct communicator *communicator, bool staged);

/*
 * Bytes for each rank up to which two copies through the region take less time than the MPI library's
 * messages, which are copied once if they are long: docs/decisions/0040.
 */
#define MOVEMENT_LIMIT (INT64_C(128) << 10)

/*
 * The same for a part for each other member. The sender writes all parts, which in messages the receivers
 * copy at the same time, so with more than two members the limits are lower: docs/decisions/0034.
 */
static inline int64_t parts_limit(const struct communicator *communicator, bool all_send)
{
	return communicator->size == 2 ? MOVEMENT_LIMIT : INT64_C(1024) * (all_send ? 64 : 32);
}

/*
 * For collectives whose members know all lengths: a step by which all find out that they call the same, and
 * then OUTCOME_PASS. Without it, members with other counts would wait for each other in different ways.
 */
enum outcome pass_alike(struct communicator *communicator, uint64_t kind);

/* For such a kind: adds a length to a hash of lengths. */
static inline uint64_t lengths_hash(uint64_t hash, int64_t length)
{
	hash = (hash ^ (uint64_t)length) * UINT64_C(0x9e3779b97f4a7c15) + 1;
	return hash ^ hash >> 32;
}

/*
 * Data of this length and more goes out by stores that bypass the cache. The lines of a piece are in the
 * cache of the member that read them last, and plain stores would fetch them from there first:
 * docs/decisions/0040. A piece is written in one way only: plain stores find nothing in a cache after the
 * other ones.
 */
#define PAST_CACHE_BYTES 8192U

static inline void move_out(shared_bytes *to, const void *from, size_t length)
{
	if (length <= LINE_DATA)
		copy_small_out(to, from, length);
	else if (length < PAST_CACHE_BYTES)
		shared_copy_out(to, from, length);
	else
		copy_past_cache_out(to, from, length);
}

static inline void move_in(void *to, const shared_bytes *from, size_t length)
{
	if (length <= LINE_DATA)
		copy_small_in(to, from, length);
	else
		shared_copy_in(to, from, length);
}

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
