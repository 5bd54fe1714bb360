/* SPDX-License-Identifier: BSD-3-Clause */
/* program.h - a program that runs in a guest, and our ends of its streams. */
#ifndef VICINAL_GUEST_PROGRAM_H
#define VICINAL_GUEST_PROGRAM_H

#include <stddef.h>
#include <sys/types.h>

#include "frames.h"

struct program {
	pid_t number;
	int input; /* each of these is -1 once closed */
	int output;
	int errors;
	int pmi;
};

/*
 * Start a program in a new session. The frames contain its arguments, variables and directory.
 * Returns 0, or -1 with the reason in `fault`.
 */
int program_start(struct program *program, const struct frame *arguments, const struct frame *variables,
		  const struct frame *directory, char *fault, size_t length);

#endif
