/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote.h - one-sided operations: reads, writes and atomics of memory that a peer has registered. The peer
 * executes them when it makes progress.
 *
 *   initiator                               target
 *   WRITE, READ, ATOMIC ...  ───────────▶   checked against its registrations, executed
 *                            ◀───────────   REPLY to each request for bytes; DONE to several
 *
 * An operation is one or several requests: one for each range of the peer's memory, and for each chunk of a
 * long range. Each request is complete in itself, so the target keeps no state between requests. Operations
 * of up to REMOTE_WHOLE_BYTES are sent at once or, without room, not at all (-EAGAIN), and so execute in the
 * order of the calls. Longer operations are sent in pieces, and other messages and operations pass between
 * the pieces.
 *
 * Both sides count requests. Answers come in the order of the requests and contain the number of a request;
 * one DONE answers all requests up to its own. So a request carries no identifier, and a peer can name only
 * the number of a request.
 *
 * Memory in the region needs no requests: see direct.h. The core provider moves the bytes of long operations
 * over the network, and they are not counted: see remote_core.c.
 *
 *   remote.c         slots of both sides, progress, failed peers
 *   remote_request.c the initiator: requests
 *   remote_answer.c  the initiator: answers, and the end of operations
 *   remote_target.c  the target
 *   remote_core.c, remote_core_target.c both sides of operations by the core provider
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

/* The most ranges of the peer's memory in one operation. */
#define REMOTE_RANGES 4U
/* Operations of up to this length are sent at once, and keep their order. */
#define REMOTE_WHOLE_BYTES 4096U

enum remote_kind { REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC };

/* An expected answer of a peer. Answers arrive in this order. */
struct expectation {
	struct remote_operation *operation;
	uint64_t sequence;
	uint64_t position; /* of the expected bytes in the operation's buffer */
	uint32_t length;
	bool reply; /* an answer with bytes; else the DONE of this or a later request */
};

/* An answer that waits for room. */
struct owed_answer {
	struct owed_answer *next;
	uint64_t sequence;
	uint64_t key; /* of a long read, whose bytes are read when there is room */
	uint64_t address;
	uint32_t error; /* 0 for a reply */
	uint32_t length;
	bool late;             /* the bytes are read under `key` */
	unsigned char bytes[]; /* `length` bytes, unless `late` */
};

/* The state of one-sided operations with a peer, initialised to zero. */
struct remote_peer {
	/* as initiator */
	uint64_t requests;            /* sent */
	uint64_t answered;            /* all requests up to this number were executed */
	struct expectation *expected; /* a ring buffer; the capacity is a power of two */
	uint32_t expected_capacity;
	uint32_t expected_head;
	uint32_t expected_tail;
	uint32_t replies_expected;
	uint32_t by_core;        /* operations whose bytes the core provider moves */
	bool asks;               /* the next request asks for an answer, to raise `answered` */
	struct exposed *exposed; /* cache of exposed memory: see direct.c. NULL: not used yet */
	/* as target */
	uint64_t taken;              /* requests executed or refused */
	uint64_t told;               /* the last request that was answered */
	struct match_link answering; /* in messenger.remote_answering */
	bool is_answering;
	bool acknowledge; /* a DONE for all requests was requested */
	uint32_t grants;  /* its operations whose bytes the core provider moves */
	uint32_t owed_count;
	uint32_t owed_replies;
	struct owed_answer *owed;
	struct owed_answer *owed_last;
};

/* An operation that continues after its call. */
struct remote_operation {
	struct match_link link; /* in messenger.remote_pumping, remote_awaiting or remote_by_core */
	struct msg_peer *to;
	void *context;
	uint64_t flags; /* as in remote_request */
	enum remote_kind kind;
	bool fetches;         /* an atomic that returns values */
	uint32_t outstanding; /* requests sent but not answered */
	int error;            /* the first error of an answer */
	bool sent_all;
	/* local memory that answers are copied to, or that pieces of a long write come from */
	struct buffer buffer;
	/* long operations */
	uint64_t data;
	uint64_t sent;
	uint64_t range_sent; /* of the current range */
	uint32_t range;
	uint32_t range_count;
	uint32_t piece; /* bytes of each request */
	struct fi_rma_iov ranges[REMOTE_RANGES];
	/* long operations by the core provider */
	bool by_core;
	bool reading;               /* the target has exposed its memory */
	uint64_t id;                /* its id at the target; OPERATION_NO_ID: the peer failed */
	const char *reason;         /* why the peer failed */
	struct network_grant grant; /* of a write: for the target */
	uint64_t grant_id;          /* of a read: the target's id */
	struct reading read;
};

