/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROGRAMS_REFUSE_H
#define PROGRAMS_REFUSE_H

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Ends the job, with status 2, for a reason that every rank sees: wrong arguments, a wrong
 * number of ranks. Rank 0 says it in one line. All ranks finish in order, since after
 * MPI_Abort MPICH's mpiexec may end before it has passed on what a rank printed.
 */
__attribute__((noreturn, format(printf, 1, 2))) static inline void refuse(const char *format, ...)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0) {
		va_list arguments;

		va_start(arguments, format);
		vfprintf(stderr, format, arguments);
		va_end(arguments);
	}
	MPI_Finalize();
	exit(2);
}

#endif
