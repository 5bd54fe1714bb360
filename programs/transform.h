/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform.h - a cube of complex numbers over all ranks, and its Fourier transform: shared
 * declarations of transform.
 */
#ifndef PROGRAMS_TRANSFORM_H
#define PROGRAMS_TRANSFORM_H

#define MEASURE_ARGUMENTS "OPERATION [--size N] [--iterations N] [--seconds S]"

#include "measure.h"

#include <complex.h>
#include <stdbool.h>

typedef double complex number;

/*
 * In space a rank has whole layers of z; in the spectrum, layers of y. In memory, x varies fastest,
 * then y, then z.
 */
struct cube {
	int size; /* length of an edge: a power of two, at least the number of ranks */
	int rank, ranks;
	number *numbers;  /* of this rank */
	number *exchange; /* the same size again */
	number *line;     /* one line along z */
	number *roots;    /* of unity: exp(-2πi k/size) */
	int *counts[2];   /* for MPI_Alltoallv: numbers to and from each rank, on the way there */
	int *displacements[2];
	double communicated; /* seconds in MPI since the caller last set it to 0 */
};

struct cube cube_open(int size);
void cube_close(struct cube *cube);

/* The first layer of a rank. For rank `ranks`, the end. */
static inline int cube_layer(const struct cube *cube, int rank)
{
	return (int)((long)cube->size * rank / cube->ranks);
}

static inline int cube_layers(const struct cube *cube)
{
	return cube_layer(cube, cube->rank + 1) - cube_layer(cube, cube->rank);
}

/* The number of this rank's numbers, the same in space and in the spectrum. */
static inline size_t cube_numbers(const struct cube *cube)
{
	return (size_t)cube_layers(cube) * (size_t)cube->size * (size_t)cube->size;
}

/* From space to the spectrum, without normalization. */
void cube_forward(struct cube *cube);

/* From the spectrum to space. Together with cube_forward(), in either order, it changes nothing. */
void cube_backward(struct cube *cube);

/*
 * The power in each shell of wave numbers, summed over all ranks. There are more than size/2+1
 * shells.
 */
void cube_spectrum(struct cube *cube, double *shells);

#endif
