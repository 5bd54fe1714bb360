/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * walk_bursts.c - see walk.h. Steps of up to 64 operations with tags of their own: enough that matching
 * searches for long, and changes to its tables. The data of each message identifies it, so that messages that
 * are only peeked at or discarded are known as well.
 */
#include "fuzz/walk.h"

#include "fuzz/work.h"

#define BURST_MAX 64U
/* None of its bits is among the bits that receives of bursts ignore: they take no other message. */
#define BURST_TAG 256U
#define BURST_IGNORED 255U
/*
 * The most bytes that one call copies: a message, by us into a chunk, and by the fake core out of the chunk
 * and to its destination.
 */
#define CALL_BYTES_MAX(length) (4 * ((uint64_t)(length) + FRAME_HEAD_MAX))

enum { BURST_SENDS, BURST_RECEIVES, BURST_LOOKS, BURST_CANCELS };

struct burst {
	uint8_t at;
	uint8_t other;
	uint8_t style;
	uint8_t pattern;
	uint32_t count;
};

static const uint32_t lengths[] = {8, 9, 49, 440, 3000, 4096, 8, 20000};

static size_t length_of(const struct burst *burst)
{
	return lengths[burst->pattern >> 5];
}

static uint16_t tag_of(const struct burst *burst, uint32_t index)
{
	uint32_t tags = 1U + (burst->style >> 4) * 8U;

	/* The last first: the match is far from the beginning of the search. */
	if (burst->pattern & 1)
		index = burst->count - 1 - index;
	return (uint16_t)(BURST_TAG + index % tags);
}

/*
 * The bits of tags that a receive of the burst ignores. The last pattern has more masks than there are
 * tables.
 */
static uint64_t ignored_by(const struct burst *burst, uint32_t index)
{
	switch (burst->pattern >> 1 & 3) {
	case 0:
		return 0;
	case 1:
		return BURST_IGNORED;
	case 2:
		return index & 1 ? 0 : BURST_IGNORED;
	default:
		return UINT64_C(1) << index % 8;
	}
}

static struct operation *new_of_burst(struct walk *walk, const struct burst *burst, uint32_t index, bool send)
{
	/* All from any source, or every second one. */
	bool any = !send && (burst->pattern & 8) && (burst->pattern & 16 || (index & 1));
	struct operation *operation = new_operation(walk, burst->at, any ? NOBODY : burst->other, send);

	if (operation == NULL)
		return NULL;
	operation->in_burst = true;
	operation->tagged = true;
	operation->tag = tag_of(burst, index);
	operation->length = length_of(burst);
	return operation;
}

static void send_burst(struct walk *walk, const struct burst *burst)
{
	for (uint32_t i = 0; i < burst->count; i++) {
		struct operation *operation = new_of_burst(walk, burst, i, true);
		struct peer *to = operation != NULL ? find_peer(walk, burst->at, burst->other) : NULL;
		if (to == NULL)
			return;
		size_t length = operation->length;
		set_buffer(walk, operation, burst->style & 4);
		uint64_t before = work_copied();
		send_operation(walk, operation, to, false,
			       FI_REMOTE_CQ_DATA | (burst->style & 8 ? FI_DELIVERY_COMPLETE : 0U));
		require_bounded(before, CALL_BYTES_MAX(length), "a send copies more than its message");
	}
}

/*
 * A receive of the burst, with its source in `from`, NULL for any source. Returns NULL if there are enough.
 */
static struct operation *new_receive(struct walk *walk, const struct burst *burst, uint32_t i,
				     const struct peer **from)
{
	struct operation *operation = new_of_burst(walk, burst, i, false);

	if (operation == NULL)
		return NULL;
	*from = operation->other == NOBODY ? NULL : find_peer(walk, burst->at, burst->other);
	if (*from == NULL)
		operation->other = NOBODY;
	return operation;
}

