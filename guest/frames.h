/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frames.h - the protocol between a task on the host and the program that runs it in a guest.
 *
 * There is one stream in each direction. It consists of frames: a letter, the length in four bytes
 * with the highest first, and that many bytes. The other end is
 * src/vicinal/integrations/slurm/guest_stream.py. For each of the program's inputs, a frame is sent
 * only after the previous one was written (FRAME_TAKEN), so that nothing blocks on a program that
 * does not read.
 */
#ifndef VICINAL_GUEST_FRAMES_H
#define VICINAL_GUEST_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX (1U << 20)

enum frame_kind {
	/* From the task, in this order: */
	FRAME_ARGUMENTS = 'A', /* each ends with a null byte */
	FRAME_VARIABLES = 'E', /* each ends with a null byte; PMI_FD requests FRAME_PMI, and
				  VICINAL_GUEST_USER=UID:GID requests these numbers */
	FRAME_DIRECTORY = 'D', /* starts the program in this directory, or in its home directory if this one
				  does not exist */
	/* From the task, afterwards, in any order: */
	FRAME_INPUT = 'I',  /* empty: end of file */
	FRAME_SIGNAL = 'S', /* one byte: the signal's number */
	/* In both directions: */
	FRAME_PMI = 'M', /* empty, from the task: end of file */
	/* From the program: */
	FRAME_OUTPUT = 'O',
	FRAME_ERRORS = 'R',
	FRAME_TAKEN = 'T',  /* one byte: FRAME_INPUT or FRAME_PMI */
	FRAME_FAILED = 'F', /* the program was not started: the reason */
	FRAME_EXITED = 'X', /* one byte: the status */
	FRAME_KILLED = 'K', /* one byte: the signal */
};

struct frame {
	enum frame_kind kind;
	uint32_t length;
	char *bytes; /* followed by a null byte */
};

/*
 * Read a frame from standard input. The caller must free the bytes. Returns 0, or -1 at the end of
 * the input or after an invalid frame.
 */
int frame_read(struct frame *frame);

/* Write a frame to standard output. Returns 0, or -1 if the output is closed. */
int frame_write(enum frame_kind kind, const void *bytes, size_t length);

#endif
