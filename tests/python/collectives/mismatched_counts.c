/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mismatched_counts.c - collective operations in which ranks disagree about the length of a block.
 *
 * Rank 0 sends `sent` bytes to rank 1, or rank 1 to rank 0 in a gather, and the receiver expects `room`
 * bytes. In operations whose ranks all have all counts, only rank 1 expects `room`. Each rank writes a line
 * for each case, which says whether the operation succeeded. After a wrong length that only one rank can
 * notice, the communicator is used again.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 100000, RANKS = 3 };

static char from[RANKS * MOST], to[RANKS * MOST];
static int rank;

static const char *const names[] = {"gatherv",   "scatterv",   "alltoallv",
				    "alltoallw", "allgatherv", "reduce_scatter"};

/* Counts of which all are 8 but the one of rank `other`. */
static void fill(int *counts, int *places, int other, int count)
{
	for (int i = 0; i < RANKS; i++) {
		counts[i] = i == other ? count : 8;
		places[i] = i * MOST;
	}
}

static int call(const char *name, MPI_Comm comm, int sent, int room)
{
	int counts[2][RANKS], places[2][RANKS], none = -1;
	MPI_Datatype types[RANKS] = {MPI_BYTE, MPI_BYTE, MPI_BYTE};

	if (strcmp(name, "gatherv") == 0) {
		fill(counts[1], places[1], 1, room);
		return MPI_Gatherv(from, rank == 1 ? sent : 8, MPI_BYTE, to, counts[1], places[1], MPI_BYTE,
				   0, comm);
	}
	if (strcmp(name, "scatterv") == 0) {
		fill(counts[0], places[0], 1, sent);
		return MPI_Scatterv(from, counts[0], places[0], MPI_BYTE, to, rank == 1 ? room : 8, MPI_BYTE,
				    0, comm);
	}
	if (strcmp(name, "allgatherv") == 0) {
		fill(counts[1], places[1], 0, rank == 1 ? room : sent);
		return MPI_Allgatherv(from, rank == 0 ? sent : 8, MPI_BYTE, to, counts[1], places[1],
				      MPI_BYTE, comm);
	}
	if (strcmp(name, "reduce_scatter") == 0) {
		fill(counts[1], places[1], 0, rank == 1 ? room : sent);
		return MPI_Reduce_scatter(from, to, counts[1], MPI_SIGNED_CHAR, MPI_SUM, comm);
	}
	fill(counts[0], places[0], rank == 0 ? 1 : none, sent);
	fill(counts[1], places[1], rank == 1 ? 0 : none, room);
	if (strcmp(name, "alltoallv") == 0)
		return MPI_Alltoallv(from, counts[0], places[0], MPI_BYTE, to, counts[1], places[1], MPI_BYTE,
				     comm);
	return MPI_Alltoallw(from, counts[0], places[0], types, to, counts[1], places[1], types, comm);
}

int main(int argc, char **argv)
{
	static const int lengths[][2] = {{16, 8},   {8, 16},   {0, 8},      {8, 0},
					 {3000, 8}, {8, 3000}, {3000, 2500}};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
			MPI_Comm comm;
			int sent = lengths[j][0], room = lengths[j][1], good;

			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
			MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
			for (int k = 0; k < 3; k++)
				call(names[i], comm, 8, 8);
			good = call(names[i], comm, sent, room) == MPI_SUCCESS;
			printf("%s %d %d rank %d: %s\n", names[i], sent, room, rank, good ? "done" : "error");
			fflush(stdout);
			if (i < 4 && call(names[i], comm, 8, 8) != MPI_SUCCESS)
				printf("%s %d %d rank %d: broken\n", names[i], sent, room, rank);
			MPI_Barrier(MPI_COMM_WORLD);
			MPI_Comm_free(&comm);
		}
	printf("rank %d: good\n", rank);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
