/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_transfer.c - are the bytes correct for every size, order and load? */
#include "verify.h"

#define SMALL_MAX 1100     /* every size up to this one is checked */
#define STORM_MESSAGES 200 /* outstanding messages to each peer in one round */

/* Every small size, then each power of two, its neighbours, and other sizes in between. */
void check_sizes(struct tally *tally)
{
	int number = 0;

	for (size_t size = 0; size <= SMALL_MAX && size <= job.max_size; size++)
		shift(tally, size, number++);
	for (size_t power = 1024; power <= job.max_size; power *= 2) {
		size_t around[] = {power - 1, power, power + 1, power + power / 3, power + power / 2 + 1};

		for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++)
			if (around[i] <= job.max_size)
				shift(tally, around[i], number++);
	}
}

/* MPI_Sendrecv in both directions at once, with sizes that differ by direction. */
void check_sendrecv(struct tally *tally)
{
	int number = 0;

	for (size_t size = 0; size <= job.max_size; size = size * 3 + 1, number++) {
		size_t out = size + (size_t)job.rank, in = size + (size_t)job.left;
		unsigned char *sent = message_alloc(out, job.right, number);
		unsigned char *received = guarded_alloc(in);
		struct message_name name = name_of(job.left, job.rank, number);
		MPI_Status status;

		MPI_Sendrecv(sent, (int)out, MPI_CHAR, job.right, TAG_DATA, received, (int)in, MPI_CHAR,
			     job.left, TAG_DATA, MPI_COMM_WORLD, &status);
		check_status(tally, &status, job.left, TAG_DATA, in);
		pattern_check(tally, received, in, &name);
		guarded_free(tally, received, in, in);
		free(sent);
	}
}

/* Small and large messages with one tag must arrive in the order of sending. */
void check_order(struct tally *tally)
{
	enum { MESSAGES = 120 };
	MPI_Request requests[MESSAGES];
	unsigned char *sent[MESSAGES];
	size_t sizes[MESSAGES];
	uint64_t random = job.seed;

	for (int i = 0; i < MESSAGES; i++) {
		sizes[i] = random_next(&random) % 4 == 0 ? random_next(&random) % (job.max_size / 8 + 1)
							 : random_next(&random) % 200;
		sent[i] = message_alloc(sizes[i], job.right, i);
		MPI_Isend(sent[i], (int)sizes[i], MPI_CHAR, job.right, TAG_DATA, MPI_COMM_WORLD,
			  &requests[i]);
	}
	for (int i = 0; i < MESSAGES; i++)
		receive_whole(tally, sizes[i], job.left, i);
	MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MESSAGES; i++)
		free(sent[i]);
}

/* Messages from a rank to itself. */
void check_self(struct tally *tally)
{
	for (size_t size = 0; size <= job.max_size; size = size * 5 + 3) {
		unsigned char *sent = message_alloc(size, job.rank, 0);
		MPI_Request request;

		MPI_Isend(sent, (int)size, MPI_CHAR, job.rank, TAG_DATA, MPI_COMM_WORLD, &request);
		receive_whole(tally, size, job.rank, 0);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		free(sent);
	}
}

/* The size of message `number` of a storm, which both ends can compute. Mostly small. */
static size_t storm_size(int source, int destination, int number)
{
	struct message_name name = name_of(source, destination, number);
	uint64_t draw = mix(pattern_start(&name));
	static const size_t limits[] = {64, 64, 600, 600, 5000, 40000};
	size_t limit = draw % 50 == 0 ? job.max_size : limits[draw % 6];

	return (size_t)(mix(draw) % (limit + 1));
}

/*
 * All ranks send to all others at once, with everything outstanding. Receives are posted in a
 * random order, and half of them only after the sends.
 */
