/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messenger.h - messages between endpoints: posted receives, unexpected messages, and operations in progress.
 * Each endpoint has one messenger. Not thread-safe: the layer above takes locks.
 *
 *   send.c       chooses a protocol and sends small messages
 *   send_queue.h messages for which a peer has no room
 *   arrive.c     handles arriving slots
 *   receive.c    posting, peeking, cancelling, delivering
 *   pause.c      stops senders whose messages nobody receives
 *   fetch.c      large messages over the network
 *   reading.h    reads of memory that a peer exposes, by the core provider
 *   rendezvous.c large messages, and control slots that wait for room
 *   remote.h     reads, writes and atomics
 *   direct.h     the same for memory in the region
 *   single_copy.c, single_copy_offer.c large messages that are copied once
 *   messenger.c  opening, closing, progress, failed peers
 */
#ifndef VICINAL_PROTO_MESSENGER_H
#define VICINAL_PROTO_MESSENGER_H

#include <errno.h>
#include <rdma/fabric.h>
#include <sys/types.h>

#include "match/match.h"
#include "proto/buffer.h"
#include "proto/completion.h"
#include "proto/copy_method.h"
#include "proto/direct.h"
#include "proto/operations.h"
#include "proto/pool.h"
#include "proto/reading.h"
#include "proto/registration.h"
#include "proto/remote.h"
#include "proto/send_queue.h"
#include "proto/single_copy.h"
#include "proto/thresholds.h"
#include "proto/wire.h"
#include "transport/network.h"
#include "transport/transport.h"

struct message;
struct receive;

/* A control slot (CLEAR, ACKNOWLEDGE, GRANT) that waits for room in a ring. */
struct control_slot {
	uint64_t control;
	uint64_t word;
	union {
		struct wire_clear clear;
		struct wire_resume resume;
		struct wire_grant grant;
		uint64_t error;
	};
};

/* The pause of a peer whose messages nobody receives: see pause.c. */
struct pausing {
	struct match_link link; /* in messenger.kept.pausing */
	bool told;              /* it was told to pause, and not yet to go on */
	bool read;              /* it has read that, and its ring holds the last of its messages */
	uint32_t messages;      /* how many more are taken nevertheless, which it sent before */
	uint64_t bytes;         /* the same for bytes in private memory */
};

/* The message layer's state of a peer. */
struct msg_peer {
	struct peer peer; /* must be first: the transport allocates and zeroes it */
	uint32_t streak;  /* large messages to the peer since the last one from it */
	uint32_t kept;    /* its messages that wait for a receive */
	/* the large message whose early pieces come next in the ring: at most one of the two */
	struct receive *early_receive;
	struct message *early_message;
	/* a ring buffer of waiting control slots; the capacity is a power of two */
	struct control_slot *waiting;
	uint32_t waiting_capacity;
	uint32_t waiting_head;
	uint32_t waiting_tail;
	struct message *holding;    /* its messages that hold chunks */
	uint64_t held[CHUNK_WORDS]; /* which chunks: each once, so kept messages never exceed its section */
	uint32_t reads;             /* reads in progress of memory that it exposed */
	uint64_t copied;            /* bytes of its messages that were moved to private memory */
	struct pausing pausing;
	bool paused; /* it told us to send it no messages */
	struct copy_methods copy_methods;
	struct copy_methods single_copy_methods; /* of this end's parts of copies into the peer's heap */
	struct remote_peer remote;
	struct send_queue queue;
	/* its process, for single copies: see single_copy_offer.c */
	struct process_peer process;
	uint32_t process_epoch; /* epoch to which the next members belong */
	uint32_t process_state;
	uint32_t process_tries;
	bool takes_single; /* it accepted the last single copy that was offered to it */
};

/* A message in progress that one call could not finish. */
struct send {
	struct match_link link; /* in messenger.pumping or messenger.awaiting */
	struct msg_peer *to;
	struct buffer buffer;
	void *context;
	uint64_t id;
	uint64_t receiver_id;
	uint64_t sent;     /* bytes copied into chunks */
	uint64_t accepted; /* bytes that the receiver wants; the total until CLEAR */
	uint32_t stalls;   /* polls in a row that found no room */
	bool waits_for_clear;
	bool acknowledged;
	uint64_t tag;
	uint64_t flags;             /* as in send_request */
	struct single_copy *copy;   /* offered or in progress; else NULL */
	struct network_grant grant; /* for a receiver that reads the message over the network */
};

