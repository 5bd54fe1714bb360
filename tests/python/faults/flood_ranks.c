/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flood_ranks.c - rank 0 sends more messages than rank 1 keeps without receives, while rank 1 talks to
 * rank 2. Then rank 1 receives them all, and checks their order. The first argument is a directory for a file
 * with which rank 0 says that it has sent everything.
 */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/*
 * With VICINAL_UNEXPECTED=16K a rank keeps 8 Ki messages of one peer, and at most 16 Ki more that were sent
 * before the peer is paused.
 */
#define COUNT 60000
#define FLOOD 1
#define TALK 2

static void flood(void)
{
	for (uint64_t number = 0; number < COUNT; number++)
		MPI_Send(&number, 1, MPI_UINT64_T, 1, FLOOD, MPI_COMM_WORLD);
}

static void talk_until_there(const char *file)
{
	int goes_on = 1;

	while (goes_on) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		goes_on = access(file, F_OK) != 0;
		MPI_Send(&goes_on, 1, MPI_INT, 1, TALK, MPI_COMM_WORLD);
		MPI_Recv(&goes_on, 1, MPI_INT, 1, TALK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void answer_then_receive(void)
{
	uint64_t number = 0;

	for (int goes_on = 1; goes_on;) {
		/* Each look makes progress, which takes in what rank 0 sends. */
		for (int there = 0; !there;)
			MPI_Iprobe(2, TALK, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
		MPI_Recv(&goes_on, 1, MPI_INT, 2, TALK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(&goes_on, 1, MPI_INT, 2, TALK, MPI_COMM_WORLD);
	}
	for (uint64_t expected = 0; expected < COUNT; expected++) {
		MPI_Recv(&number, 1, MPI_UINT64_T, 0, FLOOD, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (number != expected) {
			printf("message %llu came instead of %llu\n", (unsigned long long)number,
			       (unsigned long long)expected);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

int main(int argc, char **argv)
{
	int rank = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc < 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	if (rank == 0)
		flood();
	else if (rank == 1)
		answer_then_receive();
	else
		talk_until_there(argv[1]);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("rank %d: good\n", rank);
	MPI_Finalize();
	return 0;
}
