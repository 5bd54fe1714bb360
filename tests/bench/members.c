/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * members.c - what many members of a region cost each other, below libfabric.
 *
 *   members checks COUNT LOOKING [SECONDS]
 *     COUNT processes, each a member that has met all others. The first LOOKING check
 *     their peers 20 times a second, like a rank that polls or sleeps. The others compute
 *     and check nobody. Then one process of each kind is killed. Prints the microseconds
 *     of processor time of a check, the share of a processor of all checks together, and
 *     the milliseconds until all processes that check knew of each death.
 *   members polls COUNT
 *     One process, with a receiver and COUNT senders whose rings are hot. Prints the
 *     nanoseconds of an empty poll.
 *
 * Not a test: run it by hand, on a quiet machine. docs/decisions/0024 and 0025 quote its figures.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

#define MOST REGION_MEMBERS_MAX
/* An odd number of pages, as regions have by default. */
#define SECTION_BYTES (1028U * 1024U)
#define ROUNDS 9
/* Until all pages were touched. */
#define WARMING_SECONDS 5

/* Shared by the processes. */
struct board {
	atomic_uint joined;
	atomic_uint met;
	atomic_bool stop;
	atomic_ullong spent[MOST]; /* nanoseconds of processor time in checks */
	atomic_ullong looks[MOST];
	atomic_ullong longest[MOST];
	atomic_ullong died[2];        /* monotonic_now() */
	atomic_uint victim[2];        /* their slots */
	atomic_ullong known[MOST][2]; /* when a process knew that the victim was dead */
};

static struct board *board;
static uint32_t count;

static void pause_for(uint64_t nanoseconds)
{
	const struct timespec wait = {.tv_nsec = (long)nanoseconds};

	(void)nanosleep(&wait, NULL);
}

static void await(atomic_uint *number, uint32_t enough)
{
	while (atomic_load(number) < enough)
		pause_for(1000000);
}

static void meet_all(struct transport *transport)
{
	const struct region *region = transport->attachments[0].region;

	for (uint32_t slot = 0; slot < count; slot++) {
		uint32_t epoch = 0;
		uint64_t nonce = 0;
		if (!member_identify(region, slot, &epoch, &nonce) ||
		    transport_meet(transport, slot, epoch, nonce) == NULL)
			abort();
	}
}

static void note_deaths(const struct transport *transport, uint32_t index)
{
	for (int i = 0; i < 2; i++) {
		if (atomic_load(&board->died[i]) == 0 || atomic_load(&board->known[index][i]) != 0)
			continue;
		if (transport->peers[atomic_load(&board->victim[i])]->state == PEER_FAILED)
			atomic_store(&board->known[index][i], monotonic_now());
	}
}