/*
 * A receive, posted or taking pieces of a large message. A short message that completes a receive touches
 * only the first two cache lines.
 */
struct receive {
	struct match_receive match; /* must be first */
	void *context;
	uint64_t flags; /* as in receive_request */
	/* multi-receive buffers */
	struct receive *parent; /* the receive whose buffer this one takes a part of */
	uint32_t parts;         /* parts of this buffer in progress */
	bool withdrawn;         /* no longer posted: the last part to end releases the buffer */
	bool sink;              /* discards its message */
	struct buffer buffer;
	/* large messages */
	struct match_link incoming; /* in messenger.incoming */
	struct msg_peer *from;
	uint64_t id;
	uint64_t sender_id;
	uint64_t tag;
	uint64_t data;
	uint64_t total;
	uint64_t early;    /* bytes that arrive before CLEAR */
	uint64_t expected; /* all bytes that arrive */
	uint64_t arrived;
	uint32_t wire_flags;
	struct single_copy *copy; /* in progress, else NULL */
	uint32_t offered;         /* the sender's transfer; 0 if it offers none */
	/* messages that are read over the network: see fetch.c */
	struct reading reading;
	bool fetching;
};

_Static_assert(offsetof(struct receive, buffer.pieces[1]) == 128, "a short message touches two cache lines");

struct message_piece {
	uint32_t chunk;
	uint32_t offset;
	uint32_t length;
};

/* An unexpected message, or the beginning of a large one. */
struct message {
	struct match_message match; /* must be first */
	struct msg_peer *from;
	struct match_link claimed; /* in messenger.claimed, once claimed */
	void *claimer;
	uint64_t total;
	uint64_t data;
	uint64_t sender_id;
	uint64_t early;
	uint64_t arrived;    /* early bytes that have arrived */
	uint64_t copied;     /* bytes moved out of chunks, to `copy` or `bytes` */
	unsigned char *copy; /* private memory, or NULL */
	uint32_t kind;       /* enum wire_kind */
	uint32_t wire_flags;
	uint32_t offered; /* as in struct receive */
	uint64_t key;     /* of an OFFER */
	uint64_t address;
	bool lost; /* claimed, but the sender failed before the message was complete */
	uint32_t pieces;
	struct message_piece
		piece[WIRE_EARLY_PIECES]; /* the bytes after `copied`, which are still in chunks */
	/* list of the sender's messages with pieces */
	struct message *next_holding;
	struct message **holding_link; /* the pointer to this message */
	unsigned char bytes[WIRE_INLINE_BYTES];
};

/* All messages that wait for receives. */
struct kept {
	uint32_t messages;
	uint32_t messages_max; /* see messenger_keep_most() */
	uint64_t bytes;        /* of these messages, in private memory */
	uint64_t bytes_max;
	struct match_link pausing;        /* struct pausing: peers that were told to pause */
	bool told;                        /* the user was told that a peer is paused */
	void (*notice)(const char *text); /* tells the user; NULL: nobody is told */
};

/* State of closing: see messenger_may_close(). Times are those of monotonic_now(). */
struct closing {
	bool begun;
	bool leaves;    /* all was read or never will be; the LEAVE messages are on their way */
	uint64_t until; /* the end of the present wait */
	uint64_t next_check;
};

