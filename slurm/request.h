/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * request.h - a user's request by --vicinal=VALUE.
 *
 *  region[,members=N][,section=SIZE][,heap=SIZE]
 *  FILE
 *
 * SIZE is a number of bytes, or of K, M or G. FILE, which contains a slash or ends in .yaml or
 * .yml, is a cluster file: the job gets the nodes that it describes.
 */
#ifndef VICINAL_SLURM_REQUEST_H
#define VICINAL_SLURM_REQUEST_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct request {
	uint64_t members;    /* 0: derived from the number of tasks */
	uint64_t section;    /* bytes; 0: the default of `vicinal region create` */
	uint64_t heap;       /* bytes for each member */
	char file[PATH_MAX]; /* the cluster file, as given; empty if there is none */
};

/*
 * Parse a value. NULL, and Slurm's other forms of a missing value, mean `region`. Returns 0, or -1
 * with the error and the remedy in `fault`. `most` is the maximum size of a region in bytes.
 */
int request_read(const char *value, uint64_t most, struct request *request, char *fault, size_t length);

/* Parse a size, for example `64M`, into bytes. Returns 0, or -1 if it is not a size. */
int size_read(const char *text, uint64_t *bytes);

#endif
