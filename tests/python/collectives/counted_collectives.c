/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counted_collectives - a known number of collectives and of one-sided operations, which `vicinal run
 * --paths` must show. With the argument "threads", a second thread does as many on a communicator of its own.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { REDUCTIONS = 100, BROADCASTS = 50, PUTS = 30 };

static int rank;

static void *collectives(void *context)
{
	MPI_Comm *comm = context;
	double value = rank;
	double sum = 0;
	char line[40] = "";

	for (int i = 0; i < REDUCTIONS; i++)
		(void)MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, *comm);
	for (int i = 0; i < BROADCASTS; i++)
		(void)MPI_Bcast(line, sizeof(line), MPI_BYTE, 0, *comm);
	return NULL;
}

static void one_sided(void)
{
	MPI_Win win;
	int *memory = NULL;
	int value = rank;
	int size = 0;

	(void)MPI_Comm_size(MPI_COMM_WORLD, &size);
	(void)MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	(void)MPI_Win_lock_all(0, win);
	for (int i = 0; i < PUTS; i++)
		(void)MPI_Put(&value, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
	(void)MPI_Win_unlock_all(win);
	(void)MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	int provided = 0;
	int threads = argc > 1 && strcmp(argv[1], "threads") == 0;
	MPI_Comm other;
	MPI_Comm world = MPI_COMM_WORLD;
	pthread_t thread;

	(void)MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_dup(MPI_COMM_WORLD, &other);
	if (threads &&
	    (provided < MPI_THREAD_MULTIPLE || pthread_create(&thread, NULL, collectives, &other) != 0))
		return 1;
	(void)collectives(&world);
	if (threads)
		(void)pthread_join(thread, NULL);
	one_sided();
	(void)MPI_Comm_free(&other);
	return MPI_Finalize();
}
