/* SPDX-License-Identifier: BSD-3-Clause */
/* known.c - what MPI libraries themselves do wrong, which steps leave out. */
#include "steps.h"

#include <string.h>

#if defined(OPEN_MPI) /* 5.0.11 */

const bool any_tag_of_itself_is_faulty = false;

bool is_known_fault(const struct step *step, const char *name)
{
	const struct type *type = &step->type;
	enum action action = step->operation.action;

	(void)name;
	/* MPI_OFFSET is compared without its sign. */
	if (type->basic == MPI_OFFSET && (action == ACTION_MAX || action == ACTION_MIN))
		return true;
	/* The ring of allreduce writes in front of its buffer if the lower bound is negative. */
	return type->low < 0 && action != ACTION_MOVE;
}

bool may_flatten(const struct step *step, const char *name)
{
	/* scatterv takes the counts of the root of an intercommunicator for counts of the receiver's
	 * datatype. */
	if (step->group.is_inter)
		return false;
	/* allgatherv hangs or mixes blocks up from about 500 bytes if one rank has gaps and another has none.
	 */
	return strcmp(name, "allgatherv") != 0;
}

bool may_place(const struct step *step, const char *name)
{
	/* In a communicator of one rank, alltoallw takes displacements for elements instead of bytes. */
	return strcmp(name, "alltoallw") != 0 || step->group.size > 1 || step->group.is_inter;
}

bool may_be_in_place(const struct step *step, const char *name)
{
	(void)step;
	(void)name;
	return true;
}

#elif defined(MPICH_VERSION) /* 5.0.2 */

/* A receive from the own rank with any tag gets what a collective operation sends there. */
const bool any_tag_of_itself_is_faulty = true;

static bool is_pair(enum kind kind)
{
	return kind >= KIND_P16;
}

bool is_known_fault(const struct step *step, const char *name)
{
	const struct type *type = &step->type;
	enum action action = step->operation.action;

	/* A rank that receives elements of a derived datatype of pairs divides by zero. */
	for (int i = 0; i < type->units; i++)
		if (type->is_derived && is_pair(type->kinds[i]))
			return true;
	/* The algorithm for operations that are not commutative overruns its buffers. */
	return (action == ACTION_COMPOSE || action == ACTION_MATRIX) &&
	       strncmp(name, "reduce_scatter", 14) == 0 && (type->is_derived || is_pair(type->kinds[0]));
}

bool may_flatten(const struct step *step, const char *name)
{
	/* scatter between two groups delivers wrong data. */
	if (step->group.is_inter)
		return false;
	/* Each rank of the ring of allgatherv cuts blocks by the extent of its own datatype. */
	return strcmp(name, "allgatherv") != 0;
}

bool may_place(const struct step *step, const char *name)
{
	(void)step;
	(void)name;
	return true;
}

bool may_be_in_place(const struct step *step, const char *name)
{
	/* reduce_scatter copies the own block to the beginning of the buffer, and aborts if the two places
	 * overlap. Shorter data is libvicinal-mpi.so's.
	 */
	size_t bytes = (size_t)step->count * (size_t)step->type.units * kind_size(step->type.kinds[0]);

	return strcmp(name, "reduce_scatter") != 0 || bytes * (size_t)step->group.size <= 400;
}

#else

const bool any_tag_of_itself_is_faulty = false;

bool is_known_fault(const struct step *step, const char *name)
{
	(void)step;
	(void)name;
	return false;
}

bool may_flatten(const struct step *step, const char *name)
{
	(void)step;
	(void)name;
	return true;
}

bool may_place(const struct step *step, const char *name)
{
	(void)step;
	(void)name;
	return true;
}

bool may_be_in_place(const struct step *step, const char *name)
{
	(void)step;
	(void)name;
	return true;
}

#endif
