/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c - calls that wait without using processor time, also on systems without the needed system calls. */
#include "waiting.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 2000
/* Not in older headers; the same on all architectures. */
#define FUTEX_WAITV_NUMBER 449

static void blocked_in_sread(int rank)
{
	struct side side;
	struct fi_cq_tagged_entry entry;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_UNSPEC});
	if (rank == 0) {
		post(&side);
		double begin = now(); /* before the other's pause begins */
		barrier(NULL);
		struct effort before = effort();
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		CHECK(now() - begin > BLOCKED_SECONDS * 0.9);
		check_idle(&before);
	} else {
		barrier(NULL);
		send_after(&side, BLOCKED_SECONDS, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

static void blocked_in_counter(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.counters = true});
	if (rank == 0) {
		post(&side);
		post(&side);
		barrier(NULL);
		struct effort before = effort();
		SAME(fi_cntr_wait(side.received_count, 2, -1), 0);
		check_idle(&before);
		/* Time limits hold, too. */
		double begin = now();
		SAME(fi_cntr_wait(side.received_count, 3, 100), -FI_ETIMEDOUT);
		CHECK(now() - begin >= 0.1);
	} else {
		barrier(NULL);
		send_after(&side, BLOCKED_SECONDS / 2, side.peer[0]);
		send_after(&side, BLOCKED_SECONDS / 2, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

/* Ping-pong, in which each rank sleeps when the other's message arrives. Sometimes a rank computes. */
static void asleep_for(int rank, int rounds)
{
	struct side side;
	struct fi_cq_tagged_entry entry;
	uint64_t random = 7 + (uint64_t)rank;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_UNSPEC});
	post(&side);
	barrier(NULL);
	for (int round = 0; round < rounds; round++) {
		if (rank == 0)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[1]));
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		CHECK(memcmp(awaited, &round, sizeof(round)) == 0);
		post(&side);
		if (next_random(&random) % 64 == 0)
			pause_for((double)(next_random(&random) % 100) / 1e6);
		if (rank == 1)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[0]));
	}
	barrier(&side);
	side_close(&side);
}

static void asleep_by_turns(int rank)
{
	asleep_for(rank, ROUNDS);
}

/* Large messages: their sender waits for room in its own chunks, and for its receiver. */
static void large_asleep(int rank)
{
	static unsigned char bytes[3000000];
	struct side side;
	struct fi_cq_tagged_entry entry;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_UNSPEC});
	for (uint64_t round = 0; round < 10; round++) {
		if (rank == 0) {
			fill(bytes, sizeof(bytes), round);
			POST(&side,
			     fi_tsend(side.endpoint, bytes, sizeof(bytes), NULL, side.peer[1], round, NULL));
			SAME(fi_cq_sread(side.sent, &entry, 1, NULL, -1), 1);
		} else {
			pause_for((double)(round % 3) / 100);
			SAME(fi_trecv(side.endpoint, bytes, sizeof(bytes), NULL, side.peer[0], round, 0,
				      NULL),
			     0);
			SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
			CHECK_FILLED(bytes, sizeof(bytes), round);
		}
	}
	barrier(&side);
	side_close(&side);
}

/* One thread waits, and another thread reads the queue that receives the awaited completion. */
struct thread_of {
	pthread_t thread;
	const struct side *side;
};

static void *wait_for_counter(void *argument)
{
	const struct thread_of *self = argument;

	SAME(fi_cntr_wait(self->side->sent_count, 1, -1), 0);
	return NULL;
}

static void woken_by_another_thread(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.counters = true});
	struct thread_of waiting = {.side = &side};
	SAME(pthread_create(&waiting.thread, NULL, wait_for_counter, &waiting), 0);
	pause_for(0.1); /* most likely it sleeps */
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	SAME(pthread_join(waiting.thread, NULL), 0);
	side_close(&side);
}

/* fi_cq_sread() with a condition waits for that number of completions. */
static void threshold(int rank)
{
	struct side side;
	struct fi_cq_attr attributes = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD};
	struct fi_cq_tagged_entry entries[4];
	struct fid_cq *cq = NULL;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_cq_open(side.domain, &attributes, &cq, NULL), 0);
	struct fid_cq *plain = side.received;
	side.received = cq;
	side.endpoints[side.count++] = side.endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_enable(side.endpoint), 0);
	exchange_names(&side);
	for (int i = 0; i < 4; i++)
		post(&side);
	/*
	 * This message makes the connection, which takes several polls. Later messages are there at the first
	 * poll.
	 */
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	(void)next_completion(cq);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	/* Not enough: after the time, the completions that are there. */
	SAME(fi_cq_sread(cq, entries, 4, (void *)(uintptr_t)3, 50), 2);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	SAME(fi_cq_sread(cq, entries, 4, (void *)(uintptr_t)1, -1), 1);
	side_close_endpoints(&side);
	SAME(fi_close(&plain->fid), 0);
	side_close(&side);
}

/* The thread of a domain with automatic progress sleeps, too. */
static void automatic_is_idle(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.progress = FI_PROGRESS_AUTO});
	pause_for(0.2);
	struct effort before = effort();
	pause_for(BLOCKED_SECONDS);
	check_idle(&before);
	barrier(&side);
	side_close(&side);
}

/* ---- without system calls that a filter refuses ---- */

/* As in a container whose filter is older than the calls. Permanent for this process. */
static void forbid_sleeping_calls(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAITV_NUMBER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};

	SAME(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	SAME(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
	SAME(syscall(SYS_membarrier, 0, 0, 0), -1);
	SAME(errno, EPERM);
}

/* Neither rank has the calls. Sleeps are short then, and still spare the processor. */
static void without_calls(int rank)
{
	forbid_sleeping_calls();
	large_asleep(rank);
	struct side side;
	struct fi_cq_tagged_entry entry;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_FD});
	post(&side);
	barrier(NULL);
	if (rank == 0) {
		struct effort before = effort();
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		/* It wakes a thousand times a second, and so does the thread for the descriptor. */
		struct effort after = effort();
		CHECK(after.used - before.used < (after.time - before.time) / 2);
	} else {
		send_after(&side, BLOCKED_SECONDS / 2, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

/* One rank has the calls, the other does not: the first cannot rely on barriers. */
static void one_without_calls(int rank)
{
	if (rank == 1)
		forbid_sleeping_calls();
	asleep_for(rank, ROUNDS / 2);
}

const struct scenario wait_scenarios[] = {
	{"blocked_in_sread", 2, blocked_in_sread},
	{"blocked_in_counter", 2, blocked_in_counter},
	{"asleep_by_turns", 2, asleep_by_turns},
	{"large_asleep", 2, large_asleep},
	{"woken_by_another_thread", 1, woken_by_another_thread},
	{"threshold", 1, threshold},
	{"automatic_is_idle", 2, automatic_is_idle},
	{"without_calls", 2, without_calls},
	{"one_without_calls", 2, one_without_calls},
	{0},
};
