/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffer.h - the application's memory, in up to BUFFER_PIECES pieces, and copies between it and the region.
 */
#ifndef VICINAL_PROTO_BUFFER_H
#define VICINAL_PROTO_BUFFER_H

#include <sys/uio.h>

#include "region/copy.h"
#include "region/shared.h"

#define BUFFER_PIECES 4U

struct buffer {
	size_t count;
	size_t length;
	struct iovec pieces[BUFFER_PIECES];
};

/* `count` is at most BUFFER_PIECES. */
static inline void buffer_open(struct buffer *buffer, const struct iovec *pieces, size_t count)
{
	buffer->count = count;
	buffer->length = 0;
	for (size_t i = 0; i < count; i++) {
		buffer->pieces[i] = pieces[i];
		buffer->length += pieces[i].iov_len;
	}
}

/*
 * Whether the buffer has one piece that contains `length` bytes at `offset`. If so, buffer_at() is their
 * address.
 */
static inline bool buffer_in_one(const struct buffer *buffer, size_t offset, size_t length)
{
	return buffer->count == 1 && offset <= buffer->length && length <= buffer->length - offset;
}

static inline char *buffer_at(const struct buffer *buffer, size_t offset)
{
	return (char *)buffer->pieces[0].iov_base + offset;
}

/* Copies `length` bytes at `offset`, all inside the buffer, to the region. */
static inline void buffer_to_region(const struct buffer *buffer, size_t offset, shared_bytes *to,
				    size_t length)
{
	for (size_t i = 0; length > 0 && i < buffer->count; i++) {
		size_t available = buffer->pieces[i].iov_len;
		if (offset >= available) {
			offset -= available;
			continue;
		}
		size_t part = available - offset < length ? available - offset : length;
		shared_copy_out(to, (const char *)buffer->pieces[i].iov_base + offset, part);
		to += part;
		length -= part;
		offset = 0;
	}
}

/*
 * Copies `length` bytes from the region to `offset`. Bytes that do not fit are dropped, and the caller
 * reports the truncation. Returns how many bytes fitted.
 */
static inline size_t buffer_from_region(const struct buffer *buffer, size_t offset, const shared_bytes *from,
					size_t length)
{
	size_t copied = 0;

	for (size_t i = 0; length > 0 && i < buffer->count; i++) {
		size_t available = buffer->pieces[i].iov_len;
		if (offset >= available) {
			offset -= available;
			continue;
		}
		size_t part = available - offset < length ? available - offset : length;
		shared_copy_in((char *)buffer->pieces[i].iov_base + offset, from, part);
		from += part;
		length -= part;
		copied += part;
		offset = 0;
	}
	return copied;
}

/* The same from private memory. */
static inline size_t buffer_from_memory(const struct buffer *buffer, size_t offset, const void *from,
					size_t length)
{
	return buffer_from_region(buffer, offset, (const shared_bytes *)from, length);
}

/*
 * Returns a contiguous view of `length` bytes at `offset`. The `count` pieces contain them all; if there are
 * several pieces, the bytes are gathered in `scratch`.
 */
static inline const unsigned char *buffer_in_a_row(const struct iovec *pieces, size_t count, size_t offset,
						   size_t length, unsigned char *scratch)
{
	struct buffer buffer;

	if (count == 1)
		return (const unsigned char *)pieces[0].iov_base + offset;
	buffer_open(&buffer, pieces, count);
	buffer_to_region(&buffer, offset, (shared_bytes *)scratch, length);
	return scratch;
}

#endif
