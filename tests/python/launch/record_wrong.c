/* SPDX-License-Identifier: BSD-3-Clause */
/* A library to preload between a program and its MPI: one byte of each put and broadcast is wrong. */
#include <mpi.h>
#include <stdint.h>

#define WRONG_BYTE 3

int MPI_Put(const void *from, int count, MPI_Datatype type, int target, MPI_Aint at, int target_count,
	    MPI_Datatype target_type, MPI_Win window)
{
	((char *)(uintptr_t)from)[WRONG_BYTE] ^= 1;
	return PMPI_Put(from, count, type, target, at, target_count, target_type, window);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm communicator)
{
	int status = PMPI_Bcast(buffer, count, type, root, communicator);

	if (count > WRONG_BYTE)
		((char *)buffer)[WRONG_BYTE] ^= 1;
	return status;
}
