/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile_ranks SECONDS - exchange messages with all other ranks until the time is over, and only test for
 * their completion. No call blocks, so a rank that does not end by itself hangs in the MPI library or below.
 * Prints "ready" when the first messages have come; the time begins then.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_MAX = 8, LONGEST = 200000 };

static const int sizes[] = {8, 300, 4000, 60000, LONGEST};

struct transfer {
	MPI_Request request;
	char *bytes;
	int round;
};

/* Begin the next message to or from `peer`. */
static int begin(struct transfer *transfer, int peer, int send)
{
	int size = sizes[transfer->round++ % 5];

	return send ? MPI_Isend(transfer->bytes, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &transfer->request)
		    : MPI_Irecv(transfer->bytes, LONGEST, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
				&transfer->request);
}

int main(int count, char **arguments)
{
	struct transfer transfers[2 * RANKS_MAX];
	double seconds = count > 1 ? atof(arguments[1]) : 1;
	long done = 0, errors = 0;
	int rank, ranks;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < 2 * ranks; i++) {
		transfers[i] = (struct transfer){.bytes = calloc(1, LONGEST)};
		errors += begin(&transfers[i], i / 2, i % 2) != MPI_SUCCESS;
	}
	double until = 0;
	for (long look = 0; until == 0 || MPI_Wtime() < until; look++) {
		struct transfer *transfer = &transfers[look % (2 * ranks)];
		int there = 0;

		if (MPI_Test(&transfer->request, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS)
			errors++;
		else if (there && errors < 1000) {
			errors += begin(transfer, (int)(look % (2 * ranks)) / 2, (int)(look % 2)) !=
				  MPI_SUCCESS;
			if (++done == 100L * ranks) {
				printf("ready\n");
				fflush(stdout);
				until = MPI_Wtime() + seconds;
			}
		}
	}
	printf("rank=%d done=%ld errors=%ld\n", rank, done, errors);
	fflush(stdout);
	/* Not MPI_Finalize(), because that waits for the other ranks, and their messages may be destroyed. */
	_exit(0);
}
