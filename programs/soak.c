/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak - every rank sends messages of random size, tag and mode to random other ranks for a while,
 * and writes, reads and counts in their windows.
 *
 * Half of the messages meet posted wildcard receives, half are probed for. Each message must arrive
 * once, whole, and in the order of sending. All messages are counted, and so is the longest time
 * between two messages on any rank. Another program may disturb the job meanwhile.
 *
 *     mpiexec -n 8 soak [SECONDS [SEED]]
 *
 * The job ends earlier if one or all of the ranks get SIGUSR2. The contents of a message follow
 * from its number between two ranks, so a receiver knows what must arrive.
 */
#include "pattern.h"
#include "refuse.h"

#include <signal.h>

#define SIZE_MOST (2U << 20)
#define SENDS_AT_ONCE 8
#define RECEIVES_AT_ONCE 8
#define PART_BYTES (256U * 1024U) /* each rank's part of a window */
#define TAGS 1000
#define TAG_BYE 1000 /* the last message to a rank: the number of messages */
#define TAG_END 1001 /* from a rank to itself, to complete the remaining receives */

enum { POSTED, PROBED, CHANNELS };

static int rank, ranks;
static uint64_t seed, state;
static MPI_Comm channels[CHANNELS];
static struct tally tally;
static uint64_t sent, one_sided;
static double last_came, longest_pause; /* seconds */
static volatile sig_atomic_t enough;

/* Messages so far, by channel and rank. */
static int *sent_to[CHANNELS], *came_from[CHANNELS];
static int byes[CHANNELS];

static struct {
	MPI_Request request;
	unsigned char *bytes;
} sends[SENDS_AT_ONCE], receives[RECEIVES_AT_ONCE];

static unsigned oldest; /* index of the oldest receive: receives are tested in the order of posting */

struct shape {
	int size, tag, synchronous;
};

static struct message_name name_of(int channel, int source, int destination, int number)
{
	return (struct message_name){seed + (uint64_t)channel, source, destination, number};
}

/* Most messages are small, and some use each protocol. */
static struct shape shape_of(const struct message_name *name)
{
	static const uint32_t most[] = {8,     64,    512,    4096,   4097,     16384,
					20000, 65536, 100000, 300000, SIZE_MOST};
	uint64_t random = mix(pattern_start(name));
	uint32_t limit = most[random % (sizeof(most) / sizeof(most[0]))];

	random = mix(random);
	return (struct shape){(int)(random % (limit + 1)), (int)(random >> 32 & 0xffff) % TAGS,
			      (random >> 56) % 8 == 0};
}

/*
 * ---- receiving ----
 */

static void note_pause(void)
{
	double now = MPI_Wtime();

	if (now - last_came > longest_pause)
		longest_pause = now - last_came;
	last_came = now;
}

/* Process a message. Its size is in the status. */
static void take(int channel, const MPI_Status *status, const unsigned char *bytes)
{
	int source = status->MPI_SOURCE, size, count;

	note_pause();
	MPI_Get_count(status, MPI_BYTE, &size);
	if (status->MPI_TAG == TAG_BYE) {
		memcpy(&count, bytes, sizeof(count));
		tally_expect(&tally, "messages of a rank that arrived", came_from[channel][source], count);
		byes[channel]++;
		return;
	}
	struct message_name name = name_of(channel, source, rank, came_from[channel][source]++);
	struct shape shape = shape_of(&name);

	tally_expect(&tally, "size", size, shape.size);
	tally_expect(&tally, "tag", status->MPI_TAG, shape.tag);
	if (size == shape.size)
		pattern_check(&tally, bytes, (size_t)size, &name);
}

static void post(unsigned index)
{
	MPI_Irecv(receives[index].bytes, SIZE_MOST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, channels[POSTED],
		  &receives[index].request);
}

