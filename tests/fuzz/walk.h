/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * walk.h - the state of fuzz_walk, and the purpose of each of its files:
 *
 *   fuzz_walk.c       takes steps from the input, and ends the run
 *   walk_messages.c   sends and receives, and checks every completion against the send
 *   walk_bursts.c     the same with many at once, so that matching uses its tables
 *   walk_faults.c     deaths, lost frames, hostile frames, evictions
 */
#ifndef VICINAL_TESTS_WALK_H
#define VICINAL_TESTS_WALK_H

#include "unit/regions.h"

#include "fuzz/fuzz_input.h"

#define WALK_OPERATIONS 2048U
/* A run takes steps until it has this many operations. The rest is room for the receives at its end. */
#define WALK_OPERATIONS_FEW 128U
#define WALK_OPERATIONS_MANY (WALK_OPERATIONS / 2)
#define NOBODY UINT8_MAX
/* Each kind of work of a poll has a bound of its own. This is their sum, in slots and pieces. */
#define POLL_HANDLED_MAX (TRANSPORT_BURST * (FAKE_ENDS * 2 + 1) + 64U)
/*
 * A slot names one chunk, which is copied once, and once more into the end of the fake core that it goes to.
 */
#define POLL_BYTES_MAX ((uint64_t)POLL_HANDLED_MAX * FRAME_MAX)

/* What the messages between two endpoints must fulfil. It only ever gets less. */
enum trust {
	TRUST_CLEAN,   /* all arrive, whole and in order */
	TRUST_LOSSY,   /* operations may fail; delivered messages are whole and in order */
	TRUST_HOSTILE, /* a word was forged: only operations must end */
};

enum operation_state { OPERATION_FREE, OPERATION_ACTIVE, OPERATION_DONE };

/* A receive that takes a message that already waits, or only peeks at it. */
enum look { LOOK_NONE, LOOK_PEEKS, LOOK_DISCARDS, LOOK_CLAIMS, LOOK_CLAIMED };

/* An application's operation. An entry is never used again in a run, so that a second completion shows. */
struct operation {
	unsigned char *buffer; /* of exactly `length` bytes, so that sanitizers see a byte beside */
	size_t length;
	enum operation_state state;
	bool send;
	bool tagged;
	bool in_heap;
	bool cancelled;
	bool delivered; /* a send: its message was received */
	bool in_burst;
	enum look look;
	uint8_t at;
	uint8_t other; /* the peer that it sends to or receives from; or NOBODY */
	uint16_t tag;
	uint32_t at_life;
	uint32_t other_life;
	uint32_t message; /* a receive: the send that it got, or WALK_OPERATIONS */
};

struct walk {
	struct fuzz_input input;
	struct operation operations[WALK_OPERATIONS];
	uint32_t count; /* of operations */
	enum trust trust[FAKE_ENDS][FAKE_ENDS];
	bool concerned[FAKE_ENDS];           /* by any fault so far: a receive from any source may fail */
	uint32_t lives[FAKE_ENDS];           /* how often each died */
	struct address addresses[FAKE_ENDS]; /* of the present life, or the last one */
	struct core_name names[FAKE_ENDS];   /* the same */
	uint8_t allowed;                     /* faults that the input allows: enum walk_fault */
	bool plugged;                        /* a region has two names by now */
	bool ending;                         /* every peer is given up: any operation may fail */
};

/* Bursts are not a fault. If they are allowed, one in four receive steps is a burst. */
enum walk_fault {
	FAULT_FRAMES = 1,
	FAULT_LOSS = 2,
	FAULT_DEATH = 4,
	FAULT_EVICTION = 8,
	WALK_BURSTS = 16,
};

/* Report a fault and end the run. */
__attribute__((noreturn)) void find_fault(const char *what);

/* Inline, so that static analysis sees that the condition holds afterwards. */
static inline void require(bool condition, const char *what)
{
	if (!condition)
		find_fault(what);
}

bool is_alive(uint8_t index);
void distrust(struct walk *walk, uint8_t one, uint8_t other, enum trust most);
/* The trust between the operation's two ends. If one of them is in a former life, none. */
enum trust trust_of(const struct walk *walk, const struct operation *operation, uint8_t other);
/* `whom` as `at` knows it now; NULL if they never met. */
struct peer *known(const struct walk *walk, uint8_t at, uint8_t whom);

/* Requires that at most `most` bytes were copied since work_copied() was `before`. */
void require_bounded(uint64_t before, uint64_t most, const char *what);

/* walk_messages.c, for walk_bursts.c, which repeats them. NULL if there can be none. */
struct operation *new_operation(struct walk *walk, uint8_t at, uint8_t other, bool send);
struct peer *find_peer(struct walk *walk, uint8_t at, uint8_t whom);
void set_buffer(const struct walk *walk, struct operation *operation, bool in_heap);
/*
 * Fill its buffer and send it, with `flags` in addition to the usual flags. Released if the provider does not
 * take it.
 */
void send_operation(struct walk *walk, struct operation *operation, struct peer *to, bool in_pieces,
		    uint64_t flags);
/* Post a receive, or peek, according to `flags`. Released if the provider does not take it. */
ssize_t post_operation(struct walk *walk, struct operation *operation, const struct peer *from,
		       uint64_t ignore, uint64_t flags);

void walk_send(struct walk *walk);
void walk_receive(struct walk *walk);
void walk_cancel(struct walk *walk);
/* Post a receive from any source that takes this message, unless an earlier message takes it. */
void receive_message(struct walk *walk, const struct operation *sent);
void take_completions(struct walk *walk, uint8_t at);
/* All operations of `at` end with it. */
void forget_operations(struct walk *walk, uint8_t at);
void release_operation(struct operation *operation);

void walk_burst(struct walk *walk);
/* Receive all claimed messages. */
void receive_claimed(struct walk *walk);

void walk_open(struct walk *walk, uint8_t index, const char *list);
void walk_frame(struct walk *walk);
void walk_loss(struct walk *walk);
void walk_death(struct walk *walk);
void walk_eviction(struct walk *walk);

#endif
