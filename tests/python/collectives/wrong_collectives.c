/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wrong_collectives.c - a library to preload before an MPI, which does one thing wrong, named by WRONG: the
 * program of tests/collectives must notice it.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_wrong(const char *what)
{
	const char *asked = getenv("WRONG");

	return asked != NULL && strcmp(asked, what) == 0;
}

int MPI_Barrier(MPI_Comm comm)
{
	return is_wrong("early") ? MPI_SUCCESS : PMPI_Barrier(comm);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	int result = PMPI_Bcast(buffer, count, type, root, comm), bytes, rank;
	MPI_Aint low, extent, lower, distance;

	MPI_Type_size(type, &bytes);
	MPI_Type_get_extent(type, &lower, &distance);
	MPI_Type_get_true_extent(type, &low, &extent);
	MPI_Comm_rank(comm, &rank);
	/* The byte behind the last element */
	if (is_wrong("beyond") && bytes > 0 && count > 0 && rank != root)
		((char *)buffer)[(count - 1) * distance + low + extent] ^= 1;
	if (is_wrong("value") && bytes > 0 && count > 0 && rank != root)
		((char *)buffer)[low] ^= 1;
	return result;
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	int commutes, is_inter;
	MPI_Comm reversed;

	MPI_Op_commutative(op, &commutes);
	MPI_Comm_test_inter(comm, &is_inter);
	if (is_wrong("order") && !commutes && !is_inter) { /* in the opposite order of the ranks */
		int rank, result;

		MPI_Comm_rank(comm, &rank);
		MPI_Comm_split(comm, 0, -rank, &reversed);
		result = PMPI_Allreduce(in, out, count, type, op, reversed);
		MPI_Comm_free(&reversed);
		return result;
	}
	if (is_wrong("nothing"))
		return MPI_SUCCESS;
	return PMPI_Allreduce(in, out, count, type, op, comm);
}

/* Waits without any progress of messages. */
int MPI_Scan(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	if (is_wrong("idle"))
		for (;;)
			pause();
	return PMPI_Scan(in, out, count, type, op, comm);
}
