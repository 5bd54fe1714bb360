/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * whoami - each rank reports who and where it is in one JSON line, which rank 0 receives in a message
 * and prints.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char mine[512], host[256] = "";
	int rank, ranks;
	const char *region = getenv("VICINAL_REGION"), *timeout = getenv("VICINAL_PEER_TIMEOUT");

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	gethostname(host, sizeof(host) - 1);
	snprintf(mine, sizeof(mine),
		 "{\"rank\": %d, \"user\": %u, \"host\": \"%s\", \"region\": \"%s\", \"timeout\": \"%s\"}",
		 rank, (unsigned)getuid(), host, region ? region : "unset", timeout ? timeout : "unset");
	if (rank != 0) {
		MPI_Send(mine, sizeof(mine), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
	} else {
		puts(mine);
		for (int other = 1; other < ranks; other++) {
			MPI_Recv(mine, sizeof(mine), MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			puts(mine);
		}
	}
	MPI_Finalize();
	return 0;
}
