/* SPDX-License-Identifier: BSD-3-Clause */
/* A library to preload between a program and its MPI: a send takes at least some milliseconds. */
#include <mpi.h>
#include <unistd.h>

#define SLOW_MICROSECONDS 20000

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int target, int tag, MPI_Comm communicator)
{
	usleep(SLOW_MICROSECONDS);
	return PMPI_Send(buffer, count, type, target, tag, communicator);
}
