/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork.c - objects that a forked child inherits belong to its parent: the child can close them, and open new
 * ones.
 */
#include "waiting.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A child neither keeps its parent alive nor writes on its behalf. The parent's death is noticed although the
 * child lives, and the child's calls do nothing to the parent's messages.
 */
static void missed(int rank)
{
	struct side side;
	int pipe_ends[2];

	side_open(&side, rank, NULL);
	if (rank == 1) {
		SAME(fi_recv(side.endpoint, awaited, sizeof(awaited), NULL, side.peer[0], NULL), 0);
		barrier(&side);
		SAME(next_completion(side.received).len, 3);
		CHECK(memcmp(awaited, "abc", 3) == 0);
		/* Now the parent dies, and its child lives on. */
		SAME(fi_recv(side.endpoint, awaited, sizeof(awaited), NULL, side.peer[0], NULL), 0);
		atomic_store(shared_word(0), 1);
		SAME(next_error(side.received).err, FI_ECONNRESET);
		/* The child must be gone, because the next scenario uses these words. */
		atomic_store(shared_word(1), 1);
		while (atomic_load(shared_word(2)) == 0)
			pause_for(0.001);
		side_close(&side);
		return;
	}
	barrier(&side);
	SAME(pipe(pipe_ends), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)alarm(60); /* a child does not inherit its parent's alarm */
		/* Its messages reach no peer, and closing closes nothing of its parent's. */
		(void)fi_inject(side.endpoint, "bad", 3, side.peer[1]);
		(void)fi_cq_read(side.received, NULL, 0);
		side_close(&side);
		SAME(write(pipe_ends[1], "x", 1), 1);
		/* It can open new objects. */
		struct side own;
		side_prepare(&own, rank, &(struct side_options){0});
		own.endpoints[own.count++] = own.endpoint = side_endpoint(&own, &(struct side_options){0});
		SAME(fi_enable(own.endpoint), 0);
		SAME(write(pipe_ends[1], "y", 1), 1);
		while (atomic_load(shared_word(1)) == 0)
			pause_for(0.001);
		atomic_store(shared_word(2), 1);
		_exit(0);
	}
	char byte = 0;
	SAME(read(pipe_ends[0], &byte, 1), 1);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[1]));
	SAME(read(pipe_ends[0], &byte, 1), 1);
	while (atomic_load(shared_word(0)) == 0)
		side_progress(&side);
	_exit(0); /* without telling its peers, and with a child */
}

static void *wait_for_one(void *eq)
{
	uint32_t event = 0;
	char byte = 0;

	SAME(fi_eq_sread(eq, &event, &byte, 1, -1, 0), 1);
	return NULL;
}

/* If a thread of a process waits, a child of the process can close the inherited objects. */
static void queue_closed(int rank)
{
	struct side side;
	struct fid_eq *eq = NULL;
	pthread_t thread;
	int status = 0;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){.flags = FI_WRITE}, &eq, NULL), 0);
	SAME(pthread_create(&thread, NULL, wait_for_one, eq), 0);
	pause_for(0.03); /* most likely it waits */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)alarm(60);
		SAME(fi_close(&eq->fid), 0);
		side_close(&side);
		_exit(0);
	}
	SAME(waitpid(child, &status, 0), child);
	SAME(status, 0);
	SAME(fi_eq_write(eq, 7, "x", 1, 0), 1);
	SAME(pthread_join(thread, NULL), 0);
	SAME(fi_close(&eq->fid), 0);
	side_close(&side);
}

const struct scenario fork_scenarios[] = {
	{"missed", 2, missed},
	{"queue_closed", 1, queue_closed},
	{0},
};