/* A peer's operation whose bytes the core provider moves to or from local memory. */
struct remote_grant {
	struct match_link link; /* in messenger.remote_grants */
	struct msg_peer *from;
	struct registration *registration; /* cannot be closed before this ends */
	bool reads;
	/* a read: the memory that the peer may read */
	uint64_t id; /* the target's id */
	struct network_grant grant;
	/* a write: the peer's memory, which is read into local memory */
	uint64_t initiator_id;
	uint64_t data;
	uint32_t flags; /* enum wire_flags */
	struct buffer buffer;
	struct reading reading;
};

struct remote_request {
	enum remote_kind kind;
	const struct iovec *pieces; /* local memory: source of a write, destination of a read, or operands */
	size_t count;
	size_t length;                   /* of all pieces */
	const struct fi_rma_iov *ranges; /* the peer's memory, `length` bytes together */
	size_t range_count;
	struct msg_peer *to;
	uint64_t data;
	void *context;
	uint64_t flags; /* FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
			   FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA, FI_FENCE */
	/* atomics; each list of pieces has `length` bytes */
	uint32_t datatype;
	uint32_t operation;
	uint32_t form;
	const struct iovec *compares;
	size_t compare_count;
	const struct iovec *results;
	size_t result_count;
};

/*
 * Begins an operation. Returns 0, -EAGAIN if there is no room now (make progress and try again), or another
 * negative errno. If the target refuses the operation, the completion says so.
 */
ssize_t messenger_remote(struct messenger *messenger, const struct remote_request *request);
/* Whether all operations and messages to this peer have ended. FI_FENCE waits for this. */
bool messenger_is_quiet(const struct messenger *messenger, const struct msg_peer *to);
/*
 * Disconnects peers that still read this registration through the core provider, after they had time to end.
 * The connection ends at the next progress, and the grant is revoked. Writes by this side's core provider are
 * not affected.
 */
void messenger_recall(struct messenger *messenger, const struct registration *registration);

/* ---- inside this folder ---- */

/* remote.c */
int remote_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		  const struct ring_slot *slot);
uint32_t remote_work(struct messenger *messenger);
/* Returns whether an operation was in progress. */
bool remote_fail(struct messenger *messenger, struct msg_peer *peer);
/* Frees the peer's state without reporting anything. */
void remote_forget(struct messenger *messenger, struct msg_peer *peer);
/* The slots that `length` bytes take, including their header. */
uint32_t remote_slots(uint32_t length);
/*
 * Pushes a header of whole words (up to 32 bytes) and the bytes after it, in as many slots as needed. The
 * caller has made room.
 */
void remote_push(struct peer *peer, uint64_t control, uint64_t word, const void *header,
		 uint32_t header_length, const unsigned char *bytes, uint32_t length);
/*
 * Copies `length` bytes out of the ring, which follow `skip` bytes of the first slot's payload. Returns the
 * number of slots, or -EPROTO if they are invalid.
 */
int remote_take(const struct ring_in *ring, const struct ring_slot *slot, uint32_t skip, unsigned char *bytes,
		uint32_t length);

/* remote_request.c: returns the remaining budget of pieces. */
uint32_t remote_pump(struct messenger *messenger, struct remote_operation *operation, uint32_t budget);

/* remote_answer.c */
int remote_answered(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		    const struct ring_slot *slot);
void remote_end_if_over(struct messenger *messenger, struct remote_operation *operation, const char *reason);
void remote_complete(struct messenger *messenger, enum remote_kind kind, bool fetches, void *context,
		     uint64_t flags, int error, const char *reason);

/* Whether a target may send this error, and the error in words. */
bool remote_is_an_error(uint64_t error);
const char *remote_reason_of(int error);

/* remote_core.c */
/* Whether the core provider may move the bytes, as far as is known beforehand. */
bool remote_core_may_move(const struct remote_request *request);
/*
 * Begins the operation and removes it from remote_pumping. Returns false if there is no room now, or if the
 * core provider cannot move the bytes after all. In the latter case `by_core` is cleared.
 */
bool remote_core_begin(struct messenger *messenger, struct remote_operation *operation);
int remote_core_answered(struct messenger *messenger, struct msg_peer *from, uint64_t control,
			 const struct ring_slot *slot);
bool remote_core_fail(struct messenger *messenger, const struct msg_peer *to);

/* remote_core_target.c */
int remote_core_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		       const struct ring_slot *slot);
void remote_fail_grants(struct messenger *messenger, const struct msg_peer *from);
/* Revoke access before the core provider is closed, and free the grants afterwards. */
void remote_revoke_grants(struct messenger *messenger);
void remote_free_grants(struct messenger *messenger);

/* remote_target.c */
/* An operation that changes memory was executed, or its last part. */
void remote_report_written(struct messenger *messenger, const struct msg_peer *from, uint32_t flags,
			   uint64_t length, uint64_t data, const struct registration *registration);
int remote_carry_out(struct messenger *messenger, struct msg_peer *from, uint64_t control,
		     const struct ring_slot *slot);
/* Sends waiting answers, as far as there is room. Returns true if all were sent. */
bool remote_answer(struct messenger *messenger, struct msg_peer *to);

#endif
