/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - what one of two processes does. They share a region, and each has one messenger. */
#ifndef VICINAL_TESTS_SIDE_H
#define VICINAL_TESTS_SIDE_H

#include "world.h"

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * A child process cannot fail a test: it prints what is wrong and exits, and the parent checks the exit
 * status.
 */
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			(void)fprintf(stderr, "process %d, line %d: %s\n", (int)getpid(), __LINE__, \
				      #condition); \
			_exit(99); \
		} \
	} while (0)

/* One of the two processes. Only the tests allocate from the heaps. */
struct side {
	struct node node;
	struct msg_peer *other;
	unsigned char *heap;
	uint64_t until;
};

/* One round of progress. Exits if the peer is taken for hanging. */
void side_progress(struct side *side);
/* Join the region. The first process takes slot 0, the second slot 1. */
void join(struct side *side, struct region *region, uint32_t slot);
void post(struct side *side, unsigned char *bytes, size_t length, uint64_t tag);
/* Returns 0, or the errno of a peer that is gone. */
int start_send(struct side *side, unsigned char *bytes, size_t length, uint64_t tag);
struct completion await(struct side *side, struct completion_queue *queue);
/* Fill `bytes` with values that depend on `key`. */
void fill(unsigned char *bytes, size_t length, uint64_t key);
bool has(const unsigned char *bytes, size_t length, uint64_t key);
void assert_ended_well(pid_t child);

#endif
