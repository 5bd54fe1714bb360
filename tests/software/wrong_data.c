/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wrong_data - sends wrong data now and then, to test that the programs' checks find it.
 *
 * A library to preload between a program and MPI's functions that send. It flips one bit in the middle of
 * every WRONG_DATA_EVERYth message of at least WRONG_DATA_LEAST bytes that rank 1 sends: bit 46 of a 64-bit
 * word, which changes a double by about a hundredth.
 */
#include <stdint.h>
#include <stdlib.h>

#include <mpi.h>

#define WRONG_BIT (UINT64_C(1) << 46)

static long setting(const char *name)
{
	const char *text = getenv(name);

	return text != NULL ? strtol(text, NULL, 10) : 0;
}

static void spoil(const void *data, long count, MPI_Datatype type)
{
	static long every, least, sent;
	static int rank = -1;
	MPI_Aint start, extent;
	int size;

	if (rank < 0) {
		PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
		every = setting("WRONG_DATA_EVERY");
		least = setting("WRONG_DATA_LEAST");
	}
	PMPI_Type_size(type, &size);
	PMPI_Type_get_extent(type, &start, &extent);
	/* Gaps, and other data that is not plain memory, stay as they are. */
	if (rank != 1 || data == MPI_BOTTOM || data == MPI_IN_PLACE || start != 0 || extent != size)
		return;
	if (count * size < least || every == 0 || ++sent % every != 0)
		return;
	((uint64_t *)data)[count * size / 16] ^= WRONG_BIT;
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm)
{
	spoil(data, count, type);
	return PMPI_Send(data, count, type, peer, tag, comm);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
	      MPI_Request *request)
{
	spoil(data, count, type);
	return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Sendrecv(const void *data, int count, MPI_Datatype type, int peer, int tag, void *received,
		 int received_count, MPI_Datatype received_type, int source, int received_tag, MPI_Comm comm,
		 MPI_Status *status)
{
	spoil(data, count, type);
	return PMPI_Sendrecv(data, count, type, peer, tag, received, received_count, received_type, source,
			     received_tag, comm, status);
}

int MPI_Alltoall(const void *data, int count, MPI_Datatype type, void *received, int received_count,
		 MPI_Datatype received_type, MPI_Comm comm)
{
	spoil(data, count, type);
	return PMPI_Alltoall(data, count, type, received, received_count, received_type, comm);
}

int MPI_Put(const void *data, int count, MPI_Datatype type, int peer, MPI_Aint target, int target_count,
	    MPI_Datatype target_type, MPI_Win window)
{
	spoil(data, count, type);
	return PMPI_Put(data, count, type, peer, target, target_count, target_type, window);
}