static void receive_burst(struct walk *walk, const struct burst *burst)
{
	for (uint32_t i = 0; i < burst->count; i++) {
		const struct peer *from = NULL;
		struct operation *operation = new_receive(walk, burst, i, &from);
		if (operation == NULL)
			return;
		set_buffer(walk, operation, burst->style & 4);
		uint64_t before = work_copied();
		(void)post_operation(walk, operation, from, ignored_by(burst, i), 0);
		require_bounded(before, CALL_BYTES_MAX(lengths[7]), "a receive copies more than its message");
	}
}

static void look_burst(struct walk *walk, const struct burst *burst)
{
	static const enum look looks[] = {LOOK_PEEKS, LOOK_DISCARDS, LOOK_CLAIMS, LOOK_CLAIMS};
	static const uint64_t flags[] = {
		[LOOK_PEEKS] = FI_PEEK,
		[LOOK_DISCARDS] = FI_PEEK | FI_DISCARD,
		[LOOK_CLAIMS] = FI_PEEK | FI_CLAIM,
	};

	for (uint32_t i = 0; i < burst->count; i++) {
		const struct peer *from = NULL;
		struct operation *operation = new_receive(walk, burst, i, &from);
		if (operation == NULL)
			return;
		operation->look = looks[burst->style >> 2 & 3];
		uint64_t before = work_copied();
		(void)post_operation(walk, operation, from, ignored_by(burst, i), flags[operation->look]);
		/* The call polls, and a sink takes discarded messages. */
		require_bounded(before, POLL_BYTES_MAX, "a peek copies more than a poll");
	}
}

/* Cancel every second or third posted receive, or all. */
static void cancel_burst(struct walk *walk, const struct burst *burst)
{
	uint32_t left = burst->count;

	for (uint32_t i = 0; i < walk->count && left > 0; i++) {
		struct operation *operation = &walk->operations[i];
		if (operation->state != OPERATION_ACTIVE || operation->send || !operation->in_burst ||
		    operation->look != LOOK_NONE || operation->at != burst->at ||
		    i % (1U + (burst->style >> 2 & 3)) != 0)
			continue;
		left--;
		uint64_t before = work_copied();
		if (messenger_cancel(world.nodes[operation->at].node.messenger, operation) == 0)
			operation->cancelled = true;
		require_bounded(before, 4 * sizeof(struct completion), "a cancel copies more than an entry");
	}
}

static void receive_one(struct walk *walk, struct operation *operation)
{
	/* Room for the message's number, and for bytes that a hostile peer may claim to have sent. */
	if (operation->length < sizeof(uint64_t))
		operation->length = sizeof(uint64_t);
	set_buffer(walk, operation, false);
	uint64_t before = work_copied();
	require(post_operation(walk, operation, NULL, 0, FI_CLAIM) == 0, "the claimed message is gone");
	require_bounded(before, CALL_BYTES_MAX(operation->length), "a claim copies more than its message");
}

static void receive_claimed_at(struct walk *walk, uint8_t at)
{
	for (uint32_t i = 0; i < walk->count; i++) {
		struct operation *operation = &walk->operations[i];
		if (operation->state == OPERATION_ACTIVE && operation->look == LOOK_CLAIMED &&
		    operation->at == at && operation->buffer == NULL)
			receive_one(walk, operation);
	}
}

void receive_claimed(struct walk *walk)
{
	for (uint8_t at = 0; at < FAKE_ENDS; at++)
		if (is_alive(at))
			receive_claimed_at(walk, at);
}

void walk_burst(struct walk *walk)
{
	uint8_t ends = take_u8(&walk->input);
	struct burst burst = {
		.at = ends % FAKE_ENDS,
		.other = ends / 16 % FAKE_ENDS,
		.style = take_u8(&walk->input),
		.pattern = take_u8(&walk->input),
		.count = 1U + take_u8(&walk->input) % BURST_MAX,
	};

	if (!is_alive(burst.at))
		return;
	switch (burst.style & 3) {
	case BURST_SENDS:
		send_burst(walk, &burst);
		break;
	case BURST_RECEIVES:
		receive_burst(walk, &burst);
		break;
	case BURST_LOOKS:
		look_burst(walk, &burst);
		break;
	default:
		receive_claimed_at(walk, burst.at);
		cancel_burst(walk, &burst);
		break;
	}
}
