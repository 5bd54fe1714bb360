/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sessions.c - what an MPI library that ends and begins again makes of collectives through the region.
 *
 *   sessions sessions COUNT   COUNT sessions one after the other, with collectives in each
 *   sessions stay FILE        MPI_Finalize(), and then wait for the file
 *
 * Each rank prints "rank N: good" at its end.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int collectives(MPI_Comm comm)
{
	int rank, size;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	for (int i = 0; i < 300; i++) {
		int own = rank + i, sum = 0;
		MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
		MPI_Bcast(&own, 1, MPI_INT, i % size, comm);
		if (sum != size * i + size * (size - 1) / 2 || own != i % size + i) {
			fprintf(stderr, "wrong: round %d: %d, %d\n", i, sum, own);
			exit(1);
		}
	}
	return rank;
}

static int one_session(void)
{
	MPI_Session session;
	MPI_Group group;
	MPI_Comm comm;

	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "collectives", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	int rank = collectives(comm);
	MPI_Group_free(&group);
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
	return rank;
}

int main(int argc, char **argv)
{
	int rank = 0;

	if (argc != 3)
		return 2;
	if (strcmp(argv[1], "sessions") == 0) {
		for (int i = 0; i < atoi(argv[2]); i++)
			rank = one_session();
	} else {
		MPI_Init(NULL, NULL);
		rank = collectives(MPI_COMM_WORLD);
		MPI_Finalize();
		printf("finalized\n");
		fflush(stdout);
		while (access(argv[2], F_OK) != 0)
			usleep(10000);
	}
	printf("rank %d: good\n", rank);
	return 0;
}
