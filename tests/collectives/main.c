/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - collectives, an MPI program that checks each result of collective operations:
 *
 *   collectives steps SEED FIRST COUNT [OPTION...]     drawn steps, from number FIRST on
 *   collectives threads SEED THREADS COUNT [OPTION...] the same by several threads, with a communicator each
 *   collectives churn SEED COUNT                       communicators that are made, used once or twice, and
 * freed collectives sums SEED COUNT                        sums of doubles that are rounded: the same bits
 * everywhere collectives death SEED RANK MILLISECONDS HOW [OPTION...] RANK ends by HOW, kill or exit, in the
 * middle of steps
 *
 * Options: only=NAME,NAME (collective operations), bytes=N (at most, of a block), stuck=SECONDS (of a step),
 * world (no other communicator), clocks (nodes have clocks of their own), faults (what MPI libraries do wrong
 * too, which only a library that replaces theirs can pass).
 *
 * A wrong result ends the program with status 1 and a line that begins with "wrong:". A step that takes
 * longer than 60 seconds does the same with "stuck:". `steps SEED STEP 1` repeats a step. At its end each
 * rank prints "rank N: good".
 */
#include "steps.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS_MAX = 16, ENOUGH_BYTES = 1 << 30 };

static struct limits limits = {.bytes = ENOUGH_BYTES, .one_clock = true};
static unsigned patience = 60;
static char texts[THREADS_MAX][STEP_TEXT];

static void say_steps(const char *what)
{
	for (int i = 0; i < THREADS_MAX; i++)
		if (texts[i][0] != '\0') {
			dprintf(STDERR_FILENO, "%s: %s\n", what, texts[i]);
		}
}

static void is_stuck(int number)
{
	(void)number;
	say_steps("stuck");
	_exit(1);
}

static void crashed(int number)
{
	say_steps("crashed");
	signal(number, SIG_DFL);
	raise(number);
}

/* The error handler of all communicators. Not MPI_Abort(): each rank must find out by itself. */
static void report(MPI_Comm *comm, int *code, ...)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	(void)comm;
	MPI_Error_string(*code, text, &length);
	dprintf(STDERR_FILENO, "error: %s\n", text);
	say_steps("error");
	_exit(7);
}

static void run_steps(const struct communicators *all, uint64_t seed, long first, long count, char *text)
{
	for (long i = first; i < first + count; i++) {
		alarm(patience);
		step_run(all, &limits, seed, i, text);
	}
	alarm(patience);
	text[0] = '\0';
}

/* --- threads -------------------------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	MPI_Comm comm;
	uint64_t seed;
	long count;
	char *text;
};

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct communicators all;

	communicators_make(&all, worker->comm);
	run_steps(&all, worker->seed, 0, worker->count, worker->text);
	communicators_free(&all);
	return NULL;
}

static void run_threads(uint64_t seed, int threads, long count)
{
	struct worker workers[THREADS_MAX];

	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	for (int i = 0; i < threads; i++) {
		workers[i] =
			(struct worker){.seed = mix(seed, (uint64_t)i), .count = count, .text = texts[i]};
		MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
	}
	for (int i = 0; i < threads; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < threads; i++)
		MPI_Comm_free(&workers[i].comm);
}

/* --- many communicators --------------------------------------------------------------------------- */

static void use(MPI_Comm comm, long number)
{
	int rank, size, sum = 0, value;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	value = rank + (int)number;
	MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
	int root = (int)(number % size), expected = size * (size - 1) / 2 + size * (int)number;
	value = rank == root ? sum : -1;
	MPI_Bcast(&value, 1, MPI_INT, root, comm);
	if (sum != expected || value != expected) {
		fprintf(stderr, "wrong: communicator %ld: expected %d, got %d and %d\n", number, expected,
			sum, value);
		_exit(1);
	}
}

