/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frames.h - what is said between a task of a host's and the program that it runs in a guest.
 *
 * One stream in each direction, of frames: a letter, the length in four bytes with the highest first, and so
 * many bytes. src/vicinal/integrations/slurm/guest_stream.py is the other end. Of what goes to the program,
 * the next is not sent before this has been taken in (FRAME_TAKEN), so that nothing has to wait for a program
 * that does not read.
 */
#ifndef VICINAL_GUEST_FRAMES_H
#define VICINAL_GUEST_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX (1U << 20)

enum frame_kind {
	/* From the task, in this order: */
	FRAME_ARGUMENTS = 'A', /* each with a null byte at its end */
	FRAME_VARIABLES = 'E', /* likewise; PMI_FD among them asks for FRAME_PMI, and
				  VICINAL_GUEST_USER=UID:GID for these numbers */
	FRAME_DIRECTORY = 'D', /* starts the program there, or in its home where there is no such place */
	/* In any order, from then on: */
	FRAME_INPUT = 'I',  /* empty: its end */
	FRAME_SIGNAL = 'S', /* one byte, its number */
	/* In both directions: */
	FRAME_PMI = 'M', /* empty, from the task: its end */
	/* From the program: */
	FRAME_OUTPUT = 'O',
	FRAME_ERRORS = 'R',
	FRAME_TAKEN = 'T',  /* one byte: FRAME_INPUT or FRAME_PMI */
	FRAME_FAILED = 'F', /* it was not started: why */
	FRAME_EXITED = 'X', /* one byte, its status */
	FRAME_KILLED = 'K', /* one byte, the signal */
};

struct frame {
	enum frame_kind kind;
	uint32_t length;
	char *bytes; /* and a null byte after them */
};

/* Read one from standard input; the bytes are the caller's to free. Returns 0, or -1 at the end of what
 * comes, be it that what comes is none. */
int frame_read(struct frame *frame);

/* Write one to standard output. Returns 0, or -1 where nobody listens. */
int frame_write(enum frame_kind kind, const void *bytes, size_t length);

#endif
