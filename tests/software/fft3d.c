/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fft3d - three-dimensional transforms by FFTW over MPI, compared with FFTW on one rank.
 *
 *     fft3d N0 N1 N2
 *
 * Every rank makes its slab of the same pseudo-random array, transforms it with the other ranks forward and
 * back, and computes the whole transform once more by itself. Rank 0 prints a line for each kind of
 * transform, with the relative errors in the 2-norm over all ranks: of the forward transform against the one
 * that each rank computed by itself, and of forth and back against the array. The caller judges the errors.
 * Between the dimensions FFTW transposes the array with MPI_Alltoall, or with MPI_Sendrecv in steps.
 */
#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <fftw3-mpi.h>

enum kind {
	COMPLEX,    /* complex to complex, the result in the order of the array */
	TRANSPOSED, /* the same, with the first two dimensions of the result exchanged */
	REAL,       /* real to complex and back */
};

static const char *const kind_names[] = {"complex", "transposed", "real"};

struct shape {
	ptrdiff_t n[3];
	int rank, ranks;
};

static int fail(const char *what)
{
	fprintf(stderr, "fft3d: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 2);
	return 2;
}

static void *allocate(size_t bytes)
{
	void *memory = fftw_malloc(bytes);

	if (memory == NULL)
		exit(fail("out of memory"));
	return memory;
}

/* A number in [-0.5, 0.5) that depends only on its position in the array. */
static double value(uint64_t index)
{
	uint64_t mixed = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	mixed ^= mixed >> 31;
	return (double)(mixed >> 11) * 0x1p-53 - 0.5;
}

static double complex element(uint64_t index)
{
	return value(2 * index) + value(2 * index + 1) * I;
}

/* The square root of the sum of `error` over all ranks, relative to that of `size`. */
static double relative(double error, double size)
{
	double sums[2] = {error, size};

	MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return sqrt(sums[0] / sums[1]);
}

static double square(double complex number)
{
	return creal(number) * creal(number) + cimag(number) * cimag(number);
}

static void report(const struct shape *shape, enum kind kind, double forward, double back)
{
	if (shape->rank == 0)
		printf("%s %td x %td x %td on %d ranks: forward %.3e back %.3e\n", kind_names[kind],
		       shape->n[0], shape->n[1], shape->n[2], shape->ranks, forward, back);
}

/* The whole transform, computed by this rank only. */
static double complex *alone_complex(const ptrdiff_t n[3])
{
	size_t count = (size_t)(n[0] * n[1] * n[2]);
	double complex *whole = allocate(count * sizeof(*whole));
	fftw_plan plan =
		fftw_plan_dft_3d((int)n[0], (int)n[1], (int)n[2], whole, whole, FFTW_FORWARD, FFTW_ESTIMATE);

	for (size_t index = 0; index < count; index++)
		whole[index] = element(index);
	fftw_execute(plan);
	fftw_destroy_plan(plan);
	return whole;
}

static double complex *alone_real(const ptrdiff_t n[3])
{
	size_t count = (size_t)(n[0] * n[1] * n[2]);
	double *array = allocate(count * sizeof(*array));
	double complex *whole = allocate((size_t)(n[0] * n[1] * (n[2] / 2 + 1)) * sizeof(*whole));
	fftw_plan plan = fftw_plan_dft_r2c_3d((int)n[0], (int)n[1], (int)n[2], array, whole, FFTW_ESTIMATE);

	for (size_t index = 0; index < count; index++)
		array[index] = value(index);
	fftw_execute(plan);
	fftw_destroy_plan(plan);
	fftw_free(array);
	return whole;
}

static void transform_complex(const struct shape *shape, enum kind kind)
{
	const ptrdiff_t *n = shape->n;
	ptrdiff_t rows, first, columns, first_column;
	ptrdiff_t room = fftw_mpi_local_size_3d_transposed(n[0], n[1], n[2], MPI_COMM_WORLD, &rows, &first,
							   &columns, &first_column);
	double complex *slab = allocate((size_t)room * sizeof(*slab));
	unsigned int out = kind == TRANSPOSED ? FFTW_MPI_TRANSPOSED_OUT : 0;
	unsigned int in = kind == TRANSPOSED ? FFTW_MPI_TRANSPOSED_IN : 0;
	fftw_plan forth = fftw_mpi_plan_dft_3d(n[0], n[1], n[2], slab, slab, MPI_COMM_WORLD, FFTW_FORWARD,
					       FFTW_ESTIMATE | out);
	fftw_plan back = fftw_mpi_plan_dft_3d(n[0], n[1], n[2], slab, slab, MPI_COMM_WORLD, FFTW_BACKWARD,
					      FFTW_ESTIMATE | in);
	double complex *whole = alone_complex(n);
	double plane = (double)(n[0] * n[1] * n[2]);
	double error = 0, size = 0;
	double forward;

	for (ptrdiff_t i = 0; i < rows * n[1] * n[2]; i++)
		slab[i] = element((uint64_t)(first * n[1] * n[2] + i));
	fftw_execute(forth);
	if (kind == COMPLEX) {
		for (ptrdiff_t i = 0; i < rows * n[1] * n[2]; i++) {
			error += square(slab[i] - whole[first * n[1] * n[2] + i]);
			size += square(whole[first * n[1] * n[2] + i]);
		}
	} else {
		for (ptrdiff_t j = 0; j < columns; j++)
			for (ptrdiff_t i = 0; i < n[0]; i++)
				for (ptrdiff_t k = 0; k < n[2]; k++) {
					double complex expected =
						whole[(i * n[1] + first_column + j) * n[2] + k];

					error += square(slab[(j * n[0] + i) * n[2] + k] - expected);
					size += square(expected);
				}
	}
	forward = relative(error, size);
	fftw_execute(back);
	error = size = 0;
	for (ptrdiff_t i = 0; i < rows * n[1] * n[2]; i++) {
		double complex expected = element((uint64_t)(first * n[1] * n[2] + i));

		error += square(slab[i] / plane - expected);
		size += square(expected);
	}
	report(shape, kind, forward, relative(error, size));
	fftw_destroy_plan(forth);
	fftw_destroy_plan(back);
	fftw_free(whole);
	fftw_free(slab);
}

static void transform_real(const struct shape *shape)
{
	const ptrdiff_t *n = shape->n;
	ptrdiff_t half = n[2] / 2 + 1;
	ptrdiff_t rows, first;
	ptrdiff_t room = fftw_mpi_local_size_3d(n[0], n[1], half, MPI_COMM_WORLD, &rows, &first);
	double complex *result = allocate((size_t)room * sizeof(*result));
	double *slab = allocate((size_t)(2 * room) * sizeof(*slab)); /* rows padded to 2 * half */
	fftw_plan forth =
		fftw_mpi_plan_dft_r2c_3d(n[0], n[1], n[2], slab, result, MPI_COMM_WORLD, FFTW_ESTIMATE);
	fftw_plan back =
		fftw_mpi_plan_dft_c2r_3d(n[0], n[1], n[2], result, slab, MPI_COMM_WORLD, FFTW_ESTIMATE);
	double complex *whole = alone_real(n);
	double error = 0, size = 0;
	double forward;

	for (ptrdiff_t row = 0; row < rows * n[1]; row++)
		for (ptrdiff_t k = 0; k < n[2]; k++)
			slab[row * 2 * half + k] = value((uint64_t)((first * n[1] + row) * n[2] + k));
	fftw_execute(forth);
	for (ptrdiff_t i = 0; i < rows * n[1] * half; i++) {
		double complex expected = whole[first * n[1] * half + i];

		error += square(result[i] - expected);
		size += square(expected);
	}
	forward = relative(error, size);
	fftw_execute(back);
	error = size = 0;
	for (ptrdiff_t row = 0; row < rows * n[1]; row++)
		for (ptrdiff_t k = 0; k < n[2]; k++) {
			double expected = value((uint64_t)((first * n[1] + row) * n[2] + k));
			double found = slab[row * 2 * half + k] / (double)(n[0] * n[1] * n[2]);

			error += (found - expected) * (found - expected);
			size += expected * expected;
		}
	report(shape, REAL, forward, relative(error, size));
	fftw_destroy_plan(forth);
	fftw_destroy_plan(back);
	fftw_free(whole);
	fftw_free(slab);
	fftw_free(result);
}

int main(int argc, char **argv)
{
	struct shape shape;

	MPI_Init(&argc, &argv);
	fftw_mpi_init();
	MPI_Comm_rank(MPI_COMM_WORLD, &shape.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &shape.ranks);
	if (argc != 4)
		return fail("usage: fft3d N0 N1 N2");
	for (int i = 0; i < 3; i++) {
		shape.n[i] = strtol(argv[i + 1], NULL, 10);
		if (shape.n[i] < 1 || shape.n[i] > 1024)
			return fail("each size must be between 1 and 1024");
	}
	transform_complex(&shape, COMPLEX);
	transform_complex(&shape, TRANSPOSED);
	transform_real(&shape);
	fftw_mpi_cleanup();
	MPI_Finalize();
	return 0;
}
