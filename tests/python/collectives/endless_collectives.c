/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endless_collectives.c - collective operations until a file appears, each with a checked result.
 *
 *   endless_collectives FILE [errors | mismatch]
 *
 * A broadcast at the end of each round says whether rank 0 saw the file. Rank 0 writes a line after 100
 * rounds and each 1000 more, and at the end the number of rounds. With `errors`, an error ends a rank with
 * status 3 instead of the whole job, and results are not checked. With `mismatch`, rank 1 calls a barrier
 * where the others reduce.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int checks = 1;
static int mismatch;

static void expect(int right, const char *what, long round)
{
	if (!right && checks) {
		fprintf(stderr, "wrong: %s in round %ld\n", what, round);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static int succeeded(int result)
{
	return result == MPI_SUCCESS;
}

/* The collectives with a count for each rank. Block i has i + 1 elements, or many now and then. */
static int vary(long round, int rank, int size)
{
	enum { RANKS = 8, MOST = 3000 };
	static long from[RANKS * MOST], to[RANKS * MOST];
	int counts[RANKS], places[RANKS], end = 0, root = (int)(round % size), good = 1;
	int same[RANKS], same_places[RANKS];

	for (int i = 0; i < size; i++) {
		counts[i] = round % 16 == 1 ? MOST - i : i + 1;
		places[i] = end;
		end += counts[i];
	}
	for (int i = 0; i < size; i++) {
		same[i] = counts[rank];
		same_places[i] = i * counts[rank];
	}
	for (int i = 0; i < RANKS * MOST; i++)
		from[i] = round + rank;
	good &= succeeded(
		MPI_Allgatherv(from, counts[rank], MPI_LONG, to, counts, places, MPI_LONG, MPI_COMM_WORLD));
	for (int i = 0; i < size; i++)
		expect(to[places[i]] == round + i && to[places[i] + counts[i] - 1] == round + i, "allgatherv",
		       round);
	good &= succeeded(MPI_Gatherv(from, counts[rank], MPI_LONG, to, counts, places, MPI_LONG, root,
				      MPI_COMM_WORLD));
	expect(rank != root || to[places[size - 1]] == round + size - 1, "gatherv", round);
	good &= succeeded(MPI_Scatterv(from, counts, places, MPI_LONG, to, counts[rank], MPI_LONG, root,
				       MPI_COMM_WORLD));
	expect(to[counts[rank] - 1] == round + root, "scatterv", round);
	good &= succeeded(MPI_Alltoallv(from, counts, places, MPI_LONG, to, same, same_places, MPI_LONG,
					MPI_COMM_WORLD));
	for (int i = 0; i < size; i++)
		expect(to[same_places[i] + same[i] - 1] == round + i, "alltoallv", round);
	good &= succeeded(MPI_Reduce_scatter(from, to, counts, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
	expect(to[counts[rank] - 1] == size * round + size * (size - 1) / 2, "reduce_scatter", round);
	return good;
}

int main(int argc, char **argv)
{
	static double many[10000], sums[10000];
	int rank, size, go_on = 1, result = 0;
	long round = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc > 2 && strcmp(argv[2], "errors") == 0) {
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
		checks = 0;
	}
	mismatch = argc > 2 && strcmp(argv[2], "mismatch") == 0 && rank == 1;
	for (; go_on; round++) {
		long own = round * 31 + rank, sum = 0, from = rank == round % size ? round : -1;
		int count = round % 16 == 0 ? 10000 : 3;
		if (mismatch && round == 150)
			MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			many[i] = (double)(round % 1000 + rank + i);
		if (round % 4 == 1 && !vary(round, rank, size))
			result = 3;
		if (!succeeded(MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD)) ||
		    !succeeded(MPI_Allreduce(many, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD)) ||
		    !succeeded(MPI_Bcast(&from, 1, MPI_LONG, (int)(round % size), MPI_COMM_WORLD)))
			result = 3;
		expect(sum == round * 31 * size + size * (size - 1) / 2, "sum", round);
		expect(sums[count - 1] == (double)(size * (round % 1000 + count - 1) + size * (size - 1) / 2),
		       "sum of many", round);
		expect(from == round, "broadcast", round);
		if (rank == 0 && round % 1000 == 100) {
			printf("running\n");
			fflush(stdout);
		}
		go_on = access(argv[1], F_OK) != 0;
		if (result == 0 && !succeeded(MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD)))
			result = 3;
		if (result != 0)
			_exit(result);
	}
	if (rank == 0)
		printf("%ld rounds\n", round);
	MPI_Finalize();
	return result;
}
