/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform.h - a cube of complex numbers over all ranks, and its Fourier transform: what the
 * parts of transform know of each other.
 */
#ifndef PROGRAMS_TRANSFORM_H
#define PROGRAMS_TRANSFORM_H

#define MEASURE_ARGUMENTS "OPERATION [--size N] [--iterations N] [--seconds S]"

#include "measure.h"

#include <complex.h>
#include <stdbool.h>

typedef double complex number;

/*
 * In space a rank has layers of z, each of them whole; in the spectrum, layers of y. x goes on in
 * memory first, then y, then z.
 */
struct cube {
	int size; /* of an edge: a power of two, from the number of ranks on */
	int rank, ranks;
	number *numbers;  /* of this rank */
	number *exchange; /* as much room again */
	number *line;     /* one along z */
	number *roots;    /* of unity: exp(-2πi k/size) */
	int *counts[2];   /* for MPI_Alltoallv: numbers to and from each rank, on the way there */
	int *places[2];
	double communicated; /* seconds in MPI, since the caller last looked */
};

struct cube cube_open(int size);
void cube_close(struct cube *cube);

/* The first layer of a rank; that of rank `ranks` is the end. */
static inline int cube_layer(const struct cube *cube, int rank)
{
	return (int)((long)cube->size * rank / cube->ranks);
}

static inline int cube_layers(const struct cube *cube)
{
	return cube_layer(cube, cube->rank + 1) - cube_layer(cube, cube->rank);
}

/* How many numbers this rank has, in space as in the spectrum. */
static inline size_t cube_numbers(const struct cube *cube)
{
	return (size_t)cube_layers(cube) * (size_t)cube->size * (size_t)cube->size;
}

/* From space to the spectrum, which is not divided by anything. */
void cube_forward(struct cube *cube);

/* And back; with cube_forward() before or after it, everything is as it was. */
void cube_backward(struct cube *cube);

/* The power in each shell of wave numbers, of all ranks together: size/2+1 of them, and more there. */
void cube_spectrum(struct cube *cube, double *shells);

#endif
