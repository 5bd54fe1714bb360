/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform - Fourier transforms of a cube of complex numbers over all ranks, and the part of their
 * time that is communication.
 *
 * An iteration is:
 *     sine       a product of sines to its spectrum and back
 *     rand       random numbers to their spectrum and back
 *     inverse    a random spectrum to space and back
 *     spec       random numbers to their spectrum, the power in its shells, and back
 *
 * Before the measurement, the known spectrum of the sines is checked. After it, the program checks
 * that the numbers are as before. After one untimed iteration there are `iterations` iterations, or
 * fewer if they would take longer than `seconds`. Rank 0 prints JSON lines: about the run, then for
 * each rank the nanoseconds of every iteration and of its part in MPI, then the number of ranks.
 *
 *     mpiexec -n 4 transform rand --size 64 [--iterations 100] [--seconds 10]
 */
#include "transform.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>

#define PI 3.14159265358979323846
#define SIZE_MAX_ALLOWED 1024
#define ALLOWED 1e-10 /* maximum error: rounding causes about 1e-15 in each iteration */
#define TAG_TIMES 1
#define BILLION 1e9

enum operation { SINE, RAND, INVERSE, SPEC, OPERATIONS };

static const char *const names[] = {"sine", "rand", "inverse", "spec"};

struct options {
	enum operation operation;
	int size;
	long iterations;
	double seconds;
};

static struct options read_options(int argc, char **argv, int ranks)
{
	struct options options = {.operation = OPERATIONS, .size = 64, .iterations = 100, .seconds = 10};

	for (int i = 0; argc > 1 && i < OPERATIONS; i++)
		if (strcmp(argv[1], names[i]) == 0)
			options.operation = (enum operation)i;
	if (options.operation == OPERATIONS)
		measure_usage("transform", "OPERATION is sine, rand, inverse or spec");
	for (int i = 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--size") == 0)
			options.size = (int)measure_number("transform", argv[i + 1]);
		else if (strcmp(argv[i], "--iterations") == 0)
			options.iterations = measure_number("transform", argv[i + 1]);
		else if (strcmp(argv[i], "--seconds") == 0)
			options.seconds = strtod(argv[i + 1], NULL);
		else
			measure_usage("transform", "an option that does not exist");
	}
	if (argc % 2 != 0)
		measure_usage("transform", "an option without its value");
	if (options.size < 4 || options.size > SIZE_MAX_ALLOWED || (options.size & (options.size - 1)) != 0)
		measure_usage("transform", "--size is a power of two from 4 to 1024");
	if (options.size < ranks)
		measure_usage("transform", "--size is at least the number of ranks");
	if (options.iterations < 1 || options.iterations > INT32_MAX / 2 || !(options.seconds > 0))
		measure_usage("transform", "--iterations and --seconds are more than 0");
	return options;
}

/*
 * A number between -1 and 1 by splitmix64. It depends only on the index, not on the number of
 * ranks.
 */
static double random_at(uint64_t index)
{
	uint64_t mixed = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30U) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27U) * UINT64_C(0x94d049bb133111eb);
	mixed ^= mixed >> 31U;
	return (double)(mixed >> 11U) * 0x1p-52 - 1;
}

static number start_at(const struct cube *cube, enum operation operation, size_t i)
{
	size_t edge = (size_t)cube->size;
	size_t z = i / (edge * edge) + (size_t)cube_layer(cube, cube->rank), y = i / edge % edge,
	       x = i % edge;
	double step = 2 * PI / cube->size;

	if (operation == SINE)
		return sin(step * (double)x) * sin(step * (double)y) * sin(step * (double)z);
	return random_at(2 * ((z * edge + y) * edge + x)) +
	       I * random_at(2 * ((z * edge + y) * edge + x) + 1);
}

static void start(struct cube *cube, enum operation operation)
{
	for (size_t i = 0; i < cube_numbers(cube); i++)
		cube->numbers[i] = start_at(cube, operation, i);
}

static void iterate(struct cube *cube, enum operation operation, double *shells)
{
	if (operation == INVERSE)
		cube_backward(cube);
	cube_forward(cube);
	if (operation == SPEC)
		cube_spectrum(cube, shells);
	if (operation != INVERSE)
		cube_backward(cube);
}

/* The larger of two errors. NaN counts as infinite. */
static double worse(double error, double other)
{
	if (other <= error)
		return error;
	return isnan(other) ? INFINITY : other;
}

