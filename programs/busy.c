/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * busy - the time of sends to a rank that computes, and of messages with a third rank meanwhile.
 *
 * Rank 1 is outside of MPI for some seconds. Meanwhile rank 0 exchanges messages with rank 2: first
 * without other traffic (usual), then one after every few of the MPI_Isend that it posts to rank 1
 * (between), and then with all of these sends posted (after). Then rank 1 receives everything, and
 * is outside of MPI again while ranks 0 and 2 exchange messages at the intervals that the sends had
 * caused (apart). Times of exchanges are round trips. If a send waits for its receiver, it takes
 * the rest of rank 1's seconds. The processor time of a send is printed too, because on a machine
 * with more work than cores a send may take long only because its process does not run.
 *
 *     mpiexec -n 3 busy [--sizes 0,8] [--count 4000] [--repetitions 1] [--seconds 1] [--exchanges 1000]
 *             [--exchanged 8]
 *
 * `sizes` and `count` apply to the messages to rank 1; `exchanged` is the size of messages to and
 * from rank 2.
 */
#define MEASURE_ARGUMENTS \
	"[--sizes BYTES,...] [--count N] [--repetitions N] [--seconds S] [--exchanges N] [--exchanged " \
	"BYTES]"
#include "measure.h"

#include <time.h>

enum { TAG = 7, BETWEEN = 40 };

struct busy {
	struct measure_options common;
	int count;
	int exchanges;
	int exchanged;
	char *buffer;
	char *third; /* messages to and from rank 2 */
	double *times;
	MPI_Request *requests;
};

struct spread {
	double median;
	double most;
};

