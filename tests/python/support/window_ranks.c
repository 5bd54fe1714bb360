/*
 * Each rank prints the number of ranks that share memory with it, and the value that the first of them wrote.
 */
#include <mpi.h>
#include <stdio.h>

int main(int count, char **arguments)
{
	MPI_Comm node;
	MPI_Win window;
	MPI_Aint bytes;
	int *own;
	int *first;
	int rank;
	int size;
	int unit;

	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &size);
	MPI_Win_allocate_shared(sizeof(*own), sizeof(*own), MPI_INFO_NULL, node, &own, &window);
	*own = rank;
	MPI_Win_fence(0, window);
	MPI_Win_shared_query(window, 0, &bytes, &unit, &first);
	printf("%d shares with %d from %d\n", rank, size, *first);
	MPI_Win_fence(0, window);
	MPI_Win_free(&window);
	MPI_Finalize();
	return 0;
}
