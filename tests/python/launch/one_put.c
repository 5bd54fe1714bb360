/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * one_put FILE - rank 0 puts once into a window of rank 1, says so, and puts once more when the file exists.
 * Between the two it calls no function of MPI.
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

/* The provider publishes its counts meanwhile. */
static void make_progress(void)
{
	int flag = 0;

	for (int i = 0; i < 300; i++) {
		(void)MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
		(void)usleep(1000);
	}
}

int main(int argc, char **argv)
{
	int rank = 0;
	int value = 1;
	int *memory = NULL;
	MPI_Win win;

	(void)MPI_Init(&argc, &argv);
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	(void)MPI_Win_lock_all(0, win);
	for (int put = 0; rank == 0 && put < 2; put++) {
		while (put > 0 && access(argv[1], F_OK) != 0)
			(void)usleep(1000);
		(void)MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
		make_progress();
		printf("put %d\n", put);
		(void)fflush(stdout);
	}
	(void)MPI_Win_unlock_all(win);
	(void)MPI_Win_free(&win);
	return MPI_Finalize();
}
