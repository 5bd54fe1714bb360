/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * numbers.h - gives a program in a guest the user and group numbers of the host.
 *
 * A PMIx server accepts only its own user. So the program runs in a user namespace, in which the
 * guest's user has other numbers. Programs with the same numbers share one namespace, because
 * otherwise the kernel would deny access to each other's memory, from which ranks of a guest copy.
 */
#ifndef VICINAL_GUEST_NUMBERS_H
#define VICINAL_GUEST_NUMBERS_H

/*
 * Take numbers, for example `1000:100`, for this process and the program that it executes. Returns
 * 0, or -1 with errno.
 */
int numbers_take(const char *numbers);

#endif
