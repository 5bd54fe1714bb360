/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program in the tests of `vicinal run`. Its first argument chooses what the ranks do:
 *
 *   report      exchange messages with the neighbours, check them, print where each rank is
 *   exit N      end with status N
 *   wait        print "ready", then wait for a message that nobody sends
 *   late        rank 0 joins, the others never call MPI_Init
 *   echo        rank 0 copies standard input to standard output, "errors" to standard error
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20, ROUNDS = 20 };

static unsigned char expected(int rank, int round, int offset)
{
	return (unsigned char)(rank * 31 + round * 7 + offset);
}

/* Pass blocks of all sizes around the ring; returns the number of wrong bytes. */
static int exchange(int rank, int ranks)
{
	unsigned char *out = malloc(SIZE), *in = malloc(SIZE);
	int wrong = 0, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

	for (int round = 0; round <= ROUNDS; round++) {
		int size = 1 << round;

		for (int i = 0; i < size; i++)
			out[i] = expected(rank, round, i);
		memset(in, 0, SIZE);
		MPI_Sendrecv(out, size, MPI_BYTE, to, round, in, size, MPI_BYTE, from, round, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		for (int i = 0; i < size; i++)
			wrong += in[i] != expected(from, round, i);
	}
	free(out);
	free(in);
	return wrong;
}

static int report(int rank, int ranks)
{
	char host[256] = "";
	int wrong = exchange(rank, ranks), sum = 0;

	gethostname(host, sizeof(host) - 1);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	cpu_set_t cpus;
	sched_getaffinity(0, sizeof(cpus), &cpus);
	printf("rank=%d ranks=%d host=%s pid=%d sum=%d wrong=%d cpus=%d\n", rank, ranks, host, getpid(), sum,
	       wrong, CPU_COUNT(&cpus));
	return wrong != 0;
}

static int echo(void)
{
	int c;

	while ((c = getchar()) != EOF)
		putchar(c);
	fputs("errors\n", stderr);
	return 0;
}

static int wait_for_ever(int rank)
{
	int nothing = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		puts("ready");
		fflush(stdout);
	}
	MPI_Recv(&nothing, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return 0;
}

static int launcher_rank(void)
{
	const char *text = getenv("PMI_RANK");

	if (!text)
		text = getenv("PMIX_RANK");
	return text ? atoi(text) : 0;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "report";
	int rank, ranks, status = 0;

	if (!strcmp(what, "late") && launcher_rank() != 0)
		for (;;)
			pause();
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!strcmp(what, "report"))
		status = report(rank, ranks);
	else if (!strcmp(what, "exit"))
		status = atoi(arguments[2]);
	else if (!strcmp(what, "wait"))
		status = wait_for_ever(rank);
	else if (!strcmp(what, "echo") && rank == 0)
		status = echo();
	MPI_Finalize();
	return status;
}
