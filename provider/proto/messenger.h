/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messenger.h - messages between endpoints: what is posted, what waits, what is under
 * way. One messenger an endpoint. Not thread-safe: the layer above locks where it must.
 *
 * send.c       choosing a protocol, and sending by it
 * send_queue.h what a peer has no room for
 * arrive.c     what comes out of rings
 * receive.c    posting, peeking, cancelling, delivering
 * fetch.c      large messages over the network
 * reading.h    what a peer exposed, read by the core
 * rendezvous.c large messages, and the control slots that wait for room
 * remote.h     reads, writes and atomics
 * direct.h     the same in memory that lies in the region
 * single_copy.c, single_copy_offer.c large messages copied once
 * messenger.c  opening, closing, progress, peers that failed
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

/* A peer, as messages see it. */
struct msg_peer {
	struct peer peer; /* must be first: the transport allocates and zeroes it */
	uint32_t streak;  /* large messages to it since one came from it */
	uint32_t kept;    /* messages of its that wait for a receive */
	/* the large message whose early pieces come next in its ring: one of the two */
	struct receive *early_receive;
	struct message *early_message;
	/* a ring buffer of control slots that wait; capacity is a power of two */
	struct control_slot *waiting;
	uint32_t waiting_capacity;
	uint32_t waiting_head;
	uint32_t waiting_tail;
	struct message *holding;    /* messages of its that hold chunks */
	uint64_t held[CHUNK_WORDS]; /* which: none twice, so that no more than its section is copied out of */
	uint32_t reads;             /* of memory that it exposed, under way */
	uint64_t copied;            /* bytes of theirs that were moved to private memory */
	struct copy_methods copy_methods;
	struct copy_methods single_copy_methods; /* of our parts of copies into its heap */
	struct remote_peer remote;
	struct send_queue queue;
	/* its process, for single copies: see single_copy_offer.c */
	struct process_peer process;
	uint32_t process_epoch; /* whose the rest is */
	uint32_t process_state;
	uint32_t process_tries;
	bool takes_single; /* it took the last single copy that it was offered */
};

/* A message under way to a peer, beyond what one call could do. */
struct send {
	struct match_link link; /* in messenger.pumping or messenger.awaiting */
	struct msg_peer *to;
	struct buffer buffer;
	void *context;
	uint64_t id;
	uint64_t receiver_id;
	uint64_t sent;     /* bytes copied into chunks */
	uint64_t accepted; /* bytes that the receiver wants; the total until it says so */
	uint32_t stalls;   /* polls in a row that found no room for it */
	bool waits_for_clear;
	bool acknowledged;
	uint64_t tag;
	uint64_t flags;             /* as in send_request */
	struct single_copy *copy;   /* offered, or under way; else NULL */
	struct network_grant grant; /* to a receiver that reads it over the network */
};

/*
 * A receive: posted, or taking pieces of a large message. One that a short message ends touches the first
 * two lines.
 */
struct receive {
	struct match_receive match; /* must be first */
	void *context;
	uint64_t flags; /* as in receive_request */
	/* a buffer for several messages */
	struct receive *parent; /* this one takes a message into a part of its parent */
	uint32_t parts;         /* of ours that are under way */
	bool withdrawn;         /* no longer posted: the last part to end releases the buffer */
	bool sink;              /* takes a message that is discarded */
	struct buffer buffer;
	/* a large message */
	struct match_link incoming; /* in messenger.incoming */
	struct msg_peer *from;
	uint64_t id;
	uint64_t sender_id;
	uint64_t tag;
	uint64_t data;
	uint64_t total;
	uint64_t early;    /* bytes that come without clearing */
	uint64_t expected; /* bytes that come in all */
	uint64_t arrived;
	uint32_t wire_flags;
	struct single_copy *copy; /* of a large message: under way, else NULL */
	uint32_t offered;         /* the sender's transfer, 0 if it offers none */
	/* one that is read over the network: see fetch.c */
	struct reading reading;
	bool fetching;
};

_Static_assert(offsetof(struct receive, buffer.pieces[1]) == 128, "a short message: two lines");

struct message_piece {
	uint32_t chunk;
	uint32_t offset;
	uint32_t length;
};

/* A message that no receive was posted for, or the beginning of a large one. */
struct message {
	struct match_message match; /* must be first */
	struct msg_peer *from;
	struct match_link claimed; /* in messenger.claimed, once claimed */
	void *claimer;
	uint64_t total;
	uint64_t data;
	uint64_t sender_id;
	uint64_t early;
	uint64_t arrived;    /* of the early bytes */
	uint64_t copied;     /* bytes moved out of chunks, in `copy` or `bytes` */
	unsigned char *copy; /* private memory, or NULL */
	uint32_t kind;       /* enum wire_kind */
	uint32_t wire_flags;
	uint32_t offered; /* as in struct receive */
	uint64_t key;     /* of an OFFER */
	uint64_t address;
	bool lost; /* claimed, and its sender went before we had all of it */
	uint32_t pieces;
	struct message_piece piece[WIRE_EARLY_PIECES]; /* what is still in chunks, after `copied` */
	/* while it has pieces, in the sender's list of those */
	struct message *next_holding;
	struct message **holding_link; /* what points to it */
	unsigned char bytes[WIRE_INLINE_BYTES];
};

