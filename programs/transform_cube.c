/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform_cube.c - a three-dimensional Fourier transform over all ranks.
 *
 * Lines along x and y are transformed in place. For lines along z, every rank sends each other rank
 * its part by one MPI_Alltoallv: this transposition is all the communication of such a transform.
 * Lines are transformed by the usual algorithm for powers of two, which is slower than a library's,
 * so the part of computation is larger.
 */
#include "transform.h"

#include <math.h>

#define PI 3.14159265358979323846

struct cube cube_open(int size)
{
	struct cube cube = {.size = size};
	size_t edge = (size_t)size, bytes;

	MPI_Comm_rank(MPI_COMM_WORLD, &cube.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &cube.ranks);
	bytes = cube_numbers(&cube) * sizeof(number);
	cube.numbers = measure_buffer(bytes);
	cube.exchange = measure_buffer(bytes);
	cube.line = measure_buffer(edge * sizeof(number));
	cube.roots = measure_buffer(edge * sizeof(number));
	for (int i = 0; i < size; i++)
		cube.roots[i] = cexp(-2 * PI * I * i / size);
	for (int way = 0; way < 2; way++) {
		cube.counts[way] = measure_buffer((size_t)cube.ranks * sizeof(int));
		cube.displacements[way] = measure_buffer((size_t)cube.ranks * sizeof(int));
	}
	/*
	 * The part of each other rank's layers of y in this rank's layers of z, and vice versa:
	 * both have the same size.
	 */
	for (int rank = 0, displacement = 0; rank < cube.ranks; rank++) {
		int theirs = cube_layer(&cube, rank + 1) - cube_layer(&cube, rank);

		for (int way = 0; way < 2; way++) {
			cube.counts[way][rank] = theirs * cube_layers(&cube) * size;
			cube.displacements[way][rank] = displacement;
		}
		displacement += cube.counts[0][rank];
	}
	return cube;
}

void cube_close(struct cube *cube)
{
	for (int way = 0; way < 2; way++) {
		free(cube->counts[way]);
		free(cube->displacements[way]);
	}
	free(cube->roots);
	free(cube->line);
	free(cube->exchange);
	free(cube->numbers);
}

static void reverse_bits(number *line, int size)
{
	for (int i = 1, j = 0; i < size; i++) {
		int bit = size / 2;

		for (; (j & bit) != 0; bit /= 2)
			j ^= bit;
		j ^= bit;
		if (i < j) {
			number other = line[i];

			line[i] = line[j];
			line[j] = other;
		}
	}
}

static void transform_line(const struct cube *cube, number *line, bool back)
{
	reverse_bits(line, cube->size);
	for (int half = 1; half < cube->size; half *= 2) {
		int step = cube->size / (2 * half);

		for (int start = 0; start < cube->size; start += 2 * half) {
			for (int i = 0; i < half; i++) {
				number root = cube->roots[i * step];
				number *low = &line[start + i], *high = low + half;
				number turned = *high * (back ? conj(root) : root);

				*high = *low - turned;
				*low += turned;
			}
		}
	}
}

/* A line of numbers that lie `stride` apart. */
static void transform_strided(const struct cube *cube, number *first, size_t stride, bool back)
{
	for (int i = 0; i < cube->size; i++)
		cube->line[i] = first[(size_t)i * stride];
	transform_line(cube, cube->line, back);
	for (int i = 0; i < cube->size; i++)
		first[(size_t)i * stride] = cube->line[i];
}

/* Along x and y, in each of this rank's layers of z. */
static void transform_layers(struct cube *cube, bool back)
{
	size_t edge = (size_t)cube->size;

	for (int layer = 0; layer < cube_layers(cube); layer++) {
		number *numbers = cube->numbers + (size_t)layer * edge * edge;

		for (size_t y = 0; y < edge; y++)
			transform_line(cube, numbers + y * edge, back);
		for (size_t x = 0; x < edge; x++)
			transform_strided(cube, numbers + x, edge, back);
	}
}

/* Along z, in each of this rank's layers of y: numbers of one z are contiguous. */
static void transform_columns(struct cube *cube, bool back)
{
	size_t stride = (size_t)cube_layers(cube) * (size_t)cube->size;

	for (size_t column = 0; column < stride; column++)
		transform_strided(cube, cube->numbers + column, stride, back);
}

/* Copy between layers of z and the parts for each rank. Rows of x stay contiguous. */
static void pack(struct cube *cube, number *parts, bool unpack)
{
	size_t edge = (size_t)cube->size;

	for (int rank = 0; rank < cube->ranks; rank++) {
		int first = cube_layer(cube, rank), rows = cube_layer(cube, rank + 1) - first;
		size_t count = (size_t)rows * edge;

		for (int layer = 0; layer < cube_layers(cube); layer++, parts += count) {
			number *cells = cube->numbers + ((size_t)layer * edge + (size_t)first) * edge;

			memcpy(unpack ? cells : parts, unpack ? parts : cells, count * sizeof(number));
		}
	}
}

static void exchange(struct cube *cube, const number *sent, number *received)
{
	double start = MPI_Wtime();

	MPI_Alltoallv(sent, cube->counts[0], cube->displacements[0], MPI_C_DOUBLE_COMPLEX, received,
		      cube->counts[1], cube->displacements[1], MPI_C_DOUBLE_COMPLEX, MPI_COMM_WORLD);
	cube->communicated += MPI_Wtime() - start;
}

void cube_forward(struct cube *cube)
{
	transform_layers(cube, false);
	pack(cube, cube->exchange, false);
	exchange(cube, cube->exchange, cube->numbers);
	transform_columns(cube, false);
}

void cube_backward(struct cube *cube)
{
	double all = (double)cube->size * cube->size * cube->size;

	transform_columns(cube, true);
	exchange(cube, cube->numbers, cube->exchange);
	pack(cube, cube->exchange, true);
	transform_layers(cube, true);
	for (size_t i = 0; i < cube_numbers(cube); i++)
		cube->numbers[i] /= all;
}

static double wave_number(const struct cube *cube, int index)
{
	return index <= cube->size / 2 ? index : index - cube->size;
}

void cube_spectrum(struct cube *cube, double *shells)
{
	const number *at = cube->numbers;
	int first = cube_layer(cube, cube->rank);
	double start;

	for (int shell = 0; shell < cube->size; shell++)
		shells[shell] = 0;
	for (int z = 0; z < cube->size; z++) {
		for (int y = first; y < first + cube_layers(cube); y++) {
			for (int x = 0; x < cube->size; x++, at++) {
				double far =
					sqrt(pow(wave_number(cube, x), 2) + pow(wave_number(cube, y), 2) +
					     pow(wave_number(cube, z), 2));

				shells[(int)lround(far)] += creal(*at) * creal(*at) + cimag(*at) * cimag(*at);
			}
		}
	}
	start = MPI_Wtime();
	MPI_Allreduce(MPI_IN_PLACE, shells, cube->size, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	cube->communicated += MPI_Wtime() - start;
}