static void check(double error, const char *what)
{
	double worst;

	MPI_Allreduce(&error, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (worst > ALLOWED)
		refuse("transform: error: %s is wrong by %g: the figures would be invalid\n", what, worst);
}

/*
 * The spectrum of sin x sin y sin z: i/8 of the number of points, with either sign, where each wave
 * number is ±1.
 */
static void check_sines(struct cube *cube)
{
	double error = 0, all = (double)cube->size * cube->size * cube->size;
	const number *at = cube->numbers;

	start(cube, SINE);
	cube_forward(cube);
	for (int z = 0; z < cube->size; z++) {
		for (int y = cube_layer(cube, cube->rank); y < cube_layer(cube, cube->rank + 1); y++) {
			for (int x = 0; x < cube->size; x++, at++) {
				int indices[] = {x, y, z};
				number wanted = 1;

				for (int axis = 0; axis < 3; axis++) {
					if (indices[axis] == 1)
						wanted *= -I / 2;
					else
						wanted *= indices[axis] == cube->size - 1 ? I / 2 : 0;
				}
				error = worse(error, cabs(*at / all - wanted));
			}
		}
	}
	check(error, "the spectrum of sines");
}

static void check_same(const struct cube *cube, enum operation operation)
{
	double error = 0;

	for (size_t i = 0; i < cube_numbers(cube); i++)
		error = worse(error, cabs(cube->numbers[i] - start_at(cube, operation, i)));
	check(error, "the transform there and back");
}

/* Nanoseconds of each iteration on this rank, and of its part in MPI. */
struct times {
	int64_t *all;
	int64_t *communication;
	long count;
};

static struct times measure(struct cube *cube, const struct options *options)
{
	double *shells = measure_buffer((size_t)cube->size * sizeof(*shells)), took = MPI_Wtime(), last;
	struct times times = {.count = options->iterations};

	iterate(cube, options->operation, shells);
	took = MPI_Wtime() - took;
	if (took > 0 && options->seconds / took < (double)times.count)
		times.count = options->seconds / took < ITERATIONS_MIN ? ITERATIONS_MIN
								       : (long)(options->seconds / took);
	if (times.count > options->iterations)
		times.count = options->iterations;
	MPI_Bcast(&times.count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	times.all = measure_buffer((size_t)times.count * sizeof(*times.all));
	times.communication = measure_buffer((size_t)times.count * sizeof(*times.communication));
	MPI_Barrier(MPI_COMM_WORLD);
	last = MPI_Wtime();
	for (long i = 0; i < times.count; i++) {
		double now;

		cube->communicated = 0;
		iterate(cube, options->operation, shells);
		now = MPI_Wtime();
		times.all[i] = llround((now - last) * BILLION);
		times.communication[i] = llround(cube->communicated * BILLION);
		last = now;
	}
	free(shells);
	return times;
}

static void print_list(const char *name, const int64_t *values, long count)
{
	printf("\"%s\": [", name);
	for (long i = 0; i < count; i++)
		printf("%s%" PRId64, i == 0 ? "" : ", ", values[i]);
	printf("]");
}

static void print(const struct cube *cube, const struct options *options, struct times *times)
{
	int count = (int)times->count;

	if (cube->rank != 0) {
		MPI_Send(times->all, count, MPI_INT64_T, 0, TAG_TIMES, MPI_COMM_WORLD);
		MPI_Send(times->communication, count, MPI_INT64_T, 0, TAG_TIMES, MPI_COMM_WORLD);
		return;
	}
	printf("{\"operation\": \"%s\", \"size\": %d, \"iterations\": %d}\n", names[options->operation],
	       options->size, count);
	for (int rank = 0; rank < cube->ranks; rank++) {
		if (rank > 0) {
			MPI_Recv(times->all, count, MPI_INT64_T, rank, TAG_TIMES, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			MPI_Recv(times->communication, count, MPI_INT64_T, rank, TAG_TIMES, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
		}
		printf("{\"rank\": %d, ", rank);
		print_list("nanoseconds", times->all, count);
		printf(", ");
		print_list("communication", times->communication, count);
		printf("}\n");
	}
	printf("{\"end\": true, \"ranks\": %d}\n", cube->ranks);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct options options;
	struct times times;
	struct cube cube;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	options = read_options(argc, argv, ranks);
	measure_print_run("transform", rank, ranks);
	cube = cube_open(options.size);
	check_sines(&cube);
	start(&cube, options.operation);
	times = measure(&cube, &options);
	check_same(&cube, options.operation);
	print(&cube, &options, &times);
	free(times.all);
	free(times.communication);
	cube_close(&cube);
	MPI_Finalize();
	return 0;
}
