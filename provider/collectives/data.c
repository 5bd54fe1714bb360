/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - see data.h. */
#include "collectives/data.h"

#include <limits.h>
#include <stdlib.h>

int64_t data_bytes(int64_t count, handle type)
{
	struct basic_type basic = mpi_basic_type(type);
	int64_t size = basic.size;
	int64_t bytes = 0;

	if (basic.size == 0 && MPI_CALL(Type_size_x, handle, int64_t *)(type, &size) != MPI_OK)
		return -1;
	if (count < 0 || size < 0 || __builtin_mul_overflow(count, size, &bytes))
		return -1;
	return bytes;
}

static struct data describe(void *buffer, int64_t count, handle type, int64_t length)
{
	struct data data = {
		.bytes = buffer, .length = length, .buffer = buffer, .count = count, .type = type};

	if (mpi_basic_type(type).size == 0) {
		/* MPI_Pack() counts in int. Only long types can have more bytes than that. */
		data.owned = length <= INT_MAX && count <= INT_MAX ? malloc((size_t)length + 1) : NULL;
		data.bytes = data.owned;
	}
	return data;
}

struct data data_to_send(const void *buffer, int64_t count, handle type, int64_t length)
{
	/* The buffer of data to send is only read. */
	struct data data = describe((void *)(uintptr_t)buffer, count, type, length);
	int position = 0;

	if (data.owned != NULL && length > 0 &&
	    MPI_CALL(Pack, const void *, int, handle, void *, int, int *, handle)(
		    buffer, (int)count, type, data.bytes, (int)length, &position, mpi.comm_self) != MPI_OK)
		data_sent(&data);
	return data;
}

struct data data_to_receive(void *buffer, int64_t count, handle type, int64_t length)
{
	return describe(buffer, count, type, length);
}

int data_received(struct data *data)
{
	int status = MPI_OK;
	int position = 0;

	if (data->owned != NULL && data->length > 0)
		status = MPI_CALL(Unpack, const void *, int, int *, void *, int, handle,
				  handle)(data->bytes, (int)data->length, &position, data->buffer,
					  (int)data->count, data->type, mpi.comm_self);
	data_sent(data);
	return status;
}

void data_sent(struct data *data)
{
	free(data->owned);
	data->owned = NULL;
	data->bytes = NULL;
}

void *data_element(const void *buffer, int64_t index, handle type)
{
	struct basic_type basic = mpi_basic_type(type);
	intptr_t low = 0;
	intptr_t extent = basic.size;

	if (basic.size == 0)
		(void)MPI_CALL(Type_get_extent, handle, intptr_t *, intptr_t *)(type, &low, &extent);
	/* Computed in integers, because MPI_BOTTOM is a null pointer. */
	return (void *)((uintptr_t)buffer + (uintptr_t)((intptr_t)index * extent));
}
