/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote.h - one-sided operations: reads, writes and atomics of memory that a peer has
 * registered, carried out by the peer when it makes progress.
 *
 *   initiator                               target
 *   WRITE, READ, ATOMIC ...  ───────────▶   checked against its registrations, carried out
 *                            ◀───────────   REPLY to each that wants bytes; DONE to several
 *
 * An operation is one request or several: one for each range of the peer's memory, and for
 * each chunk of a long range. Every request stands for itself, so the target keeps nothing
 * between two. Operations of up to REMOTE_WHOLE_BYTES go in one go, or not at all if there is
 * no room (-EAGAIN), and so are carried out in the order of the calls. Longer ones go in
 * pieces, between which other messages and operations pass.
 *
 * Both sides count requests. Answers come in the order of the requests and say to which they
 * are; one DONE answers all up to its own. So a request carries nothing that comes back, and
 * a peer can name nothing but the number of a request.
 *
 * Memory in the region is reached without any of this: see direct.h. Long ones over the network
 * have their bytes moved by the core, and are not counted: see remote_core.c.
 *
 * remote.c         slots of both sides; progress; peers that failed
 * remote_request.c the initiator: requests
 * remote_answer.c  the initiator: answers, and operations that end
 * remote_target.c  the target
 * remote_core.c, remote_core_target.c both sides of what the core moves
 */
#ifndef VICINAL_PROTO_REMOTE_H
#define VICINAL_PROTO_REMOTE_H

#include <rdma/fi_rma.h>

#include "match/match.h"
#include "proto/atomic_operations.h"
#include "proto/buffer.h"
#include "proto/reading.h"
#include "proto/wire.h"
#include "transport/transport.h"

struct registration;

/* Ranges of the peer's memory in one operation, at most. */
#define REMOTE_RANGES 4U
/* Up to here an operation is sent in one go, and kept in order. */
#define REMOTE_WHOLE_BYTES 4096U

enum remote_kind { REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC };

/* An answer that we wait for, from one peer; they come in this order. */
struct expectation {
	struct remote_operation *operation;
	uint64_t sequence;
	uint64_t position; /* in the operation's buffer, of the bytes that come */
	uint32_t length;
	bool reply; /* bytes come; else a DONE, of this request or of a later one */
};

/* An answer that we owe and there was no room for. */
struct owed_answer {
	struct owed_answer *next;
	uint64_t sequence;
	uint64_t key; /* of a long read, whose bytes are read when there is room */
	uint64_t address;
	uint32_t error; /* 0: a reply */
	uint32_t length;
	bool late;             /* the bytes are under `key` */
	unsigned char bytes[]; /* `length` of them, unless `late` */
};

/* What one-sided operations know of a peer; all zero at first. */
struct remote_peer {
	/* as initiator */
	uint64_t requests;            /* sent */
	uint64_t answered;            /* all up to this one were carried out */
	struct expectation *expected; /* a ring buffer; the capacity is a power of two */
	uint32_t expected_capacity;
	uint32_t expected_head;
	uint32_t expected_tail;
	uint32_t replies_expected;
	uint32_t by_core;        /* operations that the core moves */
	bool asks;               /* the next request asks for an answer, so that `answered` comes up */
	struct exposed *exposed; /* what may be reached without it: see direct.c. NULL: none asked for yet */
	/* as target */
	uint64_t taken;              /* requests carried out or refused */
	uint64_t told;               /* the last that an answer was given to */
	struct match_link answering; /* in messenger.remote_answering */
	bool is_answering;
	bool acknowledge; /* a DONE of all taken is asked for */
	uint32_t grants;  /* of its operations, those that the core moves */
	uint32_t owed_count;
	uint32_t owed_replies;
	struct owed_answer *owed;
	struct owed_answer *owed_last;
};

/* An operation that is not over when its call returns. */
struct remote_operation {
	struct match_link link; /* in messenger.remote_pumping, remote_awaiting or remote_by_core */
	struct msg_peer *to;
	void *context;
	uint64_t flags; /* as in remote_request */
	enum remote_kind kind;
	bool fetches;         /* an atomic that gives something back */
	uint32_t outstanding; /* requests that were sent and not answered */
	int error;            /* the first that an answer had */
	bool sent_all;
	/* the local memory that answers are copied to, or pieces of a long write from */
	struct buffer buffer;
	/* of a long operation */
	uint64_t data;
	uint64_t sent;
	uint64_t range_sent; /* of the current range */
	uint32_t range;
	uint32_t range_count;
	uint32_t piece; /* bytes of a request */
	struct fi_rma_iov ranges[REMOTE_RANGES];
	/* of a long one that is to go by the core, or does */
	bool by_core;
	bool reading;               /* the target exposes its memory */
	uint64_t id;                /* that the target knows it by; OPERATION_NO_ID: its peer failed */
	const char *reason;         /* why that did */
	struct network_grant grant; /* of a write: to the target */
	uint64_t grant_id;          /* of a read: the target's */
	struct reading read;
};

