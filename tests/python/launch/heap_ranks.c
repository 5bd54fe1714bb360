/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heap_ranks SECONDS - allocate, send, receive and free blocks of all sizes until the time is over, and count
 * the blocks with wrong bytes.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 8, KEPT = 6, LONGEST = 600000 };

static unsigned random_state = 1;

static unsigned below(unsigned limit)
{
	random_state = random_state * 1103515245 + 12345;
	return random_state / 65536 % limit;
}

/* Pass a block to the right neighbour and receive one from the left. Their size depends on `round`. */
static int pass_on(int rank, int ranks, int round)
{
	size_t size = 1 + (size_t)round * 7919 % LONGEST;
	unsigned char *out = malloc(size), *in = calloc(1, size);
	int from = (rank + ranks - 1) % ranks, wrong = 0;

	for (size_t i = 0; i < size; i++)
		wrong |= in[i] != 0;
	memset(out, rank + round, size);
	MPI_Sendrecv(out, (int)size, MPI_BYTE, (rank + 1) % ranks, 1, in, (int)size, MPI_BYTE, from, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (size_t i = 0; i < size; i++)
		wrong |= in[i] != (unsigned char)(from + round);
	free(out);
	free(in);
	return wrong;
}

int main(int count, char **arguments)
{
	double seconds = count > 1 ? atof(arguments[1]) : 1;
	unsigned char *kept[KEPT] = {0};
	int rank, ranks, rounds = 0, spoilt = 0, go_on = 1;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	random_state += (unsigned)rank;
	double until = MPI_Wtime() + seconds;
	while (go_on) {
		/* Blocks that stay for some rounds, grow and shrink. */
		unsigned char **slot = &kept[below(KEPT)];
		if (below(3) == 0) {
			free(*slot);
			*slot = NULL;
		} else {
			size_t bytes = 1 + below(32768) * 20;
			*slot = realloc(*slot, bytes);
			if (*slot == NULL)
				return 2;
			memset(*slot, 1, bytes);
		}
		spoilt += pass_on(rank, ranks, rounds);
		rounds++;
		/* Rank 0 has the clock. */
		go_on = rank != 0 || MPI_Wtime() < until;
		MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	printf("rank=%d spoilt=%d rounds=%d\n", rank, spoilt, rounds);
	MPI_Finalize();
	for (int i = 0; i < KEPT; i++)
		free(kept[i]);
	return 0;
}