/* Returns whether a receive was complete. A receive that TAG_END completed is not posted again. */
static int take_posted(void)
{
	MPI_Status status;
	int done;

	if (receives[oldest].request == MPI_REQUEST_NULL)
		return 0;
	MPI_Test(&receives[oldest].request, &done, &status);
	if (!done)
		return 0;
	if (status.MPI_TAG != TAG_END) {
		take(POSTED, &status, receives[oldest].bytes);
		post(oldest);
	}
	oldest = (oldest + 1) % RECEIVES_AT_ONCE;
	return 1;
}

static int take_probed(void)
{
	static unsigned char bytes[SIZE_MOST];
	MPI_Message message;
	MPI_Status status;
	int there;

	MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, channels[PROBED], &there, &message, &status);
	if (!there)
		return 0;
	MPI_Mrecv(bytes, SIZE_MOST, MPI_BYTE, &message, &status);
	take(PROBED, &status, bytes);
	return 1;
}

static void take_all(void)
{
	while (take_posted())
		;
	while (take_probed())
		;
}

/*
 * ---- sending ----
 */

static int free_send(void)
{
	for (int i = 0; i < SENDS_AT_ONCE; i++) {
		int done = 1;

		if (sends[i].request != MPI_REQUEST_NULL)
			MPI_Test(&sends[i].request, &done, MPI_STATUS_IGNORE);
		if (done)
			return i;
	}
	return -1;
}

static int another(void)
{
	return (rank + 1 + (int)(random_next(&state) % (uint64_t)(ranks - 1))) % ranks;
}

static void send_one(void)
{
	int index = free_send(), to = another(), channel = (int)(random_next(&state) % CHANNELS);

	if (index < 0)
		return;
	struct message_name name = name_of(channel, rank, to, sent_to[channel][to]++);
	struct shape shape = shape_of(&name);

	pattern_fill(sends[index].bytes, (size_t)shape.size, &name);
	if (shape.synchronous)
		MPI_Issend(sends[index].bytes, shape.size, MPI_BYTE, to, shape.tag, channels[channel],
			   &sends[index].request);
	else
		MPI_Isend(sends[index].bytes, shape.size, MPI_BYTE, to, shape.tag, channels[channel],
			  &sends[index].request);
	sent++;
}

/* Write the own part of another rank's window and read it back, or increment a counter there. */
static void reach_one(MPI_Win window, uint64_t *counted)
{
	static unsigned char out[PART_BYTES], in[PART_BYTES];
	static int number;
	static const uint64_t one = 1;
	int to = another();
	MPI_Aint displacement = 8 + (MPI_Aint)rank * PART_BYTES;
	uint64_t before;

	one_sided++;
	if (random_next(&state) % 2 == 0) {
		MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, to, 0, MPI_SUM, window);
		MPI_Win_flush(to, window);
		(*counted)++;
		return;
	}
	struct message_name name = name_of(CHANNELS, rank, to, number++);
	int size = (int)(random_next(&state) % (random_next(&state) % 2 == 0 ? 1000 : PART_BYTES)) + 1;

	pattern_fill(out, (size_t)size, &name);
	MPI_Put(out, size, MPI_BYTE, to, displacement, size, MPI_BYTE, window);
	MPI_Win_flush(to, window);
	MPI_Get(in, size, MPI_BYTE, to, displacement, size, MPI_BYTE, window);
	MPI_Win_flush(to, window);
	pattern_check(&tally, in, (size_t)size, &name);
	tally.messages--; /* this was not a message */
}

/* ---- the end ---- */

static void end_early(int number)
{
	(void)number;
	enough = 1;
}

/* The first rank that ends tells all other ranks, and then they end too. */
static int is_over(double begun, double seconds)
{
	return enough || byes[POSTED] > 0 || byes[PROBED] > 0 || MPI_Wtime() - begun >= seconds;
}

/*
 * The message is short, so its send does not wait for a receive. The receivers still take all
 * earlier messages.
 */
