/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * death_ranks.c - an MPI program in which a rank dies: death_ranks RANK MILLISECONDS
 *
 * All ranks pass checked blocks around, and RANK kills itself MILLISECONDS after the first round. With a RANK
 * of -1 none does, and the program ends after some rounds. A rank that gets an error from MPI prints "rank N:
 * error" and ends with status 7.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONGEST = 300000, ROUNDS = 200 };

static void die(int number)
{
	(void)number;
	kill(getpid(), SIGKILL);
}

static void kill_later(int milliseconds)
{
	struct itimerval timer = {.it_value = {milliseconds / 1000, (milliseconds % 1000 + 1) * 1000}};

	signal(SIGALRM, die);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void check(int result, int rank)
{
	if (result == MPI_SUCCESS)
		return;
	fprintf(stderr, "rank %d: error\n", rank);
	fflush(stderr);
	_exit(7); /* not MPI_Abort(): each rank must detect the death itself */
}

static int length_of(int round)
{
	static const int lengths[] = {8, 40, 400, 4000, 40000, LONGEST};

	return lengths[round % 6];
}

int main(int argc, char **argv)
{
	static unsigned char out[LONGEST], in[LONGEST];
	int rank, ranks, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	int victim = atoi(argv[1]);

	for (int round = 0; victim >= 0 || round < ROUNDS; round++) {
		int length = length_of(round), from = (rank + ranks - 1) % ranks, sum = 0;

		memset(out, rank + round, (size_t)length);
		check(MPI_Sendrecv(out, length, MPI_BYTE, (rank + 1) % ranks, round % 100, in, length,
				   MPI_BYTE, from, round % 100, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
		      rank);
		for (int i = 0; i < length; i++)
			wrong += in[i] != (unsigned char)(from + round);
		check(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), rank);
		wrong += sum != ranks * (ranks - 1) / 2;
		if (wrong != 0) {
			fprintf(stderr, "rank %d: wrong\n", rank);
			_exit(8);
		}
		if (round == 0 && rank == victim)
			kill_later(atoi(argv[2]));
	}
	printf("rank %d: good\n", rank);
	MPI_Finalize();
	return 0;
}
