/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_wrong_byte - makes an MPI deliver one wrong byte, to test that `verify` finds it.
 *
 * A library to preload between the program and MPI_Recv. It flips one bit in the middle of each received
 * message of 1000 bytes.
 */
#include <mpi.h>

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm communicator,
	     MPI_Status *status)
{
	int result = PMPI_Recv(buffer, count, type, source, tag, communicator, status);

	if (count == 1000)
		((unsigned char *)buffer)[500] ^= 1;
	return result;
}
