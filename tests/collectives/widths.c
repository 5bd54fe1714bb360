/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * widths.c - calls of the collective operations that have a count for each rank, with counts of either width.
 *
 * Each rank draws for itself whether it calls the form with large counts (_c), if there is one. Open MPI 5
 * has none, but libvicinal-mpi.so has, so the function is looked up.
 */
#include "steps.h"

#include <dlfcn.h>
#include <string.h>

enum { RANKS_MAX = 64 };

/* Counts and displacements of the form with large counts. */
struct large {
	MPI_Count counts[RANKS_MAX];
	MPI_Aint places[RANKS_MAX];
};

/* The function with large counts, if it is drawn and exists. */
static bool draw_large(struct step *step, const char *name, void *function)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	memcpy(function, &found, sizeof found);
	return found != NULL && draw_below(&step->one, 3) == 0;
}

static void widen(struct large *large, const struct counts *counts)
{
	for (int i = 0; i < counts->number; i++) {
		large->counts[i] = counts->counts[i];
		large->places[i] = counts->places[i];
	}
}

void call_allgatherv(struct step *step, const void *from, int count, MPI_Datatype type, void *to,
		     const struct counts *counts, MPI_Datatype to_type)
{
	int (*large_form)(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,
			  MPI_Datatype, MPI_Comm);
	struct large large;
	MPI_Comm comm = step->group.handle;

	if (!draw_large(step, "MPI_Allgatherv_c", &large_form)) {
		MPI_Allgatherv(from, count, type, to, counts->counts, counts->places, to_type, comm);
		return;
	}
	widen(&large, counts);
	large_form(from, count, type, to, large.counts, large.places, to_type, comm);
}

void call_gatherv(struct step *step, const void *from, int count, MPI_Datatype type, void *to,
		  const struct counts *counts, MPI_Datatype to_type, int root)
{
	int (*large_form)(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,
			  MPI_Datatype, int, MPI_Comm);
	struct large large;
	MPI_Comm comm = step->group.handle;

	if (!draw_large(step, "MPI_Gatherv_c", &large_form)) {
		MPI_Gatherv(from, count, type, to, counts->counts, counts->places, to_type, root, comm);
		return;
	}
	widen(&large, counts);
	large_form(from, count, type, to, large.counts, large.places, to_type, root, comm);
}

void call_scatterv(struct step *step, const void *from, const struct counts *counts, MPI_Datatype type,
		   void *to, int count, MPI_Datatype to_type, int root)
{
	int (*large_form)(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, MPI_Count,
			  MPI_Datatype, int, MPI_Comm);
	struct large large;
	MPI_Comm comm = step->group.handle;

	if (!draw_large(step, "MPI_Scatterv_c", &large_form)) {
		MPI_Scatterv(from, counts->counts, counts->places, type, to, count, to_type, root, comm);
		return;
	}
	widen(&large, counts);
	large_form(from, large.counts, large.places, type, to, count, to_type, root, comm);
}

void call_alltoallv(struct step *step, const void *from, const struct counts *sent, MPI_Datatype type,
		    void *to, const struct counts *received, MPI_Datatype to_type)
{
	int (*large_form)(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
			  const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm);
	struct large large[2];
	MPI_Comm comm = step->group.handle;

	if (!draw_large(step, "MPI_Alltoallv_c", &large_form)) {
		MPI_Alltoallv(from, sent->counts, sent->places, type, to, received->counts, received->places,
			      to_type, comm);
		return;
	}
	widen(&large[0], sent);
	widen(&large[1], received);
	large_form(from, large[0].counts, large[0].places, type, to, large[1].counts, large[1].places,
		   to_type, comm);
}

/* A block has a datatype of its own: as many elements as drawn, in one element or as they are. */
static void draw_types(struct step *step, const struct counts *counts, const struct type *type,
		       struct counts *drawn, MPI_Datatype *types)
{
	*drawn = *counts;
	for (int i = 0; i < counts->number; i++) {
		drawn->places[i] = counts->places[i] * (int)type->extent;
		types[i] = type->handle;
		if (counts->counts[i] == 0 || draw_below(&step->one, 2))
			continue;
		MPI_Type_contiguous(counts->counts[i], type->handle, &types[i]);
		MPI_Type_commit(&types[i]);
		drawn->counts[i] = 1;
	}
}

static void free_types(const struct counts *counts, const struct type *type, MPI_Datatype *types)
{
	for (int i = 0; i < counts->number; i++)
		if (types[i] != type->handle)
			MPI_Type_free(&types[i]);
}

void call_alltoallw(struct step *step, const void *from, const struct counts *sent, const struct type *type,
		    void *to, const struct counts *received, const struct type *to_type)
{
	int (*large_form)(const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, void *,
			  const MPI_Count *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm);
	struct counts drawn[2];
	MPI_Datatype types[2][RANKS_MAX];
	struct large large[2];
	MPI_Comm comm = step->group.handle;

	draw_types(step, sent, type, &drawn[0], types[0]);
	draw_types(step, received, to_type, &drawn[1], types[1]);
	if (draw_large(step, "MPI_Alltoallw_c", &large_form)) {
		widen(&large[0], &drawn[0]);
		widen(&large[1], &drawn[1]);
		large_form(from, large[0].counts, large[0].places, types[0], to, large[1].counts,
			   large[1].places, types[1], comm);
	} else {
		MPI_Alltoallw(from, drawn[0].counts, drawn[0].places, types[0], to, drawn[1].counts,
			      drawn[1].places, types[1], comm);
	}
	free_types(sent, type, types[0]);
	free_types(received, to_type, types[1]);
}

void call_reduce_scatter(struct step *step, const void *from, void *to, const int *counts)
{
	int (*large_form)(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm);
	MPI_Count large[RANKS_MAX];
	const struct group *group = &step->group;

	if (!draw_large(step, "MPI_Reduce_scatter_c", &large_form)) {
		MPI_Reduce_scatter(from, to, counts, step->type.handle, step->operation.handle,
				   group->handle);
		return;
	}
	for (int i = 0; i < group->size; i++)
		large[i] = counts[i];
	large_form(from, to, large, step->type.handle, step->operation.handle, group->handle);
}