/* Messages that wait for receives, of all peers. */
struct kept {
	uint32_t messages;
	uint32_t messages_max;            /* KEPT_MESSAGES_MAX; tests set less, here and below */
	uint64_t bytes;                   /* of them, in private memory */
	uint64_t bytes_max;               /* KEPT_BYTES_MAX */
	bool told;                        /* people were, that some are held back */
	void (*notice)(const char *text); /* for people; NULL: they are not told */
};

/* Of a messenger that is to be closed: see messenger_may_close(). Times are monotonic_now()'s. */
struct closing {
	bool begun;
	bool leaves;    /* all was read, or will not be: the last words are on their way */
	uint64_t until; /* so long this is waited for */
	uint64_t next_check;
};

struct messenger {
	struct transport *transport;
	struct thresholds thresholds; /* the usual ones until they are set */
	struct match_queue tagged;
	struct match_queue untagged;
	struct completion_queue *send_completions;
	struct completion_queue *receive_completions;
	uint64_t counted; /* operations that any counter counted: who reads a queue only sees those that are
			     in it */
	struct completion_counter *send_counter;
	struct completion_counter *receive_counter;
	size_t multi_receive_minimum;
	uint32_t vector;                    /* the address vector that names senders, by its number */
	uint32_t waiting_controls;          /* control slots that wait for room, over all peers */
	uint32_t chunk_misses;              /* calls that found no chunk, modulo 2^32 */
	uint32_t copying;                   /* receives in single->pulling */
	bool readings_wait;                 /* the core had no room for reads */
	struct single_copies *single;       /* NULL: messages go in pieces always */
	uint32_t remote_pending;            /* entries of the next two lists */
	struct match_link remote_answering; /* struct remote_peer: has answers to give */
	struct match_link remote_pumping;   /* struct remote_operation: not all of it was sent */
	struct match_link remote_awaiting;  /* struct remote_operation: all was sent, not all answered */
	struct match_link remote_by_core;   /* struct remote_operation: its bytes are the core's to move */
	struct match_link remote_grants;    /* struct remote_grant: the same, of peers' operations */
	uint32_t by_core;                   /* entries of these two lists */
	struct match_link pumping;          /* struct send: cleared, and copied into chunks as room allows */
	struct match_link awaiting;         /* struct send: waits for CLEAR or ACKNOWLEDGE */
	struct match_link incoming;         /* struct receive: large messages */
	struct match_link readings;         /* struct reading: what the core reads for us */
	struct match_link claimed;          /* struct message */
	struct send_queues send_queues;     /* what peers have no room for */
	struct operation_table send_ids;
	struct operation_table receive_ids;
	struct operation_table remote_ids; /* of remote_by_core */
	struct operation_table grant_ids;  /* of remote_grants */
	struct pool send_pool;
	struct pool receive_pool;
	struct pool message_pool;
	struct pool remote_pool;
	const void *owner;                              /* the endpoint; as registrations name it */
	const struct registration_table *registrations; /* what peers may reach; NULL: nothing */
	bool reaches;                                   /* into peers' heaps, where they let us */
	bool exposes;               /* what is registered in a heap of ours, so that peers do so */
	struct exposures exposures; /* that peers were told of */
	/* completed reads and fetches, writes and atomics; and those of peers */
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
 * What all peers together may have waiting here for receives: so many messages, and so many bytes that were
 * moved out of their chunks. Far more than a program leaves unreceived. A peer may have as much as is left:
 * one that sends without end takes half, and leaves room for all others. What it sends beyond that stays
 * in its ring, and then with the peer. Over the network, where a frame cannot be half taken, it loses its
 * connection.
 */
#define KEPT_MESSAGES_MAX (1U << 20)
#define KEPT_BYTES_MAX (UINT64_C(1) << 30)

/*
 * Up to so many bytes a message goes in one chunk; above, in several, so that the
 * receiver copies the first out while we copy the next in. Measured: docs/decisions/0001.
 */
#define EAGER_BYTES 4096U
/*
 * So many may be injected: all that is its receiver's with the call. Where there is no chunk for
 * them they are tried again, as short ones are where the ring has no room.
 */
#define MESSENGER_INJECT_BYTES ((size_t)EAGER_BYTES)

/* `endpoint` counts this process's endpoints; `timeout` is transport_open()'s. */
int messenger_open(struct messenger **messenger, struct region *region, uint32_t endpoint, uint64_t timeout,
		   struct region_error *error);
/* Join one more region: see transport_join(). */
int messenger_join(struct messenger *messenger, struct region *region, uint32_t endpoint,
		   struct region_error *error);
/*
 * Does a message wait here for a peer in another process, which may take it yet? It is lost if the
 * messenger is closed before.
 */
bool messenger_owes(const struct messenger *messenger);
/*
 * One step of closing: makes progress, and returns whether peers have read what was sent, or had their time
 * for it. For callers that release a lock between the steps.
 */
bool messenger_may_close(struct messenger *messenger);
/* Waits a short, bounded time until messenger_may_close(); drops what was posted. */
void messenger_close(struct messenger *messenger);

/*
 * Returns at once, whatever the receiver does: 0, -EAGAIN if there is no room now (progress, then try
 * again; see send_queue.h for when that is), or another errno.
 */
ssize_t messenger_send(struct messenger *messenger, const struct send_request *request);
ssize_t messenger_receive(struct messenger *messenger, const struct receive_request *request);
/* False if what is asked for can come no more: `from` failed, and no such message is there. */
bool messenger_may_receive(struct messenger *messenger, const struct msg_peer *from,
			   const struct receive_request *request);
/* Cancel the posted receive with this context. Returns 0, or -ENOENT. */
int messenger_cancel(struct messenger *messenger, void *context);

/* Returns how many slots were taken, and pieces of large messages copied into chunks. */
uint32_t messenger_progress(struct messenger *messenger);

/* ---- between the files of this folder ---- */

/* Does an operation wait for something from a peer? Untagged receives alone do not count: see cq.c. */
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

/* The bytes of a chunk in the sender's section, or NULL if they cannot be there. */
static inline const shared_bytes *chunk_view(const struct msg_peer *from, uint32_t chunk, uint32_t offset,
					     uint64_t length)
{
	if (chunk >= REGION_CHUNKS_MAX || length > CHUNK_LARGE)
		return NULL;
	return transport_view(&from->peer, offset, length);
}

/* send.c */
/* To one that is present, now. Returns 0, -EAGAIN if there is no room now, or another errno. */
ssize_t send_now(struct messenger *messenger, const struct send_request *request);
/* All pieces in a row. Returns how many bytes that is. */
size_t send_gather(const struct send_request *request, unsigned char *bytes);
void send_complete(struct messenger *messenger, void *context, uint64_t flags, uint64_t tag, int error,
		   const char *reason);
void send_end(struct messenger *messenger, struct send *send, int error, const char *reason);

/* receive.c */
void receive_complete(struct messenger *messenger, struct receive *receive, struct msg_peer *from,
		      uint64_t total, uint64_t tag, uint64_t data, uint32_t wire_flags);
void receive_fail(struct messenger *messenger, struct receive *receive, int error, const char *reason);
void receive_deliver(struct messenger *messenger, struct receive *receive, struct message *message);
void message_free(struct messenger *messenger, struct message *message);
/* Another piece that is in a chunk. False if a message has that chunk already. */
bool message_hold(struct message *message, const struct message_piece *piece);
/* Its chunks are given back, or are not its sender's any more. */
void message_release(struct message *message);
/* Move what a message holds in chunks into private memory, and give the chunks back. */
bool message_detach(struct messenger *messenger, struct message *message);
/* Can all of it still be received, now that its sender is gone? Moves it to private memory if so. */
bool message_survives(struct messenger *messenger, struct message *message);
struct receive *receive_part(struct messenger *messenger, struct receive *parent, uint64_t length);

/* arrive.c */
int arrive(void *messenger, struct peer *peer, uint64_t control);

/* fetch.c */
/* Send it so, with room for a slot. False if that cannot be. */
bool fetch_offer(const struct send_request *request, struct send *send, uint32_t wire_flags);
/* Let `receive` read what `from` offered. False if no memory is left. It may be over afterwards. */
bool fetch_begin(struct messenger *messenger, struct receive *receive, struct msg_peer *from,
		 const struct wire_offer *offer, uint64_t tag, uint32_t wire_flags);
/* Its sender failed. True if reads are under way, and it ends with them. */
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
/* A control slot, now or when there is room. False if no memory is left. */
bool rendezvous_send_control(struct messenger *messenger, struct msg_peer *to,
			     const struct control_slot *slot);
/* Does none wait? Then what is pushed now does not overtake any. */
static inline bool rendezvous_sent_controls(const struct msg_peer *to)
{
	return to->waiting_head == to->waiting_tail;
}
uint32_t rendezvous_work(struct messenger *messenger);
/* We are out of chunks: ask for those that lie with messages which nobody receives. */
void rendezvous_ask_chunks(struct messenger *messenger);
/* A call found no chunk, and will be made again: now and then, ask. */
void rendezvous_miss_chunk(struct messenger *messenger);
/* Push a SWITCH. `context` is the messenger. */
void rendezvous_switch(void *context, struct peer *peer);

#endif
