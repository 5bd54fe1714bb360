/* Spawns two processes and prints their number: `vicinal run` gives a job no slots for them. */
#include <mpi.h>
#include <stdio.h>

int main(int count, char **arguments)
{
	MPI_Comm parent;
	MPI_Comm others;
	int rank;
	int size = 0;

	MPI_Init(&count, &arguments);
	MPI_Comm_get_parent(&parent);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (parent == MPI_COMM_NULL) {
		MPI_Comm_spawn(arguments[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others,
			       MPI_ERRCODES_IGNORE);
		MPI_Comm_remote_size(others, &size);
		if (rank == 0)
			printf("spawned %d\n", size);
	} else {
		others = parent;
	}
	MPI_Comm_disconnect(&others);
	MPI_Finalize();
	return 0;
}