static void storm_round(struct tally *tally, int round)
{
	int peers = job.ranks - 1, total = peers * STORM_MESSAGES;
	MPI_Request *requests = need_memory(malloc(2 * (size_t)total * sizeof(*requests)));
	unsigned char **buffers = need_memory(malloc(2 * (size_t)total * sizeof(*buffers)));
	int *order = need_memory(calloc((size_t)total, sizeof(int)));
	uint64_t random = job.seed + (uint64_t)round * 1000 + (uint64_t)job.rank;

	for (int i = 0; i < total; i++)
		order[i] = i;
	for (int i = total - 1; i > 0; i--) {
		int j = (int)(random_next(&random) % (uint64_t)(i + 1)), swapped = order[i];

		order[i] = order[j];
		order[j] = swapped;
	}
	for (int step = 0; step < 2 * total; step++) {
		/* First half of the receives, then all sends, then the other half. */
		int is_send = step >= total / 2 && step < total / 2 + total;
		int i = is_send ? step - total / 2 : order[step < total / 2 ? step : step - total];
		int peer = (job.rank + 1 + i / STORM_MESSAGES) % job.ranks, tag = i % STORM_MESSAGES;
		int number = round * STORM_MESSAGES + tag;

		if (is_send) {
			size_t size = storm_size(job.rank, peer, number);

			buffers[total + i] = message_alloc(size, peer, number);
			MPI_Isend(buffers[total + i], (int)size, MPI_CHAR, peer, tag, MPI_COMM_WORLD,
				  &requests[total + i]);
		} else {
			size_t size = storm_size(peer, job.rank, number);

			buffers[i] = guarded_alloc(size);
			MPI_Irecv(buffers[i], (int)size, MPI_CHAR, peer, tag, MPI_COMM_WORLD, &requests[i]);
		}
	}
	MPI_Waitall(2 * total, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < total; i++) {
		int peer = (job.rank + 1 + i / STORM_MESSAGES) % job.ranks;
		int number = round * STORM_MESSAGES + i % STORM_MESSAGES;
		size_t size = storm_size(peer, job.rank, number);
		struct message_name name = name_of(peer, job.rank, number);

		pattern_check(tally, buffers[i], size, &name);
		guarded_free(tally, buffers[i], size, size);
		free(buffers[total + i]);
	}
	free(order);
	free(buffers);
	free(requests);
}

void check_storm(struct tally *tally)
{
	for (int round = 0; round < job.rounds; round++)
		storm_round(tally, round);
}

/* Collectives use the operations above, with tags and communicators of their own. */
void check_collectives(struct tally *tally)
{
	for (size_t size = 1; size <= job.max_size / 4; size *= 8) {
		unsigned char *buffer = guarded_alloc(size);
		struct message_name name = name_of(0, 0, (int)size);
		long sum = 0, mine = (long)size * (job.rank + 1);
		unsigned char *out = need_memory(malloc(size * (size_t)job.ranks));
		unsigned char *in = guarded_alloc(size * (size_t)job.ranks);

		if (job.rank == 0)
			pattern_fill(buffer, size, &name);
		MPI_Bcast(buffer, (int)size, MPI_CHAR, 0, MPI_COMM_WORLD);
		pattern_check(tally, buffer, size, &name);
		guarded_free(tally, buffer, size, size);
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		tally_expect(tally, "sum of MPI_Allreduce", sum,
			     (long)size * job.ranks * (job.ranks + 1) / 2);
		for (int peer = 0; peer < job.ranks; peer++) {
			name = name_of(job.rank, peer, (int)size);
			pattern_fill(out + size * (size_t)peer, size, &name);
		}
		MPI_Alltoall(out, (int)size, MPI_CHAR, in, (int)size, MPI_CHAR, MPI_COMM_WORLD);
		for (int peer = 0; peer < job.ranks; peer++) {
			name = name_of(peer, job.rank, (int)size);
			pattern_check(tally, in + size * (size_t)peer, size, &name);
		}
		guarded_free(tally, in, size * (size_t)job.ranks, size * (size_t)job.ranks);
		free(out);
	}
}
