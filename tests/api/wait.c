/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c - waiting without taking processor time: in calls, on descriptors, in sets; forks. */
#include "harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 2000
/* Not in older headers; the same on all architectures. */
#define FUTEX_WAITV_NUMBER 449
/* Processor time that a process takes while it is blocked, all of its threads together. */
#define BLOCKED_SECONDS 0.5
#define BLOCKED_CPU_SECONDS 0.005

static char buffer[64];

static double used(void)
{
	struct rusage usage;

	SAME(getrusage(RUSAGE_SELF, &usage), 0);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void pause_for(double seconds)
{
	struct timespec time = {.tv_sec = (time_t)seconds,
				.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

	while (nanosleep(&time, &time) != 0)
		CHECK(errno == EINTR);
}

/* What was used since `before` is what a process uses that is blocked. */
static void check_idle(double before)
{
	double more = used() - before;

	if (more < BLOCKED_CPU_SECONDS)
		return;
	char text[128];
	(void)snprintf(text, sizeof(text), "blocked, and used %.1f ms of processor time", more * 1e3);
	check_failed(__FILE__, __LINE__, text);
}

static void post(const struct side *side)
{
	SAME(fi_recv(side->endpoint, buffer, sizeof(buffer), NULL, FI_ADDR_UNSPEC, buffer), 0);
}

static void send_after(const struct side *side, double seconds, fi_addr_t to)
{
	pause_for(seconds);
	POST(side, fi_inject(side->endpoint, "abc", 3, to));
}

/* ---- blocked in a call ---- */

static void blocked_in_sread(int rank)
{
	struct side side;
	struct fi_cq_tagged_entry entry;

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_UNSPEC});
	if (rank == 0) {
		post(&side);
		barrier(NULL);
		double before = used();
		double begin = now();
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		CHECK(now() - begin > BLOCKED_SECONDS * 0.9);
		check_idle(before);
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

	side_open(&side, rank, &(struct wish){.counters = true});
	if (rank == 0) {
		post(&side);
		post(&side);
		barrier(NULL);
		double before = used();
		SAME(fi_cntr_wait(side.received_count, 2, -1), 0);
		check_idle(before);
		/* Time limits hold too. */
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

/* Ping-pong, each asleep when the other's message comes; a rank that computes now and then. */
static void asleep_for(int rank, int rounds)
{
	struct side side;
	struct fi_cq_tagged_entry entry;
	uint64_t random = 7 + (uint64_t)rank;

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_UNSPEC});
	post(&side);
	barrier(NULL);
	for (int round = 0; round < rounds; round++) {
		if (rank == 0)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[1]));
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		CHECK(memcmp(buffer, &round, sizeof(round)) == 0);
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

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_UNSPEC});
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

/* One thread waits, another reads the queue in which what it waits for is made. */
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

	side_open(&side, rank, &(struct wish){.counters = true});
	struct thread_of waiting = {.side = &side};
	SAME(pthread_create(&waiting.thread, NULL, wait_for_counter, &waiting), 0);
	pause_for(0.1); /* it sleeps, most likely */
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	SAME(pthread_join(waiting.thread, NULL), 0);
	side_close(&side);
}

/* fi_cq_sread() with a condition waits for so many completions. */
static void threshold(int rank)
{
	struct side side;
	struct fi_cq_attr attributes = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD};
	struct fi_cq_tagged_entry entries[4];
	struct fid_cq *cq = NULL;

	side_prepare(&side, rank, &(struct wish){0});
	SAME(fi_cq_open(side.domain, &attributes, &cq, NULL), 0);
	struct fid_cq *plain = side.received;
	side.received = cq;
	side.endpoints[side.count++] = side.endpoint = side_endpoint(&side, &(struct wish){0});
	SAME(fi_enable(side.endpoint), 0);
	exchange_names(&side);
	for (int i = 0; i < 3; i++)
		post(&side);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	/* Not enough: at the end of the time, what there is. */
	SAME(fi_cq_sread(cq, entries, 4, (void *)(uintptr_t)3, 50), 2);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	SAME(fi_cq_sread(cq, entries, 4, (void *)(uintptr_t)1, -1), 1);
	side_close_endpoints(&side);
	SAME(fi_close(&plain->fid), 0);
	side_close(&side);
}

/* The thread of a domain with automatic progress sleeps too. */
static void automatic_is_idle(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct wish){.progress = FI_PROGRESS_AUTO});
	pause_for(0.2);
	double before = used();
	pause_for(BLOCKED_SECONDS);
	check_idle(before);
	barrier(&side);
	side_close(&side);
}

/* ---- where a filter of system calls takes the means away ---- */

/* As in a container whose filter is older than the calls. For good, in this process. */
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

