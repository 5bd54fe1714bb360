/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * walk.h - the state of fuzz_walk, and what each of its files does:
 *
 * fuzz_walk.c       takes steps from the input, and ends the run
 * walk_messages.c   sends and receives, and checks every completion against what was sent
 * walk_faults.c     deaths, lost frames, hostile frames, evictions
 */
#ifndef VICINAL_TESTS_WALK_H
#define VICINAL_TESTS_WALK_H

#include "unit/regions.h"

#include "fuzz/fuzz_input.h"

#define WALK_OPERATIONS 256U
#define NOBODY UINT8_MAX

/* What may be expected of the messages between two endpoints. Only ever gets worse. */
enum trust {
	TRUST_CLEAN,   /* all arrive, whole and in order */
	TRUST_LOSSY,   /* operations may fail; a message that is delivered is whole and in order */
	TRUST_HOSTILE, /* somebody forged a word of one of them: nothing but that operations end */
};

enum operation_state { OPERATION_FREE, OPERATION_ACTIVE, OPERATION_DONE };

/* Of an application. Never used again in a run, so that a second completion shows. */
struct operation {
	unsigned char *buffer; /* of just `length` bytes, so that a byte beside it is seen */
	size_t length;
	enum operation_state state;
	bool send;
	bool tagged;
	bool in_heap;
	bool cancelled;
	bool delivered; /* a send: its message was received */
	uint8_t at;
	uint8_t other; /* whom it sends to or receives from; or NOBODY */
	uint8_t tag;
	uint32_t at_life;
	uint32_t other_life;
	uint32_t message; /* a receive: which send it got, or WALK_OPERATIONS */
};

struct walk {
	struct fuzz_input input;
	struct operation operations[WALK_OPERATIONS];
	uint32_t count; /* of operations */
	enum trust trust[FAKE_ENDS][FAKE_ENDS];
	bool concerned[FAKE_ENDS];           /* by any fault so far: a receive of any source may fail */
	uint32_t lives[FAKE_ENDS];           /* how often each died */
	struct address addresses[FAKE_ENDS]; /* of the present life, or the last one */
	struct core_name names[FAKE_ENDS];   /* the same */
	uint8_t allowed;                     /* which faults the input wants: enum walk_fault */
	bool plugged;                        /* a region has two names by now */
	bool ending;                         /* every peer is given up: any operation may fail */
};

enum walk_fault { FAULT_FRAMES = 1, FAULT_LOSS = 2, FAULT_DEATH = 4, FAULT_EVICTION = 8 };

void require(bool condition, const char *what);
bool is_alive(uint8_t index);
void distrust(struct walk *walk, uint8_t one, uint8_t other, enum trust most);
/* Of the operation's two ends; that of a former life is nothing to rely on. */
enum trust trust_of(const struct walk *walk, const struct operation *operation, uint8_t other);
/* `whom` as `at` knows it by now; NULL if it was never met. */
struct peer *known(const struct walk *walk, uint8_t at, uint8_t whom);

void walk_send(struct walk *walk);
void walk_receive(struct walk *walk);
void walk_cancel(struct walk *walk);
/* A receive of any source that takes this message, if those before it do not. */
void receive_message(struct walk *walk, const struct operation *sent);
void take_completions(struct walk *walk, uint8_t at);
/* All that `at` had under way ends with it. */
void forget_operations(struct walk *walk, uint8_t at);
void release_operation(struct operation *operation);

void walk_open(struct walk *walk, uint8_t index, const char *list);
void walk_frame(struct walk *walk);
void walk_loss(struct walk *walk);
void walk_death(struct walk *walk);
void walk_eviction(struct walk *walk);

#endif
