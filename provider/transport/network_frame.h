/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_frame.h - what goes over the wire between two endpoints: frames. Each is one message of
 * the core, and all integers are little endian.
 *
 *   frame_header, then by kind:
 *   FRAME_SLOTS   `slots` slots without what is not needed of them, then the bytes of one chunk
 *   FRAME_HELLO   struct frame_hello: who the sender is, before anything else of it
 *   FRAME_LEAVE   nothing: the sender's last
 *   FRAME_LEFT    nothing: all that came before your LEAVE was taken
 *   FRAME_REFUSE  nothing: what you sent cannot be, and no more of it is read
 *   FRAME_PING    nothing: are you there? Answered by PONG
 *   FRAME_PONG    nothing
 *   FRAME_SWITCHED   nothing: all up to your last slot this way was taken, and `sequence` frames in all
 *   FRAME_FAILOVER   struct frame_failover: I know nothing of before, and begin at 0 again, as you will. The
 *                 `sequence` is 0 if you are to say so too, and 1 if this answers you
 *   FRAME_DETACH    nothing: nothing that I send you goes through the region we share. The `sequence` is 1
 *                 if you have said so to me, and else 0; `bytes` says which region, and which epoch of
 *                 mine there: network_tenancy(); DETACH_ANY of one that shares none with you. See detach.h
 *   FRAME_REGION  struct frame_region: I am in this region. The `sequence` is 0 if you are to say so if
 *                 you are too, 1 if this answers you, and 2 if that was heard: see reattach.h
 *
 * HELLO, SLOTS and LEAVE are numbered from 0 on by each sender for each receiver: one that is lost,
 * repeated or comes from another stream shows. The others say nothing that matters in which order.
 * `stream` is 0, and 1 after a FAILOVER: frames of the other one are dropped.
 *
 * A slot is its control word, its word, and as many bytes of its payload as the lowest 16 bits of
 * the control word say, where a ring has the lap. If its payload names a chunk, that is the one in
 * the frame, at offset 0.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_FRAME_H
#define VICINAL_TRANSPORT_NETWORK_FRAME_H

#include "region/chunks.h"
#include "transport/network_core.h"

#define FRAME_MAGIC 0x4e56U /* the bytes "VN" */
#define FRAME_VERSION 1U

/* frame_header.bytes of a DETACH. */
#define DETACH_ANY 0U

enum frame_kind {
	FRAME_SLOTS = 1,
	FRAME_HELLO = 2,
	FRAME_LEAVE = 3,
	FRAME_LEFT = 4,
	FRAME_REFUSE = 5,
	FRAME_PING = 6,
	FRAME_PONG = 7,
	FRAME_SWITCHED = 8,
	FRAME_FAILOVER = 9,
	FRAME_DETACH = 10,
	FRAME_REGION = 11,
};

/* `magic`, `version`, `to` and `from` stay where they are in every version, so that it can be told. */
struct frame_header {
	uint16_t magic;
	uint8_t version;
	uint8_t kind;
	uint16_t slots;
	uint16_t stream;
	uint64_t to;   /* the receiver's nonce: only who was told of it can send to it */
	uint64_t from; /* the sender's */
	uint32_t sequence;
	uint32_t bytes; /* of the chunk */
};
_Static_assert(sizeof(struct frame_header) == 32, "the same everywhere");

struct frame_hello {
	uint16_t provider;
	uint8_t length;
	uint8_t flags; /* as in struct core_name */
	uint8_t name[CORE_NAME_MAX];
};
_Static_assert(sizeof(struct frame_hello) == 32, "the same everywhere");

/* Who the sender is in the region by which the two knew each other; and where in the network. */
struct frame_failover {
	uint64_t region[2]; /* its id */
	uint32_t slot;
	uint32_t epoch;
	struct frame_hello hello;
};
_Static_assert(sizeof(struct frame_failover) == 56, "the same everywhere");

/* Who the sender is in a region, by what stands there: the nonce of its section is not that of its frames. */
struct frame_region {
	uint64_t region[2]; /* its id */
	uint64_t nonce;
	uint32_t slot;
	uint32_t epoch;
};
_Static_assert(sizeof(struct frame_region) == 32, "the same everywhere");

/* The beginning of a slot in a frame. */
struct frame_slot {
	uint64_t control;
	uint64_t word;
};

/*
 * A frame has at most so many slots, and so does the group of slots that belong together (of which
 * the last 8 are kept for the group that comes last).
 */
#define FRAME_SLOTS_MAX 32U
#define FRAME_GROUP_MAX 8U
#define FRAME_PAYLOAD_MAX (RING_PAYLOAD - 8U)
#define FRAME_CHUNK_MAX CHUNK_LARGE
#define FRAME_HEAD_MAX \
	(sizeof(struct frame_header) + FRAME_SLOTS_MAX * (sizeof(struct frame_slot) + FRAME_PAYLOAD_MAX))
#define FRAME_MAX (FRAME_HEAD_MAX + FRAME_CHUNK_MAX)

#endif
