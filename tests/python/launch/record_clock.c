/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to preload between a program, its MPI and the C library: a clock that moves on only with calls,
 * so that the recorded times follow from the calls.
 *
 * The recorder's clock (CLOCK_MONOTONIC_RAW) moves on by READ_NANOSECONDS at each read, and by
 * LATE_NANOSECONDS at every twentieth barrier. MPI_Wtime moves on by a millisecond with each MPI_Send.
 * MPI_COMM_WORLD has PRETENDED_RANKS ranks, if that is set.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

#define EVERY 20
#define LATE_NANOSECONDS 5000000
#define READ_NANOSECONDS 100
#define SEND_SECONDS 0.001
#define BILLION 1000000000

static long long raw;
static double wall = 1;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);

	if (clock == CLOCK_MONOTONIC_RAW) {
		raw += READ_NANOSECONDS;
		*now = (struct timespec){raw / BILLION, raw % BILLION};
		return 0;
	}
	if (real == NULL)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	return real(clock, now);
}

double MPI_Wtime(void)
{
	return wall;
}

int MPI_Barrier(MPI_Comm communicator)
{
	static int calls;

	if (++calls % EVERY == 0)
		raw += LATE_NANOSECONDS;
	return PMPI_Barrier(communicator);
}

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int target, int tag, MPI_Comm communicator)
{
	wall += SEND_SECONDS;
	return PMPI_Send(buffer, count, type, target, tag, communicator);
}

int MPI_Comm_size(MPI_Comm communicator, int *size)
{
	const char *pretended = getenv("PRETENDED_RANKS");
	int status = PMPI_Comm_size(communicator, size);

	if (pretended != NULL)
		*size = (int)strtol(pretended, NULL, 10);
	return status;
}
