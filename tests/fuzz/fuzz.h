/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz.h - the state of a run of fuzz_receive, and what its hostile member can do.
 *
 *   section 0: the victim     section 1: poison, read by nobody     section 2: hostile
 *   then a guard page: accesses beside the hostile section fault or are reported
 */
#ifndef VICINAL_TESTS_FUZZ_H
#define VICINAL_TESTS_FUZZ_H

#include "fuzz/fuzz_input.h"
#include "proto/messenger.h"

#define MEMBERS 3U
#define VICTIM 0U
#define UNUSED 1U
#define HOSTILE 2U
/* Room for two buffers of the longest message that the victim takes. */
#define HEAP_BYTES (72U * REGION_PAGE)
#define SECTION_BYTES ((uint64_t)REGION_SECTION_MIN + HEAP_BYTES)
#define OPERATIONS_MAX 64U
/*
 * The victim's registrations: all of the memory under key 1, for reading only or writing only under 2 and 3,
 * at the last possible addresses under 4, for another endpoint under 5, and not yet registered under 6.
 */
#define REACHABLE_BYTES 20000U
#define REACHABLE_KEYS 6U
#define REACHABLE_HIGH (UINT64_MAX - REACHABLE_BYTES)

/*
 * Where an operation's buffer is: a block of its own, or at the end of one half of the victim's heap. Each
 * half has room for one buffer at a time.
 */
enum location { IN_MEMORY, IN_FIRST_HALF, IN_SECOND_HALF };

/* An operation of the victim's application. Its buffer lives until it completes. */
struct operation {
	unsigned char *buffer;
	size_t length;
	bool active;
	bool send;
	bool several;
	bool directed; /* at or to the hostile member */
	bool claims;   /* a message that was not received yet */
	enum location location;
};

struct fuzz {
	struct fuzz_input input;
	struct region *region;
	struct messenger *messenger;
	struct completion_queue completions;
	struct operation operations[OPERATIONS_MAX];
	unsigned char *reachable;
	struct registration registrations[REACHABLE_KEYS];
	bool registered[REACHABLE_KEYS];
	struct registration_table table;
	uint32_t hostile_epoch;
	uint32_t ring_position; /* of the hostile member's ring to the victim */
	uint32_t ring_offset;
	uint32_t ring_slots;
	uint32_t exposures; /* published by the hostile member */
};

/* Reports a fault and ends the run if `condition` does not hold. */
void require(bool condition, const char *what);

/* fuzz_receive.c, for the application's calls in one_sided.c */
struct operation *new_operation(struct fuzz *fuzz, size_t length, enum location location);
void end_operation(struct operation *operation);
struct msg_peer *meet(const struct fuzz *fuzz, bool hostile);

/* one_sided.c */
void expose(struct fuzz *fuzz);
void conceal(struct fuzz *fuzz);
void victim_remote(struct fuzz *fuzz);
/* Close the registration, or register the memory again. */
void victim_register(struct fuzz *fuzz);

/* hostile_remote.c: the kind, word, payload and sometimes the length of a request or an answer. */
uint32_t hostile_remote(struct fuzz *fuzz, uint8_t style, uint64_t location, uint64_t *word,
			uint64_t payload[6], uint32_t *length);

/* hostile.c: each takes the values that it writes from the input. */
void set_claim(const struct fuzz *fuzz, uint32_t slot, uint32_t epoch, uint32_t state);
void hostile_join(struct fuzz *fuzz);
void hostile_ring_bell(const struct fuzz *fuzz);
void hostile_connect(struct fuzz *fuzz, bool good);
void hostile_push(struct fuzz *fuzz);
void hostile_credit(struct fuzz *fuzz);
void hostile_expose(struct fuzz *fuzz);
void hostile_scribble(struct fuzz *fuzz);
void hostile_transfer(struct fuzz *fuzz);
void hostile_identity(struct fuzz *fuzz);

/* network.c */
void hostile_network(struct fuzz *fuzz);
/*
 * fail_network() fails all peers that the victim knows in the network. forget_network() frees the rest of its
 * network, after the messenger.
 */
void fail_network(struct fuzz *fuzz);
void forget_network(void);

#endif
