/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * numbers.h - user and group of a program in a guest have the numbers that they have on the host.
 *
 * A PMIx server believes only its own user. So the program is in a user namespace, in which the user of the
 * guest has other numbers. Programs with the same numbers are in the same one: otherwise the kernel would
 * keep them from each other's memory, which ranks of a guest copy from.
 */
#ifndef VICINAL_GUEST_NUMBERS_H
#define VICINAL_GUEST_NUMBERS_H

/* Take numbers, as in `1000:100`, for this process and what it becomes. Returns 0, or -1 with errno. */
int numbers_take(const char *numbers);

#endif
