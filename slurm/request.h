/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * request.h - what a user asks for with --vicinal=VALUE.
 *
 *	region[,members=N][,section=SIZE][,heap=SIZE]
 *	FILE
 *
 * SIZE is a number of bytes, or of K, M or G. FILE, which has a slash in it or ends in .yaml or .yml, is a
 * cluster's: the job gets the nodes that it describes.
 */
#ifndef VICINAL_SLURM_REQUEST_H
#define VICINAL_SLURM_REQUEST_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct request {
	uint64_t members;    /* 0: by the number of tasks */
	uint64_t section;    /* bytes; 0: as `vicinal region create` does by default */
	uint64_t heap;       /* bytes of each member */
	char file[PATH_MAX]; /* the cluster's, as it was given; empty where there is none */
};

/*
 * Read a value, of which NULL and what Slurm makes of that are the same as `region`. Returns 0, or -1 with
 * what is wrong and what to do in `fault`. `most` is how many bytes a region may take.
 */
int request_read(const char *value, uint64_t most, struct request *request, char *fault, size_t length);

/* Bytes from `64M`; returns 0, or -1 for anything that is not a size. */
int size_read(const char *text, uint64_t *bytes);

#endif