struct messenger {
	struct transport *transport;
	struct thresholds thresholds; /* the defaults until they are set */
	struct match_queue tagged;
	struct match_queue untagged;
	struct completion_queue *send_completions;
	struct completion_queue *receive_completions;
	uint64_t counted; /* operations that counters counted, which a reader of queues does not see */
	struct completion_counter *send_counter;
	struct completion_counter *receive_counter;
	size_t multi_receive_minimum;
	uint32_t vector;                    /* number of the address vector that names senders */
	uint32_t waiting_controls;          /* waiting control slots of all peers */
	uint32_t chunk_misses;              /* calls that found no chunk, modulo 2^32 */
	uint32_t copying;                   /* receives in single->pulling */
	bool readings_wait;                 /* the core provider had no room for reads */
	struct single_copies *single;       /* NULL: all messages are sent in pieces */
	uint32_t remote_pending;            /* entries of the next two lists */
	struct match_link remote_answering; /* struct remote_peer: owes answers */
	struct match_link remote_pumping;   /* struct remote_operation: not sent completely */
	struct match_link remote_awaiting;  /* struct remote_operation: sent completely, waits for answers */
	struct match_link remote_by_core;   /* struct remote_operation: the core provider moves its bytes */
	struct match_link remote_grants;    /* struct remote_grant: the same for peers' operations */
	uint32_t by_core;                   /* entries of these two lists */
	struct match_link pumping;          /* struct send: cleared, and copied into chunks as room allows */
	struct match_link awaiting;         /* struct send: waits for CLEAR or ACKNOWLEDGE */
	struct match_link incoming;         /* struct receive: large messages */
	struct match_link readings;         /* struct reading: reads by the core provider */
	struct match_link claimed;          /* struct message */
	struct send_queues send_queues;     /* messages for which peers have no room */
	struct operation_table send_ids;
	struct operation_table receive_ids;
	struct operation_table remote_ids; /* of remote_by_core */
	struct operation_table grant_ids;  /* of remote_grants */
	struct pool send_pool;
	struct pool receive_pool;
	struct pool message_pool;
	struct pool remote_pool;
	const void *owner;                              /* the endpoint, as in struct registration */
	const struct registration_table *registrations; /* memory that peers may access; NULL: none */
	bool reaches;                                   /* accesses exposed memory in peers' heaps directly */
	bool exposes;               /* exposes registered memory in its own heap to peers */
	struct exposures exposures; /* published to peers */
	/* counters of completed reads and fetches, of writes and atomics, and of peers' operations */
	struct completion_counter *read_counter;
	struct completion_counter *write_counter;
	struct completion_counter *remote_read_counter;
	struct completion_counter *remote_write_counter;
	struct kept kept;
	struct closing closing;
};

struct send_request {
	const struct iovec *pieces;
	size_t count;
	size_t length;
	struct msg_peer *to;
	uint64_t tag;
	uint64_t data;
	void *context;
	uint64_t flags; /* FI_COMPLETION, FI_INJECT, FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA, FI_TAGGED or
			   FI_MSG */
};

struct receive_request {
	const struct iovec *pieces;
	size_t count;
	uint32_t source; /* the peer's number, or MATCH_ANY_SOURCE */
	uint64_t tag;
	uint64_t ignore;
	void *context;
	uint64_t flags; /* FI_COMPLETION, FI_MULTI_RECV, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_TAGGED or FI_MSG */
};

/*
 * What all peers together may leave waiting for receives: messages, and bytes that were moved out of chunks.
 * Both are far more than a program leaves unreceived. A peer may use as much as is left, so a peer that sends
 * without end takes half, and leaves room for the other peers. Then it is paused: its further messages stay
 * with it. If it sends on, they stay in its ring; over the network, where a frame cannot be accepted in part,
 * the peer loses its connection.
 */
#define KEPT_MESSAGES_MAX (1U << 20)
#define KEPT_BYTES_FOR_EACH UINT64_C(1024)
/* What can be set instead. */
#define KEPT_MESSAGES_LEAST 1024U
#define KEPT_MESSAGES_MOST (1U << 30)

/*
 * Messages of up to this length use one chunk. Longer messages use several, so that the receiver copies one
 * piece out while the sender copies the next in. Measured: docs/decisions/0001.
 */
#define EAGER_BYTES 4096U
/*
 * The most bytes that may be injected: all of them are in a chunk or the ring when the call returns. Without
 * a free chunk the call returns -EAGAIN, as short messages do without room in the ring.
 */
#define MESSENGER_INJECT_BYTES ((size_t)EAGER_BYTES)

/* `endpoint` is this endpoint's number in the process; `timeout` is that of transport_open(). */
int messenger_open(struct messenger **messenger, struct region *region, uint32_t endpoint, uint64_t timeout,
		   struct region_error *error);
/* Joins a further region: see transport_join(). */
int messenger_join(struct messenger *messenger, struct region *region, uint32_t endpoint,
		   struct region_error *error);
/* Sets how many messages may wait for receives, instead of KEPT_MESSAGES_MAX, and their bytes with it. */
void messenger_keep_most(struct messenger *messenger, uint32_t messages);
/*
 * Whether a message waits here for a living peer in another process. The message is lost if the messenger is
 * closed now.
 */
bool messenger_owes(const struct messenger *messenger);
/*
 * One step of closing. Makes progress, and returns whether peers have read all messages, or had their time
 * for it. For callers that release a lock between steps.
 */
