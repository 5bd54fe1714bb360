/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exchange - the time of a message between two processes, by libfabric alone.
 *
 * Two processes, each on its own CPU, exchange messages. With a WINDOW of 0 they bounce 8 bytes.
 * Otherwise the first sends WINDOW messages of SIZE bytes at once, and the second answers when it
 * has received all of them. A run takes a third of a second and starts no MPI, so that two builds
 * of a provider can alternate a hundred times in a minute: tests/bench/before_after.py does that.
 * The program prints one JSON object: the nanoseconds of a message (half of a round trip, or the
 * time of a window divided by its messages), in the median and in the fastest repetition.
 *
 *     exchange CPU CPU SIZE WINDOW
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PROGRAM "exchange"
#include "bounce.h"

#define MESSAGE_MAX (1 << 20)
#define WINDOW_MAX 64
#define BUFFER_BYTES ((size_t)16 << 20) /* messages of a window share it, if they are long */
#define REPETITIONS 5
/* A repetition has messages of about REPETITION_BYTES, but at most REPETITION_MESSAGES. */
#define REPETITION_BYTES (3 << 20)
#define REPETITION_MESSAGES 20000
#define SECONDS_MAX 30 /* ends a program that hangs */

/* What the processes exchange outside of libfabric, through memory. */
struct common {
	struct name ends[ENDS];
	volatile int named[ENDS];
};

static struct fi_context2 contexts[WINDOW_MAX];
static unsigned char *buffer;

static unsigned char *part(int message, int size)
{
	size_t stride = ((size_t)size + 63) / 64 * 64;

	return buffer + (size_t)message * stride % BUFFER_BYTES;
}

/* Reads completions without waiting. Returns their number. */
static int read_some(struct side *side)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t result = fi_cq_read(side->cq, entries, 16);

	if (result == -FI_EAGAIN)
		return 0;
	check(result, "fi_cq_read");
	return (int)result;
}

/* Messages of a repetition: a whole number of round trips or windows. */
static int messages_of(int size, int window)
{
	int messages =
		REPETITION_BYTES / size < REPETITION_MESSAGES ? REPETITION_BYTES / size : REPETITION_MESSAGES;
	int together = window == 0 ? 2 : window;

	return (messages + together - 1) / together * together;
}

static void send_window(struct side *side, fi_addr_t other, int size, int window)
{
	int done = 0;

	expect(side, other, BOUNCE);
	for (int message = 0; message < window; message++) {
		ssize_t result;
		while ((result = fi_tsend(side->endpoint, part(message, size), (size_t)size, NULL, other,
					  LEFT, &contexts[message])) == -FI_EAGAIN)
			done += read_some(side);
		check(result, "fi_tsend");
	}
	while (done < window + 1) /* the sends, and the answer */
		done += read_some(side);
}

static void receive_window(struct side *side, fi_addr_t other, int size, int window)
{
	int done = 0;

	for (int message = 0; message < window; message++)
		check(fi_trecv(side->endpoint, part(message, size), (size_t)size, NULL, other, LEFT, 0,
			       &contexts[message]),
		      "fi_trecv");
	while (done < window)
		done += read_some(side);
	send_to(side, other, BOUNCE);
}

static void repeat(struct side *side, fi_addr_t other, int end, int size, int window)
{
	int messages = messages_of(size, window);

	if (window == 0) {
		bounce(side, other, end, messages / 2);
		return;
	}
	for (int sent = 0; sent < messages; sent += window) {
		if (end == LEFT)
			send_window(side, other, size, window);
		else
			receive_window(side, other, size, window);
	}
}

static void be_an_end(struct common *common, int end, int cpu, int size, int window)
{
	struct side side = {0};
	double times[REPETITIONS];
	int messages = messages_of(size, window);

	pin(cpu);
	buffer = calloc(1, BUFFER_BYTES + MESSAGE_MAX);
	if (buffer == NULL)
		check(-FI_ENOMEM, "calloc");
	open_side(&side);
	name_of(&side, &common->ends[end]);
	tell(&common->named[end]);
	await(&common->named[ENDS - 1 - end]);
	fi_addr_t other = know(&side, &common->ends[ENDS - 1 - end]);
	repeat(&side, other, end, size, window); /* untimed: connects, and touches all memory */
	for (int repetition = 0; repetition < REPETITIONS; repetition++) {
		double start = now_ns();
		repeat(&side, other, end, size, window);
		times[repetition] = (now_ns() - start) / messages;
	}
	qsort(times, REPETITIONS, sizeof(times[0]), compare);
	if (end == LEFT)
		printf("{\"size\": %d, \"window\": %d, \"nanoseconds\": %.3f, \"fastest_nanoseconds\": "
		       "%.3f}\n",
		       size, window, times[REPETITIONS / 2], times[0]);
	fflush(stdout);
	close_side(&side);
	free(buffer);
}

int main(int argc, char **argv)
{
	int cpus[ENDS] = {-1, -1}, size = -1, window = -1, status = 0;
	struct common *common =
		mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (argc == 5) {
		cpus[LEFT] = number(argv[1], CPU_SETSIZE - 1);
		cpus[RIGHT] = number(argv[2], CPU_SETSIZE - 1);
		size = number(argv[3], MESSAGE_MAX);
		window = number(argv[4], WINDOW_MAX);
	}
	if (cpus[LEFT] < 0 || cpus[RIGHT] < 0 || size < 1 || window < 0 || (window == 0 && size != 8)) {
		fprintf(stderr,
			"exchange: error: use exchange CPU CPU SIZE WINDOW, with 1 to %d bytes and a "
			"window of at most %d messages, or 8 bytes and a window of 0\n",
			MESSAGE_MAX, WINDOW_MAX);
		return 2;
	}
	if (common == MAP_FAILED)
		check(-FI_ENOMEM, "mmap");
	pid_t child = fork();
	if (child < 0)
		check(-FI_ENOMEM, "fork");
	alarm(SECONDS_MAX);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		be_an_end(common, RIGHT, cpus[RIGHT], size, window);
		return 0;
	}
	be_an_end(common, LEFT, cpus[LEFT], size, window);
	waitpid(child, &status, 0);
	return status == 0 ? 0 : 1;
}
