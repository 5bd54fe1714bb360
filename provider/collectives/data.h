/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * data.h - buffers of the application as bytes without gaps.
 *
 * The bytes of a datatype without gaps are used where they lie. Other data is packed into memory of this
 * library, and unpacked from it, by the MPI library.
 */
#ifndef VICINAL_COLLECTIVES_DATA_H
#define VICINAL_COLLECTIVES_DATA_H

#include "collectives/library.h"

/* Bytes of `count` elements; -1 if the count is negative, the datatype is invalid, or the product is too big.
 */
int64_t data_bytes(int64_t count, handle type);

struct data {
	unsigned char *bytes; /* NULL if no memory is left */
	int64_t length;
	void *owned; /* packed copy; NULL: `bytes` is the application's buffer */
	void *buffer;
	int64_t count;
	handle type;
};

/* No memory was left for a packed copy. */
static inline bool data_lacks_memory(const struct data *data)
{
	return data->bytes == NULL && data->length > 0 && mpi_basic_type(data->type).size == 0;
}

/* For sending: `bytes` has the elements. */
struct data data_to_send(const void *buffer, int64_t count, handle type, int64_t length);
/* For receiving: after `bytes` were written, data_received() stores them in the application's buffer. */
struct data data_to_receive(void *buffer, int64_t count, handle type, int64_t length);
int data_received(struct data *data);
/* Releases what data_to_send() allocated. */
void data_sent(struct data *data);

/* The address of element `index` of a buffer. */
void *data_element(const void *buffer, int64_t index, handle type);

#endif
