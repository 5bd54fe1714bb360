/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - the meaning of a ring's slots. docs/reference/region-format.md describes it in prose.
 *
 *   kind      word          payload (48 bytes)                              length
 *   INLINE    tag           [data] [id] bytes                               of the message
 *   SHORT     tag           [data] [id] bytes, goes on in CONTINUATION      of the message
 *   CONTINUATION   56 bytes, word and payload together                      0
 *   EAGER     tag           struct wire_eager: one chunk holds it all       of the message
 *   RENDEZVOUS tag          struct wire_rendezvous: offers a large message  of the first piece
 *   EARLY     sender's id   struct wire_piece: follows its RENDEZVOUS       of the piece
 *   CLEAR     sender's id   struct wire_clear: the receive is there         0
 *   PIECE     receiver's id struct wire_piece                               of the piece
 *   ACKNOWLEDGE sender's id the message was delivered                       0
 *   RECLAIM   0             the sender is out of chunks: empty its messages 0
 *   RESUME    sender's id   struct wire_resume: continue in pieces          0
 *   OFFER     tag           struct wire_offer: a large message to be read   0
 *   SWITCH    0             the last slot on this transport: switch.h       0
 *   PAUSE     1, or 0       1: send me no messages until a PAUSE of 0       0
 *   RESIZE    section offset the ring goes on there: region_rings.c         slots of the ring
 *
 * [data] is present with WIRE_DATA, [id] (the sender's) with WIRE_ACKNOWLEDGED. An id is meaningful only to
 * the side that created it, which checks it when it comes back. Pieces of a message come in order, so they
 * carry no offset.
 *
 * One-sided operations. The first five kinds are requests. Both sides count requests, and a request's number,
 * from 1, is its sequence. Requests are executed and answered in the order of the ring: an answer to one
 * means that all earlier requests were executed, too.
 *
 *   WRITE     key           address [data] bytes, goes on in CONTINUATION   of the bytes
 *   WRITE_CHUNK key         struct wire_write: one chunk holds them         of the bytes
 *   READ      key           address                                         of the wanted bytes
 *   ATOMIC    key           struct wire_atomic, operands, goes on           of the operands
 *   ATOMIC_CHUNK key        struct wire_atomic, struct wire_piece           of the operands
 *   REPLY     sequence      bytes, goes on in CONTINUATION                  of the bytes
 *   REPLY_CHUNK sequence    struct wire_piece                               of the bytes
 *   DONE      sequence      0, or the reason of the refusal, 8 bytes        0
 *
 * Long operations over the network, whose bytes the core provider moves: see remote_core.c. They are not
 * counted, and begin and end independently of requests.
 *
 *   CORE_WRITE initiator's id struct wire_core_write: read it from my memory    0
 *   CORE_READ  initiator's id struct wire_core_read: let me read this           0
 *   GRANT      initiator's id struct wire_grant: you may read it                0
 *   RETURN     target's id    the granted memory was read                       0
 *   ENDED      initiator's id 0: written; or the reason of the refusal, 8 bytes 0
 */
#ifndef VICINAL_PROTO_WIRE_H
#define VICINAL_PROTO_WIRE_H

#include "region/copy.h"
#include "transport/transport.h"

enum wire_kind {
	WIRE_INLINE = 1,
	WIRE_SHORT = 2,
	WIRE_CONTINUATION = 3,
	WIRE_EAGER = 4,
	WIRE_RENDEZVOUS = 5,
	WIRE_EARLY = 6,
	WIRE_CLEAR = 7,
	WIRE_PIECE = 8,
	WIRE_ACKNOWLEDGE = 9,
	WIRE_RECLAIM = 10,
	WIRE_RESUME = 11,
	WIRE_OFFER = 12, /* only over the network */
	WIRE_SWITCH = 13,
	WIRE_PAUSE = 14,
	WIRE_RESIZE = 15, /* only in a region */
	WIRE_WRITE = 16,
	WIRE_WRITE_CHUNK = 17,
	WIRE_READ = 18,
	WIRE_ATOMIC = 19,
	WIRE_ATOMIC_CHUNK = 20,
	WIRE_REPLY = 21,
	WIRE_REPLY_CHUNK = 22,
	WIRE_DONE = 23,
	WIRE_CORE_WRITE = 24, /* this kind and the next one only over the network */
	WIRE_CORE_READ = 25,
	WIRE_GRANT = 26,
	WIRE_RETURN = 27,
	WIRE_ENDED = 28,
};

enum wire_flags {
	WIRE_TAGGED = 1,
	WIRE_DATA = 2,
	WIRE_ACKNOWLEDGED = 4, /* asks for an ACKNOWLEDGE or a DONE */
	WIRE_LAST = 8,         /* the last request of an operation */
	/* of a piece: how it was copied into its chunk, and how it is best copied out. See copy_method.h */
	WIRE_LINEWISE = 16,
	WIRE_PAST_CACHE = 32,
	/* of a REPLY_CHUNK: more of the answer follows, because no chunk is large enough */
	WIRE_MORE = 64,
};

#define WIRE_INLINE_BYTES 48U
#define WIRE_CONTINUATION_BYTES 56U

/* The most slots of a short message. Measured against an eager message of the same size. */
#define WIRE_SHORT_SLOTS 8U
#define WIRE_SHORT_BYTES (WIRE_INLINE_BYTES + (WIRE_SHORT_SLOTS - 1) * WIRE_CONTINUATION_BYTES)

struct wire_eager {
	uint64_t data;
	uint64_t id;
	uint32_t chunk;
	uint32_t offset; /* section offset in the sender's section */
};

/*
 * Advice: what it costs the slot's sender to copy the other end's pieces out of chunks, for each method of
 * copy_method.h, in units of WIRE_TAKING_TICKS ticks for 64 KiB. 0: not measured.
 */
#define WIRE_TAKING_TICKS 64U
struct wire_taking {
	uint16_t cost[4]; /* the last is unused */
};

struct wire_rendezvous {
	uint64_t data;
	uint64_t id;
	uint64_t total;
	uint32_t early;    /* bytes that are sent without waiting for CLEAR, including the first piece */
	uint32_t transfer; /* the sender's transfer id for a single copy; 0 if it offers none */
	uint32_t chunk;    /* of the first piece; meaningless if its length is 0 */
	uint32_t offset;
	struct wire_taking taking;
};

struct wire_piece {
	uint32_t chunk;
	uint32_t offset;
};

struct wire_clear {
	uint64_t id;       /* the receiver's, for the pieces */
	uint64_t accepted; /* bytes that the receiver wants, at most the total */
	struct wire_taking taking;
	uint32_t method;   /* enum wire_method */
	uint32_t transfer; /* the receiver's transfer id, unless the method is WIRE_BY_PIECES */
	uint64_t offset;   /* section offset of the receiver's buffer, 0 if it is not in its heap */
};

/* How the rest of a large message is sent. */
enum wire_method {
	WIRE_BY_PIECES = 0,
	WIRE_BY_REGION = 1,  /* single copy; at least one buffer lies in the region */
	WIRE_BY_PROCESS = 2, /* single copy between the processes' memory */
};

/* The receiver cannot continue a single copy. */
struct wire_resume {
	uint64_t id;   /* the receiver's, for the pieces */
	uint64_t from; /* offset in the message */
};

/* Where the core provider reads the message: see transport/network.h. */
struct wire_offer {
	uint64_t data;
	uint64_t id;
	uint64_t total;
	uint64_t key;
	uint64_t address;
};

struct wire_write {
	uint64_t address;
	uint64_t rest; /* bytes of later requests: all bytes are in range, or none */
	uint64_t data;
	uint32_t chunk;
	uint32_t offset;
};

struct wire_atomic {
	uint64_t address;
	uint16_t count;    /* of elements */
	uint8_t datatype;  /* enum fi_datatype */
	uint8_t operation; /* enum fi_op */
	uint8_t form;      /* enum atomic_form: after ATOMIC_COMPARE the second operands follow */
	uint8_t reserved[3];
};

/*
 * A range of the target's memory, and the memory from which the target's core provider reads the new bytes.
 */
struct wire_core_write {
	uint64_t key;
	uint64_t address;
	uint64_t total;
	uint64_t data;
	uint64_t grant_key;
	uint64_t grant_address;
};

/* A range of the target's memory that the initiator's core provider reads. */
struct wire_core_read {
	uint64_t key;
	uint64_t address;
	uint64_t total;
};

/* Where the core provider reads it. */
struct wire_grant {
	uint64_t id; /* the target's, for RETURN */
	uint64_t key;
	uint64_t address;
};

/* An ENDED error besides those of DONE: the core provider cannot move the bytes, so continue by requests. */
#define WIRE_BY_REQUESTS ((uint64_t)UINT32_MAX)

/* Which bytes of a slot with this control word must be carried. */
struct slot_shape wire_shape(uint64_t control);

_Static_assert(sizeof(struct wire_atomic) == 16, "the same everywhere");
_Static_assert(sizeof(struct wire_rendezvous) <= WIRE_INLINE_BYTES, "the largest header fits in a slot");
_Static_assert(sizeof(struct wire_core_write) <= WIRE_INLINE_BYTES, "and this one");
_Static_assert(WIRE_INLINE_BYTES + 8 == RING_PAYLOAD, "word and payload fill a slot");

/*
 * Copies what CONTINUATIONs of a message or request carry: `length` bytes in all, of which the caller copied
 * `done` out of the first slot. Returns the number of slots, including the first, or -EPROTO if they are
 * invalid. Inlined, because a short message needs it.
 */
static inline int read_continuations(const struct ring_in *ring, unsigned char *bytes, uint32_t done,
				     uint32_t length)
{
	uint32_t slots = 1;

	for (; done < length; slots++) {
		const struct ring_slot *next = ring_at(ring, slots);
		/*
		 * A plain load is ordered by the acquire load of the first slot's control word, which the
		 * sender stores last.
		 */
		uint64_t control = shared_load_u64(&next->control);
		uint32_t part =
			length - done < WIRE_CONTINUATION_BYTES ? length - done : WIRE_CONTINUATION_BYTES;
		if ((control & CONTROL_LAP_MASK) != ring_lap(ring->position + slots, ring->shift) ||
		    control_kind(control) != WIRE_CONTINUATION)
			return -EPROTO;
		copy_small_in(bytes + done, (const shared_bytes *)&next->word, part);
		done += part;
	}
	return (int)slots;
}

/* The most pieces that a rendezvous sends before CLEAR. */
#define WIRE_EARLY_PIECES 4U

/*
 * The most bytes of a request or reply, the most bytes of each operand list of an atomic, the most answers
 * with bytes that a peer may be owed, and the most unanswered requests.
 */
#define WIRE_REMOTE_BYTES CHUNK_LARGE
#define WIRE_ATOMIC_BYTES 4096U
#define WIRE_REPLIES_MAX 64U
#define WIRE_REQUESTS_MAX 1024U
/* The most operations of one peer by the core provider at the same time. */
#define WIRE_GRANTS_MAX 64U

#endif