bool messenger_may_close(struct messenger *messenger);
/* Waits for a short, bounded time until messenger_may_close(), then drops posted receives. */
void messenger_close(struct messenger *messenger);

/*
 * Returns at once, whatever the receiver does: 0, -EAGAIN if there is no room now (make progress and try
 * again; send_queue.h says when), or another negative errno.
 */
ssize_t messenger_send(struct messenger *messenger, const struct send_request *request);
ssize_t messenger_receive(struct messenger *messenger, const struct receive_request *request);
/* Returns false if nothing can match any more: `from` failed, and no such message is waiting. */
bool messenger_may_receive(struct messenger *messenger, const struct msg_peer *from,
			   const struct receive_request *request);
/* Cancels the posted receive with this context. Returns 0 or -ENOENT. */
int messenger_cancel(struct messenger *messenger, void *context);

/* Returns the number of slots taken and of pieces copied into chunks. */
uint32_t messenger_progress(struct messenger *messenger);

/* ---- inside this folder ---- */

/* Whether an operation waits for a peer. Untagged receives do not count by themselves: see cq.c. */
static inline bool messenger_awaits(const struct messenger *messenger)
{
	return messenger->tagged.posted != 0 || !match_is_empty(&messenger->awaiting) ||
	       !match_is_empty(&messenger->incoming) || !match_is_empty(&messenger->pumping) ||
	       !match_is_empty(&messenger->remote_awaiting) ||
	       (messenger->remote_pending | messenger->by_core | messenger->send_queues.count) != 0;
}

static inline bool is_failed(const struct msg_peer *msg_peer)
{
	return msg_peer->peer.state == PEER_FAILED;
}

static inline bool is_present(const struct msg_peer *msg_peer)
{
	return __builtin_expect(msg_peer->peer.state == PEER_PRESENT, 1);
}

/* `counter` may be NULL. */
static inline void messenger_count(struct messenger *messenger, struct completion_counter *counter, int error)
{
	if (counter == NULL)
		return;
	messenger->counted++;
	if (error == 0)
		counter->value++;
	else
		counter->errors++;
}

static inline struct match_queue *messenger_queue(struct messenger *messenger, uint32_t wire_flags)
{
	return wire_flags & WIRE_TAGGED ? &messenger->tagged : &messenger->untagged;
}

static inline uint64_t msg_peer_source(const struct msg_peer *from)
{
	return (uint64_t)from->peer.epoch << 32 | from->peer.source;
}

/* The bytes of a chunk in the sender's section, or NULL if they are outside it. */
static inline const shared_bytes *chunk_view(const struct msg_peer *from, uint32_t chunk, uint32_t offset,
					     uint64_t length)
{
	if (chunk >= REGION_CHUNKS_MAX || length > CHUNK_LARGE)
		return NULL;
	return transport_view(&from->peer, offset, length);
}

/* send.c */
/* Sends to a peer that is present. Returns 0, -EAGAIN if there is no room now, or another negative errno. */
ssize_t send_now(struct messenger *messenger, const struct send_request *request);
/* Copies all pieces to `bytes`, and returns their length. */
size_t send_gather(const struct send_request *request, unsigned char *bytes);
/*
 * Makes room for `slots`, of messages and of one-sided operations, and connects before the first of them.
 * Returns 0, -EAGAIN or another negative errno.
 */
ssize_t send_make_room(struct messenger *messenger, struct msg_peer *to, uint32_t slots);
/*
 * A message that completes after its call, in messenger.awaiting, with an id. It counts as sent, and waits
 * only for its ACKNOWLEDGE; a large message sets `buffer` and `sent` afterwards. Returns NULL without memory.
 */
struct send *send_begin(struct messenger *messenger, const struct send_request *request);
void send_complete(struct messenger *messenger, void *context, uint64_t flags, uint64_t tag, int error,
		   const char *reason);
void send_end(struct messenger *messenger, struct send *send, int error, const char *reason);

/* receive.c */
void receive_complete(struct messenger *messenger, struct receive *receive, struct msg_peer *from,
		      uint64_t total, uint64_t tag, uint64_t data, uint32_t wire_flags);