/* Up to eight communicators live, and the next one takes the place of any of them. */
static void run_churn(uint64_t seed, long count)
{
	enum { LIVE = 8 };
	MPI_Comm live[LIVE];
	struct draw draw = {seed};
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < LIVE; i++)
		live[i] = MPI_COMM_NULL;
	for (long i = 0; i < count; i++) {
		MPI_Comm *comm = &live[draw_below(&draw, LIVE)];

		alarm(patience);
		snprintf(texts[0], STEP_TEXT, "communicator %ld", i);
		if (*comm != MPI_COMM_NULL) {
			use(*comm, i);
			MPI_Comm_free(comm);
		}
		if (draw_below(&draw, 4) > 0)
			MPI_Comm_dup(MPI_COMM_WORLD, comm);
		else
			MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, comm);
		if (draw_below(&draw, 8) > 0) /* some are freed unused */
			use(*comm, i);
	}
	for (int i = 0; i < LIVE; i++)
		if (live[i] != MPI_COMM_NULL)
			MPI_Comm_free(&live[i]);
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* Each sum twice, and by allreduce and by reduce to rank 0. All ranks' bits are compared there. */
static void run_sums(uint64_t seed, long count)
{
	enum { MOST = 20000 };
	static double mine[MOST], sums[2][MOST], others[MOST];
	int rank, size;
	uint64_t hash = seed;
	struct draw all = {seed};

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	struct draw own = {mix(seed, (uint64_t)rank)};
	for (long i = 0; i < count; i++) {
		int length = (int[]){1, 7, 300, 5000, MOST}[draw_below(&all, 5)];
		size_t bytes = (size_t)length * sizeof *mine;

		alarm(patience);
		snprintf(texts[0], STEP_TEXT, "sum %ld", i);
		for (int j = 0; j < length; j++) {
			double value = 1.0 / (3 + draw_below(&own, 1000));

			for (int scale = draw_below(&own, 40); scale > 0; scale--)
				value *= 10;
			mine[j] = draw_below(&own, 2) ? value : -value;
		}
		for (int j = 0; j < 2; j++)
			MPI_Allreduce(mine, sums[j], length, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		if (memcmp(sums[0], sums[1], bytes) != 0) {
			fprintf(stderr, "wrong: sum %ld of %d doubles differs when it is repeated\n", i,
				length);
			_exit(1);
		}
		if (rank > 0) {
			MPI_Send(sums[0], length, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
			continue;
		}
		for (int j = 1; j < size; j++) {
			MPI_Recv(others, length, MPI_DOUBLE, j, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (memcmp(others, sums[0], bytes) != 0) {
				fprintf(stderr,
					"wrong: sum %ld of %d doubles differs between ranks 0 and %d\n", i,
					length, j);
				_exit(1);
			}
		}
		for (int j = 0; j < length; j++) {
			uint64_t bits;

			memcpy(&bits, &sums[0][j], sizeof bits);
			hash = mix(hash, bits);
		}
	}
	if (rank == 0)
		printf("sums %016llx\n", (unsigned long long)hash);
}

/* --- death ---------------------------------------------------------------------------------------- */

static void die_by_kill(int number)
{
	(void)number;
	kill(getpid(), SIGKILL);
}

static void die_by_exit(int number)
{
	(void)number;
	_exit(0);
}

/* Never returns: the ranks that are left get an error, or are ended by their launcher. */
static void run_death(uint64_t seed, int victim, int milliseconds, bool by_kill)
{
	struct itimerval timer = {.it_value = {milliseconds / 1000, (milliseconds % 1000 + 1) * 1000}};
	struct communicators all;
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	communicators_make(&all, MPI_COMM_WORLD);
	run_steps(&all, seed, 0, 5, texts[0]);
	alarm(0);
	if (rank == victim) {
		signal(SIGALRM, by_kill ? die_by_kill : die_by_exit);
		setitimer(ITIMER_REAL, &timer, NULL);
		for (long i = 5;; i++)
			step_run(&all, &limits, seed, i, texts[0]);
	}
	for (long i = 5;; i++)
		run_steps(&all, seed, i, 1, texts[0]);
}

/* --- the command line ----------------------------------------------------------------------------- */

static void refuse(const char *what)
{
	fprintf(stderr, "collectives: %s: see the beginning of main.c\n", what);
	exit(2);
}

static void take_option(const char *option)
{
	if (strncmp(option, "only=", 5) == 0)
		limits.only = option + 5;
	else if (strncmp(option, "bytes=", 6) == 0)
		limits.bytes = strtoul(option + 6, NULL, 10);
	else if (strncmp(option, "stuck=", 6) == 0)
		patience = (unsigned)strtoul(option + 6, NULL, 10);
	else if (strcmp(option, "world") == 0)
		limits.world = true;
	else if (strcmp(option, "clocks") == 0)
		limits.one_clock = false;
	else if (strcmp(option, "faults") == 0)
		limits.faults = true;
	else
		refuse(option);
}

static bool is_name(const char *name, size_t length)
{
	for (const char *const *each = collective_names; *each != NULL; each++)
		if (strlen(*each) == length && strncmp(*each, name, length) == 0)
			return true;
	return false;
}

static void check_names(const char *only)
{
	while (only != NULL) {
		if (!is_name(only, strcspn(only, ",")))
			refuse("only= names no collective operation");
		only = strchr(only, ',');
		only = only != NULL ? only + 1 : NULL;
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int numbers;
	} modes[] = {{"steps", 3}, {"threads", 3}, {"churn", 2}, {"sums", 2}, {"death", 4}};
	const char *mode = argc > 1 ? argv[1] : "";
	int numbers = -1, provided, rank;
	MPI_Errhandler handler;

	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		if (strcmp(mode, modes[i].name) == 0)
			numbers = modes[i].numbers;
	if (numbers < 0 || argc < 2 + numbers)
		refuse("no mode, or numbers are missing");
	for (int i = 2 + numbers; i < argc; i++)
		take_option(argv[i]);
	check_names(limits.only);
	signal(SIGALRM, is_stuck);
	signal(SIGSEGV, crashed);
	signal(SIGABRT, crashed);
	signal(SIGFPE, crashed);
	signal(SIGBUS, crashed);
	alarm(patience);

	bool threads = strcmp(mode, "threads") == 0;
	uint64_t seed = strtoull(argv[2], NULL, 10);
	long second = strtol(argv[3], NULL, 10), third = numbers > 2 ? strtol(argv[4], NULL, 10) : 0;

	MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
	MPI_Comm_create_errhandler(report, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	types_begin();
	if (threads && provided < MPI_THREAD_MULTIPLE)
		refuse("this MPI has no MPI_THREAD_MULTIPLE");
	if (strcmp(mode, "steps") == 0) {
		struct communicators all;

		communicators_make(&all, MPI_COMM_WORLD);
		run_steps(&all, seed, second, third, texts[0]);
		communicators_free(&all);
	} else if (threads) {
		run_threads(seed, (int)second, third);
	} else if (strcmp(mode, "churn") == 0) {
		run_churn(seed, second);
	} else if (strcmp(mode, "sums") == 0) {
		run_sums(seed, second);
	} else {
		run_death(seed, (int)second, (int)third, strcmp(argv[5], "kill") == 0);
	}
	printf("rank %d: good\n", rank);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
