/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - windows, an MPI program that checks one-sided operations:
 *
 *   windows steps SEED WINDOWS COUNT   drawn operations on drawn windows, COUNT on each
 *   windows sound SEED WINDOWS COUNT   the same without what Open MPI itself does wrong
 *   windows sums COUNT                 accumulates of all ranks on the same elements
 *   windows threads COUNT THREADS      the same by several threads of each rank
 *   windows mixed COUNT                long accumulates and single elements, on the same elements
 *   windows mixed-threads COUNT THREADS
 *   windows locks COUNT                locks of the program's own, and MPI's
 *   windows order COUNT                the order of stores in epochs of each kind
 *   windows large COUNT                puts and gets of 3 MiB
 *   windows churn COUNT                windows that are made and freed
 *   windows shared COUNT               shared windows: queries, loads and stores, operations
 *   windows halo COUNT                 steps of a stencil whose ranks load from their neighbours' memory
 *   windows refused                    shared windows that cannot be
 *   windows hold FILE FILE             windows until the first file exists, and none until the second does
 *   windows direct                     whether a rank that makes no call sees a put
 *
 * A wrong result ends the program with status 1 and a line that begins with "wrong:". A program that takes
 * longer than 100 seconds does the same with "stuck:". At its end each rank prints "rank N: good".
 */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "concurrent.h"
#include "mixed.h"
#include "shared.h"
#include "steps.h"

static int number(char **arguments, int count, int index)
{
	return index < count ? atoi(arguments[index]) : 1;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	int first = number(arguments, count, 2);
	bool several = strcmp(what, "threads") == 0 || strcmp(what, "mixed-threads") == 0;
	int threads = several ? number(arguments, count, 3) : 1;
	int provided;
	int rank;

	if (threads > 16)
		threads = 16;
	MPI_Init_thread(&count, &arguments, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	signal(SIGALRM, steps_stuck);
	alarm(100);
	if (strcmp(what, "steps") == 0 || strcmp(what, "sound") == 0)
		steps_run((uint64_t)first, number(arguments, count, 3), number(arguments, count, 4),
			  strcmp(what, "sound") == 0);
	else if (strcmp(what, "sums") == 0 || strcmp(what, "threads") == 0)
		concurrent_sums(first, threads);
	else if (strcmp(what, "mixed") == 0 || strcmp(what, "mixed-threads") == 0)
		mixed_sums(first, threads);
	else if (strcmp(what, "locks") == 0)
		concurrent_locks(first);
	else if (strcmp(what, "order") == 0)
		concurrent_order(first);
	else if (strcmp(what, "large") == 0)
		large_moves(first);
	else if (strcmp(what, "churn") == 0)
		windows_churn(first);
	else if (strcmp(what, "shared") == 0)
		shared_run(first);
	else if (strcmp(what, "halo") == 0)
		shared_halo(first);
	else if (strcmp(what, "refused") == 0)
		shared_refused();
	else if (strcmp(what, "hold") == 0 && count > 3)
		windows_hold(arguments[2], arguments[3]);
	else if (strcmp(what, "direct") == 0)
		say_direct();
	else
		wrong("say what to do");
	MPI_Finalize();
	printf("rank %d: good\n", rank);
	return 0;
}