void receive_fail(struct messenger *messenger, struct receive *receive, int error, const char *reason);
void receive_deliver(struct messenger *messenger, struct receive *receive, struct message *message);
void message_free(struct messenger *messenger, struct message *message);
/* Records another piece that is in a chunk. Returns false if a message already has that chunk. */
bool message_hold(struct message *message, const struct message_piece *piece);
/* Forgets the pieces, after the chunks were returned or when they no longer are the sender's. */
void message_release(struct message *message);
/*
 * Moves the bytes that a message has in chunks to private memory, and returns the chunks. Returns false
 * without room.
 */
bool message_detach(struct messenger *messenger, struct message *message);
/* Whether the message is complete although its sender failed. If so, moves it to private memory. */
bool message_survives(struct messenger *messenger, struct message *message);
struct receive *receive_part(struct messenger *messenger, struct receive *parent, uint64_t length);

/* arrive.c */
int arrive(void *messenger, struct peer *peer, uint64_t control);

/* pause.c */
/*
 * There is no room for another message of the peer: pauses the peer. Returns whether the message is taken
 * nevertheless, because the peer sent it before it knew.
 */
bool pause_admits_message(struct messenger *messenger, struct msg_peer *from);
/* The same for bytes of a message that cannot stay in a chunk. */
bool pause_admits_bytes(struct messenger *messenger, struct msg_peer *from, uint64_t bytes);
/* A message was received or dropped while peers are paused: lets one of them go on, if there is room. */
void pause_end_some(struct messenger *messenger);
/* A PAUSE arrived. Returns 0 or a negative errno. */
int pause_arrive(struct messenger *messenger, struct msg_peer *from, uint64_t word);
/* The peer failed, or begins a new stream: neither end is paused any more. */
void pause_forget(struct msg_peer *peer);

/* fetch.c */
/*
 * Offers the buffer of a message. There must be room for a slot. Returns false if the message cannot be sent
 * so.
 */
bool fetch_offer(const struct send_request *request, struct send *send, uint32_t wire_flags);
/*
 * Lets `receive` read the memory that `from` offered. Returns false without memory. The receive may have
 * ended afterwards.
 */
bool fetch_begin(struct messenger *messenger, struct receive *receive, struct msg_peer *from,
		 const struct wire_offer *offer, uint64_t tag, uint32_t wire_flags);
/* The sender failed. Returns true if reads are in progress: then the receive ends with the last of them. */
bool fetch_abandon(struct messenger *messenger, struct receive *receive);

/* rendezvous.c */
ssize_t rendezvous_send(struct messenger *messenger, const struct send_request *request, uint32_t wire_flags);
bool rendezvous_begin(struct messenger *messenger, struct receive *receive);
bool rendezvous_piece(struct receive *receive, const shared_bytes *from, uint32_t length,
		      enum copy_method method);
void rendezvous_end_if_complete(struct messenger *messenger, struct receive *receive);
int rendezvous_clear(struct messenger *messenger, struct msg_peer *from, uint64_t id,
		     const struct wire_clear *clear);
int rendezvous_acknowledged(struct messenger *messenger, struct msg_peer *from, uint64_t id);
int rendezvous_resumed(struct messenger *messenger, struct msg_peer *from, uint64_t id,
		       const struct wire_resume *resume);
bool rendezvous_resume(struct messenger *messenger, struct receive *receive, uint64_t from);
bool rendezvous_acknowledge(struct messenger *messenger, struct msg_peer *to, uint64_t sender_id);
/* Sends a control slot now, or when there is room. Returns false without memory. */
bool rendezvous_send_control(struct messenger *messenger, struct msg_peer *to,
			     const struct control_slot *slot);
/* Whether no control slot waits. If none waits, a pushed slot overtakes none. */
static inline bool rendezvous_sent_controls(const struct msg_peer *to)
{
	return to->waiting_head == to->waiting_tail;
}
uint32_t rendezvous_work(struct messenger *messenger);
/* This endpoint is out of chunks: asks peers for chunks of messages that nobody receives. */
void rendezvous_ask_chunks(struct messenger *messenger);
/* A call found no chunk, and will be repeated: every few calls, asks for chunks. */
void rendezvous_miss_chunk(struct messenger *messenger);
/* Pushes a SWITCH. `context` is the messenger. */
void rendezvous_switch(void *context, struct peer *peer);
/* Pushes a RESIZE. `context` is the messenger. */
void rendezvous_resize(void *context, struct peer *peer, uint32_t offset, uint32_t slots);

#endif
