/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_matching.c - does each message go to the receive that MPI requires? */
#include "verify.h"

#define UNEXPECTED 2000 /* messages sent before the first receive is posted */

/* Receives in the reverse order of the sends, distinguished only by their tags. */
void check_tags(struct tally *tally)
{
	enum { MESSAGES = 64 };
	static const size_t sizes[] = {0, 8, 300, 5000, 70000};
	MPI_Request requests[MESSAGES];
	unsigned char *sent[MESSAGES];
	int *limit, tag_step, found;

	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
	tag_step = found ? *limit / MESSAGES : 511;
	for (int i = 0; i < MESSAGES; i++) {
		size_t size = sizes[(size_t)i % 5];

		sent[i] = message_alloc(size, job.right, i);
		MPI_Isend(sent[i], (int)size, MPI_CHAR, job.right, i * tag_step, MPI_COMM_WORLD,
			  &requests[i]);
	}
	for (int i = MESSAGES - 1; i >= 0; i--) {
		size_t size = sizes[(size_t)i % 5];
		unsigned char *buffer = guarded_alloc(size);
		struct message_name name = name_of(job.left, job.rank, i);
		MPI_Status status;

		MPI_Recv(buffer, (int)size, MPI_CHAR, job.left, i * tag_step, MPI_COMM_WORLD, &status);
		check_status(tally, &status, job.left, i * tag_step, size);
		pattern_check(tally, buffer, size, &name);
		guarded_free(tally, buffer, size, size);
	}
	MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MESSAGES; i++)
		free(sent[i]);
}

