/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_frame.h - frames, the format of what two endpoints exchange. Each frame is one message of
 * the core, and all integers are little endian.
 *
 *   frame_header, then by kind:
 *   FRAME_SLOTS     `slots` slots, shortened to the bytes in use, then the bytes of one chunk
 *   FRAME_HELLO     struct frame_hello: the sender's identity, before all other numbered frames
 *   FRAME_LEAVE     empty: the sender's last frame
 *   FRAME_LEFT      empty: everything before your LEAVE was taken
 *   FRAME_REFUSE    empty: you violated the protocol, and nothing more from you is read
 *   FRAME_PING      empty: are you there? Answered by PONG
 *   FRAME_PONG      empty
 *   FRAME_SWITCHED  empty: everything up to your last slot by this transport was taken; `sequence` is
 *                   the number of frames taken in all
 *   FRAME_FAILOVER  struct frame_failover: I have dropped the old stream, and begin at 0 again, as you
 *                   must. `sequence` is 0 for a request, which you must answer, and 1 for an answer
 *   FRAME_DETACH    empty: nothing that I send you goes through the region that we share. `sequence` is
 *                   1 if I have received your DETACH, else 0. `bytes` identifies the region and my
 *                   epoch there: network_tenancy(), or DETACH_ANY if I share none with you. See detach.h
 *   FRAME_REGION    struct frame_region: I am in this region. `sequence` is 0 for a question, which you
 *                   must answer if you are there too; 1 for the answer; 2 for its acknowledgement: see
 *                   reattach.h
 *   FRAME_TAKEN     empty: `sequence` is the number of numbered frames of yours that I took in all
 *
 * HELLO, SLOTS and LEAVE are numbered from 0 by each sender for each receiver, which shows lost,
 * repeated and foreign frames. The order of the other frames does not matter. `stream` is 0, and 1
 * after a FAILOVER; frames of the other stream are dropped. At most NETWORK_WINDOW frames of slots
 * are on their way to a receiver: it says TAKEN for each half of them.
 *
 * A slot consists of its control word, its word, and its payload. The lowest 16 bits of the control
 * word, which are the lap in a ring, give the length of the payload. If the payload names a chunk,
 * it means the chunk in the frame, at offset 0.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_FRAME_H
#define VICINAL_TRANSPORT_NETWORK_FRAME_H

#include "region/chunks.h"
#include "transport/network_core.h"

#define FRAME_MAGIC 0x4e56U /* the bytes "VN" */
#define FRAME_VERSION 2U    /* of keepalive datagrams too */

/* frame_header.bytes of a DETACH whose sender shares no region with the receiver. */
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
	FRAME_TAKEN = 12,
};

/*
 * `magic`, `version`, `to` and `from` have the same position in all versions, so that another
 * version can be detected.
 */
struct frame_header {
	uint16_t magic;
	uint8_t version;
	uint8_t kind;
	uint16_t slots;
	uint16_t stream;
	uint64_t to;   /* the receiver's nonce: only a process that knows it can send frames */
	uint64_t from; /* the sender's nonce */
	uint32_t sequence;
	uint32_t bytes; /* length of the chunk */
};
_Static_assert(sizeof(struct frame_header) == 32, "the same on all platforms");

struct frame_hello {
	uint16_t provider;
	uint8_t length;
	uint8_t flags; /* as in struct core_name */
	uint8_t name[CORE_NAME_MAX];
};
_Static_assert(sizeof(struct frame_hello) == 32, "the same on all platforms");

/* The sender's identity in the region by which the two knew each other, and its network address. */
struct frame_failover {
	uint64_t region[2]; /* its id */
	uint32_t slot;
	uint32_t epoch;
	struct frame_hello hello;
};
_Static_assert(sizeof(struct frame_failover) == 56, "the same on all platforms");

/*
 * The sender's identity in a region, from the words in its section. The nonce of the section
 * differs from the nonce of the sender's frames.
 */
struct frame_region {
	uint64_t region[2]; /* its id */
	uint64_t nonce;
	uint32_t slot;
	uint32_t epoch;
};
_Static_assert(sizeof(struct frame_region) == 32, "the same on all platforms");

/* The beginning of a slot in a frame. */
struct frame_slot {
	uint64_t control;
	uint64_t word;
};

/*
 * The maximum number of slots in a frame, and in a group of slots that belong together. (The last 8
 * of a frame are reserved for its last group.)
 */
#define FRAME_SLOTS_MAX 32U
#define FRAME_GROUP_MAX 8U
#define FRAME_PAYLOAD_MAX (RING_PAYLOAD - 8U)
#define FRAME_CHUNK_MAX CHUNK_LARGE
#define FRAME_HEAD_MAX \
	(sizeof(struct frame_header) + FRAME_SLOTS_MAX * (sizeof(struct frame_slot) + FRAME_PAYLOAD_MAX))
#define FRAME_MAX (FRAME_HEAD_MAX + FRAME_CHUNK_MAX)

#endif
