/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROGRAMS_REFUSE_H
#define PROGRAMS_REFUSE_H

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Ends the job with status 2 for an error that every rank detects: wrong arguments, or a wrong
 * number of ranks. Rank 0 prints one line. All ranks finish normally, because after MPI_Abort
 * MPICH's mpiexec may end before it has forwarded a rank's output.
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