static int by_length(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static struct spread spread_of(double *times, int count)
{
	qsort(times, (size_t)count, sizeof(*times), by_length);
	return (struct spread){times[count / 2], times[count - 1]};
}

static void print_spread(const char *name, struct spread spread)
{
	printf(", \"%s_us\": %.3f, \"%s_longest_us\": %.1f", name, spread.median * 1e6, name,
	       spread.most * 1e6);
}

static double seconds_of(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double exchange(const struct busy *busy)
{
	double start = MPI_Wtime();

	MPI_Send(busy->third, busy->exchanged, MPI_CHAR, 2, TAG, MPI_COMM_WORLD);
	MPI_Recv(busy->third, busy->exchanged, MPI_CHAR, 2, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return MPI_Wtime() - start;
}

static struct spread exchange_often(const struct busy *busy)
{
	for (int i = 0; i < busy->exchanges; i++)
		busy->times[i] = exchange(busy);
	return spread_of(busy->times, busy->exchanges);
}

/*
 * The loop between two exchanges reads the clock as often as post() does, because these system
 * calls slow what follows. The time itself slows an exchange, too: rank 2 waits longer, and both
 * ranks come back to colder caches.
 */
static struct spread exchange_apart(const struct busy *busy, double gap)
{
	for (int i = 0; i < BETWEEN; i++) {
		double start = MPI_Wtime();

		while (MPI_Wtime() - start < gap)
			(void)seconds_of(CLOCK_THREAD_CPUTIME_ID);
		busy->times[i] = exchange(busy);
	}
	return spread_of(busy->times, BETWEEN);
}

static void answer(const struct busy *busy, int count)
{
	for (int i = 0; i < count; i++) {
		MPI_Recv(busy->third, busy->exchanged, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(busy->third, busy->exchanged, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
	}
}

static void compute(double seconds)
{
	double whole = (double)(time_t)seconds;
	const struct timespec pause = {(time_t)seconds, (long)((seconds - whole) * 1e9)};

	(void)nanosleep(&pause, NULL);
}

/* Resident memory of this process in KiB, or 0 if unknown. */
static long resident(void)
{
	char line[256] = "";
	char *rest = line;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file == NULL)
		return 0;
	if (fgets(line, sizeof(line), file) != NULL)
		(void)strtol(line, &rest, 10); /* the first number is the size of the address space */
	fclose(file);
	long pages = strtol(rest, NULL, 10);
	return pages * (long)(MEASURE_PAGE / 1024);
}

struct posted {
	struct spread sends;
	struct spread between;
	double processor; /* the largest processor time of a send, in seconds */
	double seconds;   /* total of all sends */
	double gap;       /* seconds from one exchange to the next: the sends, and the time to measure them */
};

static struct posted post(const struct busy *busy, size_t size)
{
	double between[BETWEEN];
	int every = busy->count / BETWEEN, done = 0;
	struct posted posted = {.processor = 0};
	double exchanged = 0, began = MPI_Wtime();

	for (int i = 0; i < busy->count; i++) {
		double processor = seconds_of(CLOCK_THREAD_CPUTIME_ID), start = MPI_Wtime();

		MPI_Isend(busy->buffer, (int)size, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &busy->requests[i]);
		busy->times[i] = MPI_Wtime() - start;
		processor = seconds_of(CLOCK_THREAD_CPUTIME_ID) - processor;
		posted.processor = processor > posted.processor ? processor : posted.processor;
		posted.seconds += busy->times[i];
		if (i % every == every - 1 && done < BETWEEN) {
			between[done] = exchange(busy);
			exchanged += between[done++];
		}
	}
	posted.gap = (MPI_Wtime() - began - exchanged) / BETWEEN;
	posted.sends = spread_of(busy->times, busy->count);
	posted.between = spread_of(between, BETWEEN);
	return posted;
}

/* Rank 0's part. */
static void flood(const struct busy *busy, size_t size, int repetition)
{
	struct spread usual = exchange_often(busy);
	long before = resident();
	double start = MPI_Wtime();
	struct posted posted = post(busy, size);
	long grown = resident() - before;
	struct spread after = exchange_often(busy);
	double meanwhile = MPI_Wtime() - start;

	MPI_Waitall(busy->count, busy->requests, MPI_STATUSES_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	struct spread apart = exchange_apart(busy, posted.gap);
	printf("{\"size\": %zu, \"repetition\": %d, \"count\": %d, \"meanwhile_seconds\": %.3f", size,
	       repetition, busy->count, meanwhile);
	print_spread("send", posted.sends);
	printf(", \"send_processor_us\": %.1f, \"sends_ms\": %.3f, \"gap_us\": %.3f, \"kilobytes\": %ld",
	       posted.processor * 1e6, posted.seconds * 1e3, posted.gap * 1e6, grown);
	print_spread("usual", usual);
	print_spread("after", after);
	print_spread("apart", apart);
	print_spread("between", posted.between);
	printf("}\n");
	fflush(stdout);
}

/* Rank 1's part. */
static void receive(const struct busy *busy, size_t size)
{
	compute(busy->common.seconds);
	for (int i = 0; i < busy->count; i++)
		MPI_Recv(busy->buffer, (int)size, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	compute(busy->common.seconds / 4);
}

/* Rank 2's part. */
static void answer_all(const struct busy *busy)
{
	answer(busy, 2 * busy->exchanges + BETWEEN);
	MPI_Barrier(MPI_COMM_WORLD);
	answer(busy, BETWEEN);
}

static struct busy read_arguments(int argc, char **argv)
{
	struct busy busy = {
		.common = {.repetitions = 1, .seconds = 1}, .count = 4000, .exchanges = 1000, .exchanged = 8};
	struct measure_options *common = &busy.common;

	measure_sizes(argv[0], "0,8,100,400,1000,4000,16000,100000", common);
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			measure_usage(argv[0], "an option without its value");
		if (strcmp(argv[i], "--sizes") == 0)
			measure_sizes(argv[0], argv[i + 1], common);
		else if (strcmp(argv[i], "--count") == 0)
			busy.count = (int)measure_number(argv[0], argv[i + 1]);
		else if (strcmp(argv[i], "--repetitions") == 0)
			common->repetitions = (int)measure_number(argv[0], argv[i + 1]);
		else if (strcmp(argv[i], "--exchanges") == 0)
			busy.exchanges = (int)measure_number(argv[0], argv[i + 1]);
		else if (strcmp(argv[i], "--exchanged") == 0)
			busy.exchanged = (int)measure_number(argv[0], argv[i + 1]);
		else if (strcmp(argv[i], "--seconds") == 0)
			common->seconds = strtod(argv[i + 1], NULL);
		else
			measure_usage(argv[0], "an option that does not exist");
	}
	if (busy.count < BETWEEN || busy.exchanges < BETWEEN || common->repetitions < 1)
		measure_usage(argv[0], "--count and --exchanges start at 40, --repetitions at 1");
	if (!(common->seconds > 0))
		measure_usage(argv[0], "--seconds is not a time");
	return busy;
}

int main(int argc, char **argv)
{
	struct busy busy;
	size_t largest = 0;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 3)
		refuse("busy: error: started with %d ranks: start it with 3\n", ranks);
	busy = read_arguments(argc, argv);
	for (int i = 0; i < busy.common.size_count; i++)
		largest = busy.common.sizes[i] > largest ? busy.common.sizes[i] : largest;
	busy.buffer = measure_buffer(largest);
	busy.third = measure_buffer((size_t)busy.exchanged);
	busy.times = measure_buffer(sizeof(double) *
				    (size_t)(busy.count > busy.exchanges ? busy.count : busy.exchanges));
	busy.requests = measure_buffer(sizeof(MPI_Request) * (size_t)busy.count);
	measure_print_run("busy", rank, ranks);
	for (int i = 0; i < busy.common.size_count * busy.common.repetitions; i++) {
		size_t size = busy.common.sizes[i % busy.common.size_count];

		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			flood(&busy, size, i / busy.common.size_count);
		else if (rank == 1)
			receive(&busy, size);
		else if (rank == 2)
			answer_all(&busy);
	}
	MPI_Finalize();
	return 0;
}
