/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.h - drawn operations on drawn windows, checked against a model of the windows' bytes. */
#ifndef WINDOWS_STEPS_H
#define WINDOWS_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * `windows` windows, made one after the other, with `count` steps each. `sound`: without what Open MPI itself
 * does wrong, accumulates of more than 8 bytes or at odd addresses, and windows in memory of malloc().
 */
void steps_run(uint64_t seed, int windows, int count, bool sound);
/* A signal handler that says which step it is. */
void steps_stuck(int number);

/* What a rank does, for messages. */
void describe(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the program, with a text that begins with "wrong: ". */
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
