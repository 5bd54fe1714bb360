/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * work.h - counts the bytes that the code under test copies, to assert that one poll copies a bounded number
 * of bytes. A bound in slots says little: one slot can name 64 KiB, and naming it repeatedly costs a copy
 * each time.
 *
 * The linker's --wrap redirects the copy functions here (see meson.build). Copies of a few bytes that
 * the compiler inlines are not counted: each belongs to a slot, and slots are bounded separately.
 */
#ifndef VICINAL_TESTS_WORK_H
#define VICINAL_TESTS_WORK_H

#include <stddef.h>
#include <stdint.h>

/* Bytes copied by wrapped functions since the program started. */
uint64_t work_copied(void);

#endif