/* An operation of a peer's whose bytes the core moves to or from our memory. */
struct remote_grant {
	struct match_link link; /* in messenger.remote_grants */
	struct msg_peer *from;
	struct registration *registration; /* which stays as long as this does */
	bool reads;
	/* a read: what the peer may read */
	uint64_t id; /* ours */
	struct network_grant grant;
	/* a write: the peer's, read into our memory */
	uint64_t initiator_id;
	uint64_t data;
	uint32_t flags; /* enum wire_flags */
	struct buffer buffer;
	struct reading reading;
};

struct remote_request {
	enum remote_kind kind;
	const struct iovec *pieces; /* local memory: to be written, read to, or the operands */
	size_t count;
	size_t length;                   /* of all pieces */
	const struct fi_rma_iov *ranges; /* the peer's memory, `length` bytes in all */
	size_t range_count;
	struct msg_peer *to;
	uint64_t data;
	void *context;
	uint64_t flags; /* FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
			   FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA, FI_FENCE */
	/* atomics; all lists of pieces have `length` bytes */
	uint32_t datatype;
	uint32_t operation;
	uint32_t form;
	const struct iovec *compares;
	size_t compare_count;
	const struct iovec *results;
	size_t result_count;
};

/*
 * Begin an operation. Returns 0, -EAGAIN if there is no room now (progress, then try again),
 * or another errno. What the target refuses, the completion says.
 */
ssize_t messenger_remote(struct messenger *messenger, const struct remote_request *request);
/* Is everything over that was begun with this peer, messages included? What FI_FENCE waits for. */
bool messenger_is_quiet(const struct messenger *messenger, const struct msg_peer *to);
/*
 * A peer that still reads this registration by the core has had time enough to say that it is done. The peer
 * loses its connection at the next progress, and its grant is revoked. What our core writes stays.
 */
void messenger_recall(struct messenger *messenger, const struct registration *registration);

/* ---- between the files of this folder ---- */

/* remote.c */
int remote_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		  const struct ring_slot *slot);
uint32_t remote_work(struct messenger *messenger);
/* Returns whether anything was under way. */
bool remote_fail(struct messenger *messenger, struct msg_peer *peer);
/* Give back its memory, saying nothing to anybody. */
void remote_forget(struct messenger *messenger, struct msg_peer *peer);
/* Room for `slots`, connecting if need be. Returns 0, -EAGAIN or another errno. */
ssize_t remote_room(struct messenger *messenger, struct msg_peer *to, uint32_t slots);
/* How many slots `length` bytes take, a header counted in. */
uint32_t remote_slots(uint32_t length);
/*
 * Push a header of whole words (up to 32 bytes), and bytes after it, in as many slots as they
 * take. There is room.
 */
void remote_push(struct peer *peer, uint64_t control, uint64_t word, const void *header,
		 uint32_t header_length, const unsigned char *bytes, uint32_t length);
/*
 * Copy `length` bytes that follow `skip` bytes of the first slot's payload out of the ring.
 * Returns how many slots they took, or -EPROTO if they cannot be there.
 */
int remote_take(const struct ring_in *ring, const struct ring_slot *slot, uint32_t skip, unsigned char *bytes,
		uint32_t length);

/* remote_request.c: returns what is left of the budget of pieces. */
uint32_t remote_pump(struct messenger *messenger, struct remote_operation *operation, uint32_t budget);

/* remote_answer.c */
int remote_answered(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		    const struct ring_slot *slot);
void remote_end_if_over(struct messenger *messenger, struct remote_operation *operation, const char *reason);
void remote_complete(struct messenger *messenger, enum remote_kind kind, bool fetches, void *context,
		     uint64_t flags, int error, const char *reason);

/* Is this what a target may say that was wrong; and in words. */
bool remote_is_an_error(uint64_t error);
const char *remote_reason_of(int error);

/* remote_core.c */
/* May it go so, as far as is known before it begins? */
bool remote_core_may_move(const struct remote_request *request);
/*
 * Begin it, and take it from remote_pumping. False if there is no room now; or if it cannot go so after all,
 * and then `by_core` is not set any more.
 */
bool remote_core_begin(struct messenger *messenger, struct remote_operation *operation);
int remote_core_answered(struct messenger *messenger, struct msg_peer *from, uint64_t control,
			 const struct ring_slot *slot);
bool remote_core_fail(struct messenger *messenger, const struct msg_peer *to);

/* remote_core_target.c */
int remote_core_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		       const struct ring_slot *slot);
void remote_fail_grants(struct messenger *messenger, const struct msg_peer *from);
/* Their memory is not reached any more: before the core is closed, and after. */
void remote_revoke_grants(struct messenger *messenger);
void remote_free_grants(struct messenger *messenger);

/* remote_target.c */
/* An operation that changed memory was carried out, or the last part of it. */
void remote_report_written(struct messenger *messenger, const struct msg_peer *from, uint32_t flags,
			   uint64_t length, uint64_t data, const struct registration *registration);
int remote_carry_out(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		     const struct ring_slot *slot);
/* Give answers that are owed, as far as there is room. True if that was all. */
bool remote_answer(struct messenger *messenger, struct msg_peer *to);

#endif