/* The processor time of this thread, including waits for locks of the kernel, but not for a processor. */
static uint64_t processor_time(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

static void look(struct transport *transport, uint32_t index)
{
	uint64_t began = processor_time();

	transport_check_peers(transport);
	uint64_t took = processor_time() - began;
	atomic_fetch_add(&board->spent[index], took);
	atomic_fetch_add(&board->looks[index], 1);
	if (took > atomic_load(&board->longest[index]))
		atomic_store(&board->longest[index], took);
	note_deaths(transport, index);
}

static void take_part(struct region *region, uint32_t index, bool looks)
{
	struct node node;

	node_open(&node, region);
	/* The victims are the last process that checks, and the last of all. */
	for (uint32_t i = 0; i < 2; i++)
		if (atomic_load(&board->victim[i]) == index + MOST)
			atomic_store(&board->victim[i], node_slot(&node));
	atomic_fetch_add(&board->joined, 1);
	await(&board->joined, count);
	meet_all(node.messenger->transport);
	atomic_fetch_add(&board->met, 1);
	await(&board->met, count);
	pause_for(index * (LIVENESS_INTERVAL / count)); /* not in step with each other */
	while (!atomic_load(&board->stop)) {
		if (looks)
			look(node.messenger->transport, index);
		pause_for(LIVENESS_INTERVAL);
	}
	_exit(0);
}

static void kill_victim(pid_t process, uint32_t i)
{
	(void)kill(process, SIGKILL);
	(void)waitpid(process, NULL, 0);
	atomic_store(&board->died[i], monotonic_now());
	sleep(30);
}

static void say_who_knew(const char *who, int i, uint32_t looking)
{
	uint64_t last = 0;
	uint64_t all = 0;
	uint32_t knew = 0;

	for (uint32_t index = 0; index < looking; index++) {
		uint64_t known = atomic_load(&board->known[index][i]);
		if (known == 0)
			continue;
		knew++;
		all += known - atomic_load(&board->died[i]);
		if (known - atomic_load(&board->died[i]) > last)
			last = known - atomic_load(&board->died[i]);
	}
	printf("  death of %s: known to %u, after %.0f ms on average, %.0f at most\n", who, knew,
	       (double)all / (knew > 0 ? knew : 1) / 1e6, (double)last / 1e6);
}

static void checks(uint32_t looking, unsigned seconds)
{
	struct region *region = world_region(count, SECTION_BYTES);
	pid_t processes[MOST] = {0};
	uint64_t spent = 0;
	uint64_t looks = 0;
	uint64_t longest = 0;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		abort();
	atomic_store(&board->victim[0], looking - 1 + MOST);
	atomic_store(&board->victim[1], count - 1 + MOST);
	for (uint32_t index = 0; index < count; index++) {
		processes[index] = fork();
		if (processes[index] == 0)
			take_part(region, index, index < looking);
	}
	await(&board->met, count);
	sleep(WARMING_SECONDS);
	for (uint32_t index = 0; index < looking; index++) {
		atomic_store(&board->spent[index], 0);
		atomic_store(&board->looks[index], 0);
		atomic_store(&board->longest[index], 0);
	}
	uint64_t began = monotonic_now();
	sleep(seconds);
	uint64_t lasted = monotonic_now() - began;
	for (uint32_t index = 0; index < looking; index++) {
		spent += atomic_load(&board->spent[index]);
		looks += atomic_load(&board->looks[index]);
		if (atomic_load(&board->longest[index]) > longest)
			longest = atomic_load(&board->longest[index]);
	}
	printf("%u members, %u check: %.1f us a check, %.0f at most; %.1f %% of a processor in all\n", count,
	       looking, (double)spent / (double)looks / 1e3, (double)longest / 1e3,
	       100.0 * (double)spent / (double)lasted);
	if (looking > 1) {
		kill_victim(processes[looking - 1], 0);
		say_who_knew("a process that checks", 0, looking - 1);
	}
	if (looking < count) {
		kill_victim(processes[count - 1], 1);
		say_who_knew("a process that computes", 1, looking);
	}
	for (uint32_t index = 0; index < count; index++)
		(void)kill(processes[index], SIGKILL);
	while (wait(NULL) > 0)
		continue;
}

static void send_one(struct node *from, const struct node *to)
{
	if (node_send(from, to, "x", 1, 0, FI_TAGGED, NULL) != 0)
		abort();
}

static void take_all(struct node *receiver, uint32_t expected)
{
	for (uint32_t taken = 0; taken < expected;)
		taken += messenger_progress(receiver->messenger);
}

static void polls(void)
{
	struct region *region = world_region(count + 1, SECTION_BYTES);
	struct node *nodes = calloc(count + 1, sizeof(*nodes));
	uint64_t best = UINT64_MAX;

	if (nodes == NULL)
		abort();
	for (uint32_t i = 0; i <= count; i++)
		node_open(&nodes[i], region);
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 1; i <= count; i++)
			send_one(&nodes[i], &nodes[0]);
		take_all(&nodes[0], count);
		if (nodes[0].messenger->transport->hot_count != count)
			printf("only %u rings are hot\n", nodes[0].messenger->transport->hot_count);
		uint64_t began = monotonic_now();
		for (int poll = 0; poll < 1024; poll++)
			(void)messenger_progress(nodes[0].messenger);
		uint64_t took = monotonic_now() - began;
		best = took < best ? took : best;
	}
	printf("%u hot rings: %.0f ns for an empty poll\n", count, (double)best / 1024);
	exit(0);
}

static uint32_t number(const char *word)
{
	return (uint32_t)strtoul(word, NULL, 10);
}

int main(int arguments, char **words)
{
	count = arguments > 2 ? number(words[2]) : 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	uint32_t looking = arguments > 3 ? number(words[3]) : 0;
	if (count >= 2 && count <= MOST && strcmp(words[1], "checks") == 0 && looking >= 1 &&
	    looking <= count)
		checks(looking, arguments > 4 ? number(words[4]) : 10);
	else if (count >= 1 && count < MOST && strcmp(words[1], "polls") == 0)
		polls();
	else
		(void)fprintf(stderr,
			      "usage: members checks COUNT LOOKING [SECONDS] | members polls COUNT\n");
	return 0;
}
