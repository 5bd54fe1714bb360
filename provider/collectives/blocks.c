/* SPDX-License-Identifier: BSD-3-Clause */
/* blocks.c - see blocks.h. */
#include "collectives/blocks.h"

static int64_t count_of(const struct blocks *blocks, int rank)
{
	if (blocks->single)
		return blocks->count;
	return blocks->large ? ((const int64_t *)blocks->counts)[rank] : ((const int *)blocks->counts)[rank];
}

static handle type_of(const struct blocks *blocks, int rank)
{
	if (blocks->types == NULL)
		return blocks->type;
	/* MPICH's handles are of type int. */
	return mpi.abi == ABI_MPICH ? ((const uint32_t *)blocks->types)[rank]
				    : ((const handle *)blocks->types)[rank];
}

static void *address_of(const struct blocks *blocks, int rank)
{
	intptr_t displacement = 0;

	if (!blocks->single)
		displacement = blocks->large ? ((const intptr_t *)blocks->displacements)[rank]
					     : ((const int *)blocks->displacements)[rank];
	/* Computed in integers, because MPI_BOTTOM is a null pointer. */
	return (void *)((uintptr_t)blocks->buffer + (uintptr_t)(displacement * blocks->extent));
}

struct blocks blocks_of(const void *buffer, const void *counts, const void *displacements, handle type,
			bool large)
{
	return (struct blocks){
		.buffer = buffer,
		.counts = counts,
		.displacements = displacements,
		.type = type,
		.size = data_bytes(1, type),
		.extent = (intptr_t)data_element(NULL, 1, type),
		.large = large,
	};
}

struct blocks blocks_of_types(const void *buffer, const void *counts, const void *displacements,
			      const void *types, bool large)
{
	return (struct blocks){
		.buffer = buffer,
		.counts = counts,
		.displacements = displacements,
		.types = types,
		.extent = 1,
		.large = large,
	};
}

struct blocks blocks_of_one(const void *buffer, int64_t count, handle type)
{
	return (struct blocks){
		.buffer = buffer, .type = type, .size = data_bytes(1, type), .single = true, .count = count};
}

int64_t block_length(const struct blocks *blocks, int rank)
{
	int64_t count = count_of(blocks, rank);
	int64_t bytes = 0;

	/* Programs pass null datatypes with counts of 0, where MPI looks at the datatypes of other blocks
	 * only.
	 */
	if (blocks->types != NULL)
		return count == 0 ? 0 : data_bytes(count, type_of(blocks, rank));
	if (count < 0 || blocks->size < 0 || __builtin_mul_overflow(count, blocks->size, &bytes))
		return -1;
	return bytes;
}

struct data block_to_send(const struct blocks *blocks, int rank, int64_t length)
{
	return data_to_send(address_of(blocks, rank), count_of(blocks, rank), type_of(blocks, rank), length);
}

struct data block_to_receive(const struct blocks *blocks, int rank, int64_t length)
{
	return data_to_receive(address_of(blocks, rank), count_of(blocks, rank), type_of(blocks, rank),
			       length);
}
