/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * busy_ranks.c - sends to a rank that computes: busy_ranks DIRECTORY [moving], three ranks or more
 *
 * Rank 1 stays outside MPI until a file is there. Rank 0 creates the file when it has posted all its sends to
 * rank 1, and rank 2 has answered it. Then everything is received and compared. So a send that waits for its
 * receiver hangs, and so does a message to rank 2 that waits for rank 1. At the end rank 0 does the same with
 * sends that return, and goes on to MPI_Finalize().
 *
 * With `moving`, half of the sends are posted when rank 0 creates a file posted-N, and the rest when the test
 * has created moved-N. Meanwhile the test moves all ranks from the region to the network, or back.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 4000, SHORT_MANY = 100000, LAST_MANY = 2000, TAG = 7 };

static int rank;
static const char *directory;
static bool moves;

static const char *file_of(const char *what, int round)
{
	static char name[4096];

	snprintf(name, sizeof(name), "%s/%s-%d", directory, what, round);
	return name;
}

static void make_file(const char *what, int round)
{
	int file = open(file_of(what, round), O_CREAT | O_WRONLY, 0600);

	if (file < 0) {
		perror(file_of(what, round));
		exit(1);
	}
	close(file);
}

static bool is_there(const char *what, int round)
{
	return access(file_of(what, round), F_OK) == 0;
}

static void compute_until_there(int round)
{
	while (!is_there("sent", round))
		usleep(1000);
}

/*
 * Message `number` consists of the bytes of `pool` from its number on: no two consecutive messages are equal.
 */
static unsigned char *fill_pool(size_t bytes)
{
	unsigned char *pool = malloc(bytes);

	for (size_t i = 0; i < bytes; i++)
		pool[i] = (unsigned char)(i % 251 + i / 251);
	return pool;
}

static void receive_all(const unsigned char *pool, int size, int count)
{
	unsigned char *in = malloc((size_t)size + 1);

	for (int i = 0; i < count; i++) {
		MPI_Recv(in, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (memcmp(in, pool + i, (size_t)size) != 0) {
			printf("message %d of %d bytes is wrong\n", i, size);
			exit(1);
		}
	}
	free(in);
}

static void talk_to_third(void)
{
	int number = 41;

	MPI_Send(&number, 1, MPI_INT, 2, TAG, MPI_COMM_WORLD);
	MPI_Recv(&number, 1, MPI_INT, 2, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (number != 42)
		exit(1);
}

static void answer(void)
{
	int number;

	for (;;) {
		MPI_Recv(&number, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (number < 0)
			return;
		number++;
		MPI_Send(&number, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
	}
}

static void post(const unsigned char *from, int size, int count, MPI_Request *requests)
{
	for (int i = 0; i < count; i++)
		MPI_Isend(from + i, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
}

static void play(int round, int size, int count)
{
	unsigned char *pool = fill_pool((size_t)size + (size_t)count);
	MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
	const int end = -1;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		int first = moves ? count / 2 : count;

		post(pool, size, first, requests);
		talk_to_third();
		if (moves) {
			make_file("posted", round);
			while (!is_there("moved", round))
				talk_to_third();
			post(pool + first, size, count - first, requests + first);
			talk_to_third();
		}
		MPI_Send(&end, 1, MPI_INT, 2, TAG, MPI_COMM_WORLD);
		make_file("sent", round);
		MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	} else if (rank == 1) {
		compute_until_there(round);
		receive_all(pool, size, count);
	} else if (rank == 2) {
		answer();
	}
	free(requests);
	free(pool);
}

int main(int argc, char **argv)
{
	static const int sizes[] = {0, 8, 100, 400, 1000, 4000, 16000, 100000};
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	directory = argv[1];
	moves = argc > 2;
	for (int i = 0; i < SIZES; i++)
		play(i, sizes[i], MANY);
	if (moves) {
		MPI_Finalize();
		printf("rank %d: good\n", rank);
		return 0;
	}
	play(SIZES, 8, SHORT_MANY);
	/* Sent messages arrive, whatever their sender does next. */
	unsigned char *pool = fill_pool(8 + LAST_MANY);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		for (int i = 0; i < LAST_MANY; i++)
			MPI_Send(pool + i, 8, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
		make_file("sent", SIZES + 1);
	} else if (rank == 1) {
		compute_until_there(SIZES + 1);
		receive_all(pool, 8, LAST_MANY);
	}
	MPI_Finalize();
	printf("rank %d: good\n", rank);
	return 0;
}