/* All other ranks send to rank 0, which receives from any source with any tag. */
void check_any_source(struct tally *tally)
{
	enum { EACH = 200, BYTES = 3000 };

	if (job.rank != 0) {
		for (int i = 0; i < EACH; i++) {
			size_t size = (size_t)i * BYTES / EACH;
			unsigned char *sent = message_alloc(size, 0, i);

			MPI_Send(sent, (int)size, MPI_CHAR, 0, i, MPI_COMM_WORLD);
			free(sent);
		}
		return;
	}
	int *next = need_memory(calloc((size_t)job.ranks, sizeof(int)));

	for (int i = 0; i < EACH * (job.ranks - 1); i++) {
		unsigned char *buffer = guarded_alloc(BYTES);
		MPI_Status status;
		struct message_name name;
		size_t size;

		MPI_Recv(buffer, BYTES, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
		size = (size_t)status.MPI_TAG * BYTES / EACH;
		check_status(tally, &status, status.MPI_SOURCE, next[status.MPI_SOURCE]++, size);
		name = name_of(status.MPI_SOURCE, 0, status.MPI_TAG);
		pattern_check(tally, buffer, size, &name);
		guarded_free(tally, buffer, BYTES, size);
	}
	free(next);
}

/* Many messages arrive before the first receive, and are received in reverse order. */
void check_unexpected(struct tally *tally)
{
	unsigned char **sent = need_memory(malloc(UNEXPECTED * sizeof(*sent)));
	MPI_Request *requests = need_memory(malloc(UNEXPECTED * sizeof(*requests)));

	for (int i = 0; i < UNEXPECTED; i++) {
		sent[i] = message_alloc((size_t)i % 500, job.right, i);
		MPI_Isend(sent[i], i % 500, MPI_CHAR, job.right, i, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = UNEXPECTED - 1; i >= 0; i--) {
		unsigned char *buffer = guarded_alloc((size_t)i % 500);
		struct message_name name = name_of(job.left, job.rank, i);

		MPI_Recv(buffer, i % 500, MPI_CHAR, job.left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		pattern_check(tally, buffer, (size_t)i % 500, &name);
		guarded_free(tally, buffer, (size_t)i % 500, (size_t)i % 500);
	}
	MPI_Waitall(UNEXPECTED, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < UNEXPECTED; i++)
		free(sent[i]);
	free(requests);
	free(sent);
}

/* A synchronous send must not complete before its receive has started. */
void check_ssend(struct tally *tally)
{
	static const size_t sizes[] = {0, 8, 1000, 20000, 300000};

	for (int i = 0; i < 5 && job.partner >= 0; i++) {
		if (job.rank < job.partner) {
			unsigned char *sent = message_alloc(sizes[i], job.partner, i);
			MPI_Request request;
			int done = 0;

			MPI_Issend(sent, (int)sizes[i], MPI_CHAR, job.partner, TAG_DATA, MPI_COMM_WORLD,
				   &request);
			for (int poll = 0; poll < 1000 && !done; poll++)
				MPI_Test(&request, &done, MPI_STATUS_IGNORE);
			tally_expect(tally, "MPI_Issend complete before its receive", done, 0);
			MPI_Send(NULL, 0, MPI_CHAR, job.partner, TAG_GO, MPI_COMM_WORLD);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			free(sent);
		} else {
			MPI_Recv(NULL, 0, MPI_CHAR, job.partner, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			receive_whole(tally, sizes[i], job.partner, i);
		}
	}
}

/* MPI_Probe and MPI_Mprobe report the size; the received message is the probed one. */
void check_probe(struct tally *tally)
{
	enum { MESSAGES = 12 };
	static const size_t sizes[MESSAGES] = {0,    1,     40,    49,     500, 4000,
					       9000, 65536, 65537, 200000, 7,   300000};

	for (int i = 0; i < MESSAGES; i++) {
		unsigned char *sent = message_alloc(sizes[i], job.right, i), *buffer;
		struct message_name name = name_of(job.left, job.rank, i);
		MPI_Request request;
		MPI_Message message;
		MPI_Status status;
		int count;

		MPI_Isend(sent, (int)sizes[i], MPI_CHAR, job.right, TAG_DATA, MPI_COMM_WORLD, &request);
		if (i % 2 == 0)
			MPI_Probe(MPI_ANY_SOURCE, TAG_DATA, MPI_COMM_WORLD, &status);
		else
			MPI_Mprobe(job.left, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
		check_status(tally, &status, job.left, TAG_DATA, sizes[i]);
		MPI_Get_count(&status, MPI_CHAR, &count);
		buffer = guarded_alloc((size_t)count);
		if (i % 2 == 0)
			MPI_Recv(buffer, count, MPI_CHAR, job.left, TAG_DATA, MPI_COMM_WORLD, &status);
		else
			MPI_Mrecv(buffer, count, MPI_CHAR, &message, &status);
		check_status(tally, &status, job.left, TAG_DATA, sizes[i]);
		pattern_check(tally, buffer, sizes[i] < (size_t)count ? sizes[i] : (size_t)count, &name);
		guarded_free(tally, buffer, (size_t)count, (size_t)count);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		free(sent);
	}
}

/* A cancelled receive takes no message: the message goes to the next matching receive. */
void check_cancel(struct tally *tally)
{
	for (int i = 0; i < 20; i++) {
		unsigned char *cancelled = guarded_alloc(100);
		MPI_Request request;
		MPI_Status status;
		int flag = 0;

		MPI_Irecv(cancelled, 100, MPI_CHAR, job.left, TAG_DATA, MPI_COMM_WORLD, &request);
		MPI_Cancel(&request);
		MPI_Wait(&request, &status);
		MPI_Test_cancelled(&status, &flag);
		tally_expect(tally, "cancelled", flag, 1);
		MPI_Barrier(MPI_COMM_WORLD);
		shift(tally, 100, i);
		guarded_free(tally, cancelled, 100, 0);
	}
}

/* A message longer than its receive is an error, and writes nothing beyond the buffer. */
void check_truncate(struct tally *tally)
{
	static const size_t sizes[] = {40, 1000, 20000, 300000};

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < 4; i++) {
		unsigned char *sent = message_alloc(sizes[i], job.right, i);
		unsigned char *buffer = guarded_alloc(16);
		MPI_Request request;
		MPI_Status status;
		int error, class;

		MPI_Isend(sent, (int)sizes[i], MPI_CHAR, job.right, TAG_DATA, MPI_COMM_WORLD, &request);
		error = MPI_Recv(buffer, 16, MPI_CHAR, job.left, TAG_DATA, MPI_COMM_WORLD, &status);
		MPI_Error_class(error, &class);
		tally_expect(tally, "error class of a truncated message", class, MPI_ERR_TRUNCATE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		guarded_free(tally, buffer, 16, 16);
		free(sent);
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}
