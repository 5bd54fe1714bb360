/* SPDX-License-Identifier: BSD-3-Clause */
/* mixed.h - long accumulates and accumulates of single elements on the same elements, at once. */
#ifndef WINDOWS_MIXED_H
#define WINDOWS_MIXED_H

/*
 * All ranks add drawn numbers of ones to drawn elements of all windows, `count` times in each of several
 * windows, by `threads` threads. The sums must be exact.
 */
void mixed_sums(int count, int threads);

#endif
