/* SPDX-License-Identifier: BSD-3-Clause */
/* entry.h - how a function of MPI is defined by what the region does, and by the MPI library's function. */
#ifndef VICINAL_COLLECTIVES_ENTRY_H
#define VICINAL_COLLECTIVES_ENTRY_H

#include <limits.h>

#include "collectives/movement.h"

/* The communicator, if its collectives go through the region. */
static inline struct communicator *find(handle comm, bool reduces)
{
	mpi_look_up();
	return collectives_are_off() ? NULL : communicator_find(handle_of(comm), reduces);
}

typedef int64_t large;

/* The number is the same in all three interfaces. */
enum { ERROR_COUNT = 2 };

static inline int refuse_count(handle comm)
{
	(void)MPI_CALL(Comm_call_errhandler, handle, int)(handle_of(comm), ERROR_COUNT);
	return ERROR_COUNT;
}

/*
 * Defines both names of a function. `parameters` and `arguments` are lists in parentheses, `does` is what the
 * region does with the communicator `c`, and `lacking` is the result if the MPI library has no such function:
 * a program that looks for a form with large counts finds it here then, too.
 */
#define UNWRAP(...) __VA_ARGS__
#define DEFINE(name, reduces, parameters, arguments, does, lacking) \
	typedef int name##_function(UNWRAP parameters); \
	static int name##_here(UNWRAP parameters) \
	{ \
		struct communicator *c = find(comm, reduces); \
		if (c != NULL && communicator_enter(c)) { \
			enum outcome outcome = c->state == COMMUNICATOR_BROKEN ? OUTCOME_FAILED : (does); \
			communicator_leave(c); \
			if (__builtin_expect(outcome == OUTCOME_DONE, 1)) { \
				count_more(COUNTED_COLLECTIVES, 1); \
				return MPI_OK; \
			} \
			if (outcome == OUTCOME_FAILED) \
				return communicator_fail(c); \
		} \
		mpi_function real = mpi.functions[FUNCTION_##name]; \
		return __builtin_expect(real != NULL, 1) ? ((name##_function *)real)(UNWRAP arguments) \
							 : (lacking); \
	} \
	VISIBLE int PMPI_##name(UNWRAP parameters); \
	int PMPI_##name(UNWRAP parameters) \
	{ \
		return name##_here(UNWRAP arguments); \
	} \
	VISIBLE int MPI_##name(UNWRAP parameters); \
	int MPI_##name(UNWRAP parameters) \
	{ \
		mpi_look_up(); \
		if (__builtin_expect(mpi.tools[FUNCTION_##name] != NULL, 0)) \
			return ((name##_function *)mpi.tools[FUNCTION_##name])(UNWRAP arguments); \
		return name##_here(UNWRAP arguments); \
	}
#define VISIBLE __attribute__((visibility("default")))

#endif
