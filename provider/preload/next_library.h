/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * next_library.h - finds the MPI library behind a preloaded library that has MPI functions of its own.
 */
#ifndef VICINAL_PRELOAD_NEXT_LIBRARY_H
#define VICINAL_PRELOAD_NEXT_LIBRARY_H

/*
 * Returns a handle for dlsym() in which `name`, one of the MPI's functions, is not the calling library's;
 * NULL if no MPI is loaded. The handle stays open.
 */
void *next_library(const char *name);

#endif
