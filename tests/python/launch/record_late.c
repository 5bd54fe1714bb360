/* SPDX-License-Identifier: BSD-3-Clause */
/* A library to preload, between a program and its MPI: every so many barriers take longer. */
#include <mpi.h>
#include <unistd.h>

#define EVERY 20
#define LATE_MICROSECONDS 5000

int MPI_Barrier(MPI_Comm communicator)
{
	static int calls;

	if (++calls % EVERY == 0)
		usleep(LATE_MICROSECONDS);
	return PMPI_Barrier(communicator);
}