/* Neither has the calls. Sleeps are short then, and all the same the processor is spared. */
static void without_calls(int rank)
{
	forbid_sleeping_calls();
	large_asleep(rank);
	struct side side;
	struct fi_cq_tagged_entry entry;

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_FD});
	post(&side);
	barrier(NULL);
	if (rank == 0) {
		double before = used();
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		/* It wakes a thousand times a second, and so does the thread for the descriptor. */
		CHECK(used() - before < BLOCKED_SECONDS / 2);
	} else {
		send_after(&side, BLOCKED_SECONDS / 2, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

/* One has them, the other not: the one that has cannot rely on barriers. */
static void one_without_calls(int rank)
{
	if (rank == 1)
		forbid_sleeping_calls();
	asleep_for(rank, ROUNDS / 2);
}

/* ---- descriptors ---- */

static int descriptor_of(struct fid *fid)
{
	int descriptor = -1;

	SAME(fi_control(fid, FI_GETWAIT, &descriptor), 0);
	CHECK(descriptor >= 0);
	return descriptor;
}

static bool readable(int descriptor, int timeout)
{
	struct pollfd polled = {.fd = descriptor, .events = POLLIN};

	return poll(&polled, 1, timeout) == 1;
}

/* Wait as fi_poll(3) and fi_cq(3) say, and read. */
static struct fi_cq_tagged_entry await_by_descriptor(const struct side *side, int descriptor)
{
	struct fid *fids[] = {&side->received->fid};
	struct fi_cq_tagged_entry entry = {0};
	ssize_t result = 0;

	while ((result = fi_cq_read(side->received, &entry, 1)) == -FI_EAGAIN)
		if (fi_trywait(side->fabric, fids, 1) == 0)
			CHECK(readable(descriptor, -1));
	SAME(result, 1);
	return entry;
}

static void blocked_on_descriptor(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_FD});
	int descriptor = descriptor_of(&side.received->fid);
	struct fid *fids[] = {&side.received->fid};
	if (rank == 0) {
		/* Nothing there: one may wait, and nothing comes. */
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		CHECK(!readable(descriptor, 20));
		post(&side);
		barrier(NULL);
		double before = used();
		(void)await_by_descriptor(&side, descriptor);
		check_idle(before);
		/* Something there: one may not wait. It stays so until it is read. */
		post(&side);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
		SAME(fi_trywait(side.fabric, fids, 1), -FI_EAGAIN);
		SAME(fi_trywait(side.fabric, fids, 1), -FI_EAGAIN);
		(void)await_by_descriptor(&side, descriptor);
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		/* Level-triggered: readable until it is tried again. */
		post(&side);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
		CHECK(readable(descriptor, -1));
		CHECK(readable(descriptor, 0));
		(void)await_by_descriptor(&side, descriptor);
		/* A signal too. */
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		SAME(fi_cq_signal(side.received), 0);
		CHECK(readable(descriptor, 0));
	} else {
		barrier(NULL);
		send_after(&side, BLOCKED_SECONDS, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

/* An application that serialises its own calls: the provider's thread is one more all the same. */
static void descriptors_by_turns(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_FD, .threading = FI_THREAD_DOMAIN});
	int descriptor = descriptor_of(&side.received->fid);
	post(&side);
	barrier(NULL);
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == 0)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[1]));
		(void)await_by_descriptor(&side, descriptor);
		CHECK(memcmp(buffer, &round, sizeof(round)) == 0);
		post(&side);
		if (rank == 1)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[0]));
	}
	barrier(&side);
	side_close(&side);
}

/* A peer that dies makes the descriptor readable: somebody looks after it meanwhile. */
static void descriptor_tells_of_death(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct wish){.wait = FI_WAIT_FD});
	if (rank == 0) {
		struct fid *fids[] = {&side.received->fid};
		int descriptor = descriptor_of(&side.received->fid);
		SAME(fi_recv(side.endpoint, buffer, 8, NULL, side.peer[1], NULL), 0);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[1]));
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		barrier(NULL);
		while (fi_trywait(side.fabric, fids, 1) == 0)
			CHECK(readable(descriptor, -1));
		int error = next_error(side.received).err;
		CHECK(error == FI_ECONNABORTED || error == FI_ECONNRESET);
		side_close(&side);
		return;
	}
	(void)next_completion; /* it need not receive anything */
	barrier(NULL);
	side_close(&side);
}

