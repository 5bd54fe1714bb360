/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * placed_ranks.c - prints where each rank is, which ranks share memory with it, and whether windows work.
 *
 * A line of JSON for each rank. With `abort`, rank 1 ends the job with status 7 instead.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

/* The value that the neighbour before this rank puts into its window. */
static int put_around(int rank, int size)
{
	int *own = NULL;
	MPI_Win window;

	MPI_Win_allocate(sizeof(*own), sizeof(*own), MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
	*own = -1;
	MPI_Win_fence(0, window);
	MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window);
	MPI_Win_fence(0, window);
	int found = *own;

	MPI_Win_free(&window);
	return found;
}

/* The sum of the values of all ranks that share memory, each in its own part. */
static int share(MPI_Comm shared)
{
	int *own = NULL;
	MPI_Win window;
	int rank = 0;
	int size = 0;
	int sum = 0;

	MPI_Comm_rank(shared, &rank);
	MPI_Comm_size(shared, &size);
	MPI_Win_allocate_shared(sizeof(*own), sizeof(*own), MPI_INFO_NULL, shared, &own, &window);
	MPI_Win_fence(0, window);
	*own = rank + 1;
	MPI_Win_fence(0, window);
	for (int other = 0; other < size; other++) {
		MPI_Aint bytes = 0;
		int unit = 0;
		int *theirs = NULL;

		MPI_Win_shared_query(window, other, &bytes, &unit, &theirs);
		sum += *theirs;
	}
	MPI_Win_fence(0, window);
	MPI_Win_free(&window);
	return sum;
}

int main(int count, char **arguments)
{
	char node[256] = "";
	int rank = 0;
	int size = 0;
	int together = 0;
	MPI_Comm shared;

	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (count > 1 && strcmp(arguments[1], "abort") == 0) {
		if (rank == 1)
			MPI_Abort(MPI_COMM_WORLD, 7);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
	MPI_Comm_size(shared, &together);
	(void)gethostname(node, sizeof(node) - 1);
	int put = put_around(rank, size);
	int sum = share(shared);

	printf("{\"rank\": %d, \"size\": %d, \"node\": \"%s\", \"together\": %d, \"put\": %d, \"sum\": %d}\n",
	       rank, size, node, together, put, sum);
	MPI_Comm_free(&shared);
	MPI_Finalize();
	return 0;
}
