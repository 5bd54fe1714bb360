/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.c - see layout.h. */
#include "windows/layout.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A datatype of a datatype of ...: a program that nests deeper has its accumulates passed on. */
#define DEPTH_MAX 32

static handle first_part(handle type, int integers, int addresses, int types)
{
	size_t wide = mpi.abi == ABI_MPICH ? sizeof(uint32_t) : sizeof(handle);
	int *all_integers = calloc((size_t)integers + 1, sizeof(int));
	intptr_t *all_addresses = calloc((size_t)addresses + 1, sizeof(intptr_t));
	unsigned char *all_types = calloc((size_t)types + 1, wide);
	handle first = 0;

	if (all_integers != NULL && all_addresses != NULL && all_types != NULL &&
	    MPI_CALL(Type_get_contents, handle, int, int, int, int *, intptr_t *, void *)(
		    type, integers, addresses, types, all_integers, all_addresses, all_types) == MPI_OK) {
		memcpy(&first, all_types, wide);
		/* MPI gives a reference to each part that is derived itself. */
		for (int i = 1; i < types; i++) {
			handle other = 0;
			int counts[4] = {0};
			memcpy(&other, all_types + (size_t)i * wide, wide);
			if (mpi_basic_type(other).size == 0 &&
			    MPI_CALL(Type_get_envelope, handle, int *, int *, int *, int *)(
				    other, &counts[0], &counts[1], &counts[2], &counts[3]) == MPI_OK &&
			    counts[2] > 0)
				(void)MPI_CALL(Type_free, handle *)(&other);
		}
	}
	free(all_integers);
	free(all_addresses);
	free(all_types);
	return first;
}

static handle leaf_of(handle type, int depth)
{
	int integers = 0;
	int addresses = 0;
	int types = 0;
	int combiner = 0;

	if (mpi_basic_type(type).size != 0)
		return type;
	/* A datatype without parts is predefined, or one of Fortran's with a precision. */
	if (depth == DEPTH_MAX ||
	    MPI_CALL(Type_get_envelope, handle, int *, int *, int *, int *)(type, &integers, &addresses,
									    &types, &combiner) != MPI_OK ||
	    types < 1)
		return 0;
	handle part = first_part(type, integers, addresses, types);
	if (part == 0)
		return 0;
	handle leaf = leaf_of(part, depth + 1);
	if (leaf != part &&
	    MPI_CALL(Type_get_envelope, handle, int *, int *, int *, int *)(part, &integers, &addresses,
									    &types, &combiner) == MPI_OK &&
	    types > 0)
		(void)MPI_CALL(Type_free, handle *)(&part);
	return leaf;
}

handle layout_leaf(handle type)
{
	return leaf_of(type, 0);
}

/*
 * The MPI library itself tells where the elements lie: each byte of a buffer gets a part of its own offset,
 * and the library packs them. Offsets have up to four parts.
 */
#define PARTS 4

static bool pack_parts(struct layout *layout, handle type, uint32_t size, intptr_t low, size_t span)
{
	size_t length = (size_t)layout->elements * size;
	unsigned char *buffer = malloc(span + 1);
	unsigned char *packed = malloc(length + 1);
	bool done = buffer != NULL && packed != NULL;

	for (int part = 0; part < PARTS && done && (part == 0 || span >> (8 * part) > 0); part++) {
		int position = 0;
		for (size_t i = 0; i < span; i++)
			buffer[i] = (unsigned char)(i >> (8 * part));
		/* Computed in integers, because the first element may lie outside of the buffer. */
		done = MPI_CALL(Pack, const void *, int, handle, void *, int, int *,
				handle)((const void *)((uintptr_t)buffer - (uintptr_t)low), 1, type, packed,
					(int)length, &position, mpi.comm_self) == MPI_OK;
		for (int64_t i = 0; i < layout->elements && done; i++)
			layout->offsets[i] |= (int64_t)packed[(size_t)i * size] << (8 * part);
	}
	for (int64_t i = 0; i < layout->elements; i++)
		layout->offsets[i] += low;
	free(buffer);
	free(packed);
	return done;
}

struct layout *layout_of(handle type, uint32_t size)
{
	intptr_t low = 0;
	intptr_t extent = 0;
	intptr_t span = 0;
	int64_t bytes = 0;

	if (MPI_CALL(Type_get_extent, handle, intptr_t *, intptr_t *)(type, &low, &extent) != MPI_OK ||
	    MPI_CALL(Type_get_true_extent, handle, intptr_t *, intptr_t *)(type, &low, &span) != MPI_OK ||
	    MPI_CALL(Type_size_x, handle, int64_t *)(type, &bytes) != MPI_OK || bytes < 0 ||
	    bytes > INT_MAX || span < 0 || span > (intptr_t)UINT32_MAX)
		return NULL;
	int64_t elements = bytes / size;
	struct layout *layout = calloc(1, sizeof(*layout) + (size_t)elements * sizeof(layout->offsets[0]));
	if (layout == NULL)
		return NULL;
	layout->extent = extent;
	layout->elements = elements;
	if (pack_parts(layout, type, size, low, (size_t)span))
		return layout;
	free(layout);
	return NULL;
}