/* Queues and counters in one wait set, of two domains. */
static void wait_set(int rank)
{
	struct side side;
	struct fid_wait *set = NULL;
	struct fid_cq *cq = NULL;
	struct fid_cntr *counter = NULL;
	struct fi_cq_tagged_entry entry;
	int descriptor = -1;

	side_prepare(&side, rank, &(struct wish){0});
	SAME(fi_wait_open(side.fabric, &(struct fi_wait_attr){.wait_obj = FI_WAIT_FD}, &set), 0);
	SAME(fi_control(&set->fid, FI_GETWAIT, &descriptor), 0);
	SAME(fi_cq_open(side.domain,
			&(struct fi_cq_attr){
				.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET, .wait_set = set},
			&cq, NULL),
	     0);
	SAME(fi_cntr_open(side.domain, &(struct fi_cntr_attr){.wait_obj = FI_WAIT_SET, .wait_set = set},
			  &counter, NULL),
	     0);
	SAME(fi_close(&set->fid), -FI_EBUSY);
	struct fid_cq *plain = side.received;
	side.received = cq;
	side.endpoints[side.count++] = side.endpoint = side_endpoint(&side, &(struct wish){0});
	SAME(fi_ep_bind(side.endpoint, &counter->fid, FI_SEND), 0);
	SAME(fi_enable(side.endpoint), 0);
	exchange_names(&side);

	SAME(fi_wait(set, 20), -FI_ETIMEDOUT);
	post(&side);
	if (rank == 0) {
		barrier(NULL);
		SAME(fi_wait(set, -1), 0);
		SAME(fi_cq_read(cq, &entry, 1), 1);
	} else {
		barrier(NULL);
		pause_for(0.05);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
		/* Its counter counted. */
		SAME(fi_wait(set, -1), 0);
		SAME(fi_cntr_read(counter), 1);
	}
	SAME(fi_wait(set, 20), -FI_ETIMEDOUT);
	barrier(&side);
	side_close_endpoints(&side);
	SAME(fi_close(&counter->fid), 0);
	SAME(fi_close(&cq->fid), 0);
	side.received = plain;
	SAME(fi_close(&set->fid), 0);
	side_close(&side);
}

static void poll_set(int rank)
{
	struct side side;
	struct fid_poll *set = NULL;
	void *contexts[4] = {NULL};
	int context = 0;
	struct fid_cq *cq = NULL;

	side_open(&side, rank, &(struct wish){.counters = true});
	SAME(fi_poll_open(side.domain, NULL, &set), 0);
	SAME(fi_poll_add(set, &side.received->fid, 0), 0);
	SAME(fi_poll_add(set, &side.sent_count->fid, 0), 0);
	SAME(fi_poll_add(set, &side.endpoint->fid, 0), -FI_EINVAL);
	SAME(fi_poll(set, contexts, 4), 0);
	post(&side);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	/* The counter counted at once, and is told once; the queue for as long as nobody reads it. */
	CHECK(fi_poll(set, contexts, 4) >= 1);
	while (fi_poll(set, contexts, 4) == 0)
		;
	SAME(fi_poll(set, contexts, 4), 1);
	(void)next_completion(side.received);
	SAME(fi_poll(set, contexts, 4), 0);
	/* By context. What is in a set cannot be closed. */
	SAME(fi_cq_open(side.domain, &(struct fi_cq_attr){.format = FI_CQ_FORMAT_TAGGED}, &cq, &context), 0);
	SAME(fi_poll_add(set, &cq->fid, 0), 0);
	SAME(fi_close(&cq->fid), -FI_EBUSY);
	SAME(fi_poll_del(set, &cq->fid, 0), 0);
	SAME(fi_poll_del(set, &cq->fid, 0), -FI_EINVAL);
	SAME(fi_close(&cq->fid), 0);
	SAME(fi_close(&set->fid), 0);
	side_close(&side);
}

/* ---- forks ---- */

/*
 * A child neither keeps its parent alive nor writes in its name: the parent is missed although
 * the child lives, and what the child calls does nothing to the parent's messages.
 */
static void forked(int rank)
{
	struct side side;
	int pipe_ends[2];

	side_open(&side, rank, NULL);
	if (rank == 1) {
		SAME(fi_recv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[0], NULL), 0);
		barrier(&side);
		SAME(next_completion(side.received).len, 3);
		CHECK(memcmp(buffer, "abc", 3) == 0);
		/* Now it dies, and its child lives on. */
		SAME(fi_recv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[0], NULL), 0);
		atomic_store(shared_word(0), 1);
		SAME(next_error(side.received).err, FI_ECONNRESET);
		atomic_store(shared_word(1), 1);
		side_close(&side);
		return;
	}
	barrier(&side);
	SAME(pipe(pipe_ends), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* What it sends reaches nobody, and what it closes closes nothing of its parent's. */
		(void)fi_inject(side.endpoint, "bad", 3, side.peer[1]);
		(void)fi_cq_read(side.received, NULL, 0);
		side_close(&side);
		SAME(write(pipe_ends[1], "x", 1), 1);
		/* It can begin anew. */
		struct side own;
		side_prepare(&own, rank, &(struct wish){0});
		own.endpoints[own.count++] = own.endpoint = side_endpoint(&own, &(struct wish){0});
		SAME(fi_enable(own.endpoint), 0);
		SAME(write(pipe_ends[1], "y", 1), 1);
		while (atomic_load(shared_word(1)) == 0)
			pause_for(0.01);
		_exit(0);
	}
	char byte = 0;
	SAME(read(pipe_ends[0], &byte, 1), 1);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[1]));
	SAME(read(pipe_ends[0], &byte, 1), 1);
	while (atomic_load(shared_word(0)) == 0)
		side_progress(&side);
	_exit(0); /* without a word, and with a child */
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
	{"blocked_on_descriptor", 2, blocked_on_descriptor},
	{"descriptors_by_turns", 2, descriptors_by_turns},
	{"descriptor_tells_of_death", 2, descriptor_tells_of_death},
	{"wait_set", 2, wait_set},
	{"poll_set", 1, poll_set},
	{"forked", 2, forked},
	{0},
};
