/* SPDX-License-Identifier: BSD-3-Clause */
/* frames.c - reads and writes frames: see frames.h. */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define HEAD 5U

static int read_all(char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t got = read(STDIN_FILENO, bytes, length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		bytes += got;
		length -= (size_t)got;
	}
	return 0;
}

static int write_all(const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t put = write(STDOUT_FILENO, bytes, length);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return -1;
		bytes += put;
		length -= (size_t)put;
	}
	return 0;
}

int frame_read(struct frame *frame)
{
	unsigned char head[HEAD];

	if (read_all((char *)head, sizeof(head)) != 0)
		return -1;
	frame->kind = (enum frame_kind)head[0];
	frame->length = (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];
	if (frame->length > FRAME_MAX)
		return -1;
	frame->bytes = malloc(frame->length + 1U);
	if (frame->bytes == NULL || read_all(frame->bytes, frame->length) != 0) {
		free(frame->bytes);
		return -1;
	}
	frame->bytes[frame->length] = '\0';
	return 0;
}

int frame_write(enum frame_kind kind, const void *bytes, size_t length)
{
	const unsigned char head[HEAD] = {
		(unsigned char)kind,
		(unsigned char)(length >> 24 & 0xFF),
		(unsigned char)(length >> 16 & 0xFF),
		(unsigned char)(length >> 8 & 0xFF),
		(unsigned char)(length & 0xFF),
	};

	return write_all((const char *)head, sizeof(head)) != 0 || write_all(bytes, length) != 0 ? -1 : 0;
}
