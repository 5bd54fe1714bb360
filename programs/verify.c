/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify - checks that every message is delivered whole, once, in order, and to the right receive.
 *
 * Works with 2 ranks or more. Each check has a name. Rank 0 prints one JSON object for each check
 * with the messages, bytes and errors of all ranks, and the text of the first error. The exit
 * status is 1 if any byte or result was wrong.
 *
 *     mpiexec -n 2 verify [--seed N] [--max-size BYTES] [--rounds N] [--only CHECK] [--skip CHECK]
 */
#include "verify.h"
#include "refuse.h"

struct job job;

static const char *only = "", *skip = ""; /* names of checks; empty: all, or none */

static const struct check {
	const char *name;
	void (*run)(struct tally *tally);
} checks[] = {
	{"sizes", check_sizes},       {"sendrecv", check_sendrecv},     {"order", check_order},
	{"self", check_self},         {"storm", check_storm},           {"collectives", check_collectives},
	{"tags", check_tags},         {"any-source", check_any_source}, {"unexpected", check_unexpected},
	{"ssend", check_ssend},       {"probe", check_probe},           {"cancel", check_cancel},
	{"truncate", check_truncate},
};

/* Sum the results of all ranks, print them on rank 0, and return the number of errors. */
static uint64_t report(const char *name, const struct tally *tally)
{
	uint64_t mine[3] = {tally->messages, tally->bytes, tally->errors}, all[3];
	int first_rank, candidate = tally->errors > 0 ? job.rank : job.ranks;
	char first[sizeof(tally->first)];

	MPI_Allreduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(&candidate, &first_rank, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	memcpy(first, tally->first, sizeof(first));
	MPI_Bcast(first, (int)sizeof(first), MPI_CHAR, first_rank < job.ranks ? first_rank : 0,
		  MPI_COMM_WORLD);
	if (job.rank == 0) {
		printf("{\"check\": \"%s\", \"messages\": %llu, \"bytes\": %llu, \"errors\": %llu, "
		       "\"first_error\": ",
		       name, (unsigned long long)all[0], (unsigned long long)all[1],
		       (unsigned long long)all[2]);
		if (all[2] == 0)
			printf("null}\n");
		else
			printf("\"rank %d: %s\"}\n", first_rank, first);
		fflush(stdout);
	}
	return all[2];
}

/* Ends the job with one line that says what is wrong with the arguments. */
__attribute__((noreturn)) static void usage(const char *problem)
{
	refuse("verify: error: %s: use verify [--seed N] [--max-size BYTES] [--rounds N] "
	       "[--only CHECK] [--skip CHECK]\n",
	       problem);
}

static void read_options(int argc, char **argv)
{
	job.seed = 1;
	job.max_size = 4 << 20;
	job.rounds = 5;
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			usage("an option without its value");
		if (strcmp(argv[i], "--seed") == 0)
			job.seed = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--max-size") == 0)
			job.max_size = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--rounds") == 0)
			job.rounds = (int)strtol(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--only") == 0)
			only = argv[i + 1];
		else if (strcmp(argv[i], "--skip") == 0)
			skip = argv[i + 1];
		else
			usage("an option that does not exist");
	}
}

int main(int argc, char **argv)
{
	uint64_t errors = 0;
	int ran = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
	job.right = (job.rank + 1) % job.ranks;
	job.left = (job.rank + job.ranks - 1) % job.ranks;
	job.partner = (job.rank ^ 1) < job.ranks ? job.rank ^ 1 : -1;
	read_options(argc, argv);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		struct tally tally = {0};

		if ((only[0] != '\0' && strcmp(only, checks[i].name) != 0) ||
		    strcmp(skip, checks[i].name) == 0)
			continue;
		MPI_Barrier(MPI_COMM_WORLD);
		checks[i].run(&tally);
		errors += report(checks[i].name, &tally);
		ran++;
	}
	if (ran == 0)
		usage("no check has that name");
	MPI_Finalize();
	return errors == 0 ? 0 : 1;
}
