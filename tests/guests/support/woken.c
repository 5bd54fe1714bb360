/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * woken.c ROUNDS MILLISECONDS - rank 1 waits in MPI_Recv, each time for a message that rank 0 sends only
 * after MILLISECONDS. Rank 1 counts the interrupts of its guest's doorbell meanwhile, and prints them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Interrupts of the device so far, as the guest's kernel counts them. */
static long interrupts(void)
{
	char line[4096];
	long sum = 0;
	FILE *file = fopen("/proc/interrupts", "r");

	if (file == NULL)
		return -1;
	while (fgets(line, sizeof line, file) != NULL)
		if (strstr(line, "vfio-msix") != NULL)
			sum += strtol(strchr(line, ':') + 1, NULL, 10); /* there is one processor */
	(void)fclose(file);
	return sum;
}

int main(int argc, char **argv)
{
	int rank, number = 0, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	const int rounds = atoi(argv[1]), milliseconds = atoi(argv[2]);
	const struct timespec gap = {milliseconds / 1000, milliseconds % 1000 * 1000000L};

	MPI_Barrier(MPI_COMM_WORLD);
	const long before = interrupts();
	for (int round = 0; round < rounds; round++) {
		if (rank == 0) {
			(void)nanosleep(&gap, NULL);
			MPI_Send(&round, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
		} else {
			MPI_Recv(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			wrong += number != round;
		}
	}
	if (rank == 1)
		printf("{\"interrupts\": %ld, \"wrong\": %d}\n", interrupts() - before, wrong);
	MPI_Finalize();
	return 0;
}