static void say_bye(void)
{
	for (int channel = 0; channel < CHANNELS; channel++)
		for (int to = 0; to < ranks; to++)
			if (to != rank)
				MPI_Send(&sent_to[channel][to], sizeof(int), MPI_BYTE, to, TAG_BYE,
					 channels[channel]);
}

static void finish(void)
{
	MPI_Request ends[RECEIVES_AT_ONCE];
	int taken = 0;

	say_bye();
	while (byes[POSTED] < ranks - 1 || byes[PROBED] < ranks - 1)
		take_all();
	for (int i = 0; i < RECEIVES_AT_ONCE; i++)
		MPI_Isend(NULL, 0, MPI_BYTE, rank, TAG_END, channels[POSTED], &ends[i]);
	while (taken < RECEIVES_AT_ONCE)
		taken += take_posted();
	MPI_Waitall(RECEIVES_AT_ONCE, ends, MPI_STATUSES_IGNORE);
	for (int i = 0; i < SENDS_AT_ONCE; i++)
		MPI_Wait(&sends[i].request, MPI_STATUS_IGNORE);
}

static void report(double seconds, uint64_t counted, uint64_t counter)
{
	uint64_t ours[] = {sent, tally.messages, tally.bytes, tally.errors, one_sided, counted, counter};
	uint64_t all[sizeof(ours) / sizeof(ours[0])];
	double longest;

	if (tally.errors > 0)
		fprintf(stderr, "soak: error: rank %d: %s\n", rank, tally.first);
	MPI_Reduce(ours, all, (int)(sizeof(ours) / sizeof(ours[0])), MPI_UINT64_T, MPI_SUM, 0,
		   MPI_COMM_WORLD);
	MPI_Reduce(&longest_pause, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank != 0)
		return;
	all[3] += (all[0] != all[1]) + (all[5] != all[6]);
	printf("{\"program\": \"soak\", \"ranks\": %d, \"seconds\": %.1f, \"seed\": %llu, \"sent\": %llu, "
	       "\"received\": %llu, \"bytes\": %llu, \"one_sided\": %llu, \"errors\": %llu, "
	       "\"longest_pause\": %.3f}\n",
	       ranks, seconds, (unsigned long long)seed, (unsigned long long)all[0],
	       (unsigned long long)all[1], (unsigned long long)all[2], (unsigned long long)all[4],
	       (unsigned long long)all[3], longest);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 10.0, begun;
	uint64_t *memory, counted = 0;
	MPI_Win window;

	MPI_Init(&argc, &argv);
	signal(SIGUSR2, end_early);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < 2 || seconds <= 0)
		refuse("soak: error: %d ranks for %g s: use mpiexec -n 2 or more, and soak SECONDS [SEED]\n",
		       ranks, seconds);
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)(MPI_Wtime() * 1000);
	MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	state = mix(seed + (uint64_t)rank);
	for (int i = 0; i < CHANNELS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &channels[i]);
		sent_to[i] = need_memory(calloc((size_t)ranks, sizeof(int)));
		came_from[i] = need_memory(calloc((size_t)ranks, sizeof(int)));
	}
	for (unsigned i = 0; i < SENDS_AT_ONCE; i++) {
		sends[i].request = MPI_REQUEST_NULL;
		sends[i].bytes = need_memory(malloc(SIZE_MOST));
	}
	for (unsigned i = 0; i < RECEIVES_AT_ONCE; i++) {
		receives[i].bytes = need_memory(malloc(SIZE_MOST));
		post(i);
	}
	MPI_Win_allocate(8 + (MPI_Aint)ranks * PART_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
			 &window);
	memory[0] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
	begun = last_came = MPI_Wtime();
	while (!is_over(begun, seconds)) {
		send_one();
		take_all();
		if (random_next(&state) % 32 == 0)
			reach_one(window, &counted);
	}
	finish();
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	report(MPI_Wtime() - begun, counted, memory[0]);
	MPI_Win_free(&window);
	MPI_Finalize();
	return tally.errors > 0;
}
