/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - two processes that share a region, each with one messenger: what one of them does. */
#ifndef VICINAL_TESTS_SIDE_H
#define VICINAL_TESTS_SIDE_H

#include "world.h"

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

/* In a child no test can fail: it says what is wrong, and the parent sees that it ended so. */
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			(void)fprintf(stderr, "process %d, line %d: %s\n", (int)getpid(), __LINE__, \
				      #condition); \
			_exit(99); \
		} \
	} while (0)

/* One of the two processes. Nothing is allocated from the heaps but by the tests. */
struct side {
	struct node node;
	struct msg_peer *other;
	unsigned char *heap;
	uint64_t until;
};

/* One round of progress; fails if the other is taken for hanging. */
void side_progress(struct side *side);
/* The first takes slot 0, the second slot 1. */
void join(struct side *side, struct region *region, uint32_t slot);
void post(struct side *side, unsigned char *bytes, size_t length, uint64_t tag);
/* Returns 0, or the errno of a peer that is gone. */
int start_send(struct side *side, unsigned char *bytes, size_t length, uint64_t tag);
struct completion await(struct side *side, struct completion_queue *queue);
/* Bytes that differ with `key`. */
void fill(unsigned char *bytes, size_t length, uint64_t key);
bool has(const unsigned char *bytes, size_t length, uint64_t key);
void assert_ended_well(pid_t child);

#endif
