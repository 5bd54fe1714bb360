/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pairs - makes chosen pairs of ranks communicate, so that their memory use can be read.
 *
 * `neighbours`: every rank exchanges small messages with the next and the previous rank. `all`:
 * with every other rank. `none`: no messages except those of MPI_Init and MPI_Finalize. The program
 * measures nothing itself: another program reads the contents of the region afterwards.
 *
 *     mpiexec -n 8 pairs neighbours|all|none
 */
#include "measure.h"

#define ROUNDS 100
#define BYTES 8

static void exchange(int rank, int ranks, int distance)
{
	char sent[BYTES] = "talking", received[BYTES];
	int to = (rank + distance) % ranks, from = (rank - distance + ranks) % ranks;

	for (int i = 0; i < ROUNDS; i++)
		MPI_Sendrecv(sent, BYTES, MPI_CHAR, to, 1, received, BYTES, MPI_CHAR, from, 1, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	const char *who = argc == 2 ? argv[1] : "";
	int rank, ranks, nearest, farthest;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	nearest = 1;
	farthest = ranks - 1;
	if (strcmp(who, "none") == 0) {
		farthest = 0;
	} else if (strcmp(who, "neighbours") != 0 && strcmp(who, "all") != 0) {
		refuse("pairs: error: no valid choice of pairs: use pairs neighbours|all|none\n");
	}
	for (int distance = nearest; distance <= farthest; distance++)
		if (strcmp(who, "all") == 0 || distance == nearest || distance == ranks - 1)
			exchange(rank, ranks, distance);
	if (rank == 0)
		printf("{\"program\": \"pairs\", \"ranks\": %d, \"talking\": \"%s\"}\n", ranks, who);
	MPI_Finalize();
	return 0;
}
