/*
 * The last rank accumulates pairs at the first, which checks each: "pair_ranks" all types of pairs except
 * MPI_SHORT_INT, "pair_ranks short" only that type. Prints each error and its amount.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 1000
#define CASES(run) \
	run(FLOAT_INT, float) run(DOUBLE_INT, double) run(LONG_INT, long) run(2INT, int) \
		run(LONG_DOUBLE_INT, long double)

static int rank;
static int size;
static int wrong;

static void check(int good, const char *what, int count)
{
	if (!good && wrong++ < 10)
		fprintf(stderr, "%s of %d is wrong\n", what, count);
}

/* Three parts of a window: for accumulate, for get_accumulate and one pair for fetch_and_op. */
#define CASE(name, number) \
	static void try_##name(int count) \
	{ \
		MPI_Datatype type = MPI_##name; \
		struct pair { \
			number value; \
			int index; \
		}; \
		struct pair *base; \
		struct pair *mine = calloc(2 * MOST, sizeof(*mine)); \
		struct pair *got = mine + MOST; \
		struct pair one = {0, 0}; \
		MPI_Win window; \
		MPI_Win_allocate((2 * MOST + 1) * (MPI_Aint)sizeof(*base), sizeof(*base), MPI_INFO_NULL, \
				 MPI_COMM_WORLD, &base, &window); \
		for (int i = 0; i < 2 * MOST + 1; i++) \
			base[i] = (struct pair){-1, -1}; \
		for (int i = 0; i < MOST; i++) \
			mine[i] = (struct pair){(number)size, 0x10203 + i}; \
		MPI_Win_fence(0, window); \
		if (rank == size - 1) \
			MPI_Accumulate(mine, count, type, 0, 0, count, type, MPI_MAXLOC, window); \
		MPI_Win_fence(0, window); \
		if (rank == size - 1) { \
			MPI_Get_accumulate(mine, count, type, got, count, type, 0, MOST, count, type, \
					   MPI_MAXLOC, window); \
			MPI_Fetch_and_op(mine, &one, type, 0, (MPI_Aint)2 * MOST, MPI_MAXLOC, window); \
		} \
		MPI_Win_fence(0, window); \
		for (int i = 0; i < count && rank == size - 1; i++) \
			check(got[i].value == -1 && got[i].index == -1, "fetched " #name, count); \
		check(rank != size - 1 || (one.value == -1 && one.index == -1), "fetched one " #name, 1); \
		for (int i = 0; i < MOST && rank == 0; i++) { \
			number value = i < count ? (number)size : -1; \
			int index = i < count ? 0x10203 + i : -1; \
			check(base[i].value == value && base[i].index == index, #name, count); \
			check(base[MOST + i].value == value && base[MOST + i].index == index, "get " #name, \
			      count); \
		} \
		check(rank != 0 || base[2 * MOST].index == 0x10203, "one " #name, 1); \
		MPI_Win_fence(0, window); \
		MPI_Win_free(&window); \
		free(mine); \
	}

CASES(CASE)
CASE(SHORT_INT, short)

#define RUN(name, number) try_##name(counts[i]);

int main(int count, char **arguments)
{
	static const int counts[] = {1, 3, MOST};
	int all = 0;

	(void)arguments;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (count > 1) {
			RUN(SHORT_INT, short)
		} else {
			CASES(RUN)
		}
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d wrong\n", all);
	MPI_Finalize();
	return 0;
}
