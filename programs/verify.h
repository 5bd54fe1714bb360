/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.h - shared declarations of verify: the job, its messages, and one function for each check.
 */
#ifndef PROGRAMS_VERIFY_H
#define PROGRAMS_VERIFY_H

#include "pattern.h"

#define TAG_DATA 7
#define TAG_GO 8

struct job {
	int rank, ranks;
	int right, left; /* neighbours in the ring of all ranks */
	int partner;     /* 0-1, 2-3, ...; -1 if the last rank has none */
	uint64_t seed;
	size_t max_size; /* bytes */
	int rounds;      /* of the storm */
};

extern struct job job;

static inline struct message_name name_of(int source, int destination, int number)
{
	return (struct message_name){job.seed, source, destination, number};
}

static inline unsigned char *message_alloc(size_t size, int destination, int number)
{
	struct message_name name = name_of(job.rank, destination, number);
	unsigned char *buffer = need_memory(malloc(size + 1));

	pattern_fill(buffer, size, &name);
	return buffer;
}

static inline void check_status(struct tally *tally, const MPI_Status *status, int source, int tag,
				size_t size)
{
	int count;

	MPI_Get_count(status, MPI_CHAR, &count);
	tally_expect(tally, "source in the status", status->MPI_SOURCE, source);
	tally_expect(tally, "tag in the status", status->MPI_TAG, tag);
	tally_expect(tally, "count in the status", count, (long long)size);
}

/* Post a receive of exactly `size` bytes, wait for it, and check the whole message. */
static inline void receive_whole(struct tally *tally, size_t size, int source, int number)
{
	unsigned char *buffer = guarded_alloc(size);
	struct message_name name = name_of(source, job.rank, number);
	MPI_Status status;

	MPI_Recv(buffer, (int)size, MPI_CHAR, source, TAG_DATA, MPI_COMM_WORLD, &status);
	check_status(tally, &status, source, TAG_DATA, size);
	pattern_check(tally, buffer, size, &name);
	guarded_free(tally, buffer, size, size);
}

/* One message to the right and one from the left, of the same size. */
static inline void shift(struct tally *tally, size_t size, int number)
{
	unsigned char *sent = message_alloc(size, job.right, number);
	MPI_Request request;

	MPI_Isend(sent, (int)size, MPI_CHAR, job.right, TAG_DATA, MPI_COMM_WORLD, &request);
	receive_whole(tally, size, job.left, number);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	free(sent);
}

/* verify_transfer.c: contents, sizes and order */
void check_sizes(struct tally *tally);
void check_sendrecv(struct tally *tally);
void check_order(struct tally *tally);
void check_self(struct tally *tally);
void check_storm(struct tally *tally);
void check_collectives(struct tally *tally);

/* verify_matching.c: which receive gets which message, and the status */
void check_tags(struct tally *tally);
void check_any_source(struct tally *tally);
void check_unexpected(struct tally *tally);
void check_ssend(struct tally *tally);
void check_probe(struct tally *tally);
void check_cancel(struct tally *tally);
void check_truncate(struct tally *tally);

#endif
