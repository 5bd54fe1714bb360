/* SPDX-License-Identifier: BSD-3-Clause */
/* command.h - running the program vicinal from Slurm's daemons, as root. */
#ifndef VICINAL_SLURM_COMMAND_H
#define VICINAL_SLURM_COMMAND_H

#include <stddef.h>

/*
 * Run `arguments`, of which the first is the program and the last NULL, to its end. The program gets
 * nothing of a user's environment, ends with the process that called it, and is ended after a minute.
 *
 * Returns 0 if it succeeded, or else -1 with the last line that it said, of at most `length` bytes
 * with its end, in `said`.
 */
int command_run(const char *const arguments[], char *said, size_t length);

/* Become `arguments[0]`, with these variables; what cannot be run says so on standard error, and ends with
 * 127. */
_Noreturn void command_become(const char *const arguments[], const char *const variables[]);

#endif
