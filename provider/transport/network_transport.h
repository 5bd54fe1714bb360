/* SPDX-License-Identifier: BSD-3-Clause */
/* network_transport.h - what the files of the transport over the network need of each other. */
#ifndef VICINAL_TRANSPORT_NETWORK_TRANSPORT_H
#define VICINAL_TRANSPORT_NETWORK_TRANSPORT_H

#include "transport/network.h"
#include "transport/network_frame.h"

/* Slots of the ring of what goes to one peer: 4 KiB each peer that we send to. */
#define NETWORK_RING_SLOTS 64U
/* Chunks of all peers together, small ones to large ones. */
#define NETWORK_CHUNKS \
	{ \
		128U, 32U, 16U \
	}
/*
 * Frames that the core may be sending. A peer that does not take its frames may have as many as are left
 * to the others, and each peer has one of its own besides. It is the same with reads.
 */
#define NETWORK_FRAMES 64U
/*
 * Frames to one peer that the core may have copied and not sent yet. It keeps as many as it is given, 4 KiB
 * each if it is tcp, and what becomes of them is known only from a later frame that it does not copy.
 */
#define NETWORK_COPIED_MAX 128U
/*
 * Of what waits, so many frames go in one look, for all peers: each takes a system call of several
 * microseconds, and what comes in meanwhile waits.
 */
#define NETWORK_FRAMES_PER_POLL 4U
/* Buffers that the core receives into. */
#define NETWORK_BUFFERS 16U
/* Reads that the core may be making. */
#define NETWORK_FETCHES 64U
/* Frames of one peer that came before one that they follow: so many wait. */
#define NETWORK_HELD_MAX 15U
/* And so many bytes of all peers'. The peer that has most of them makes room. */
#define NETWORK_HELD_BYTES_MAX ((size_t)4 << 20)

/* First contacts that are kept until the peer says in a frame who it is. */
#define NETWORK_FIRST_CONTACTS 32U
/* Descriptors for questions to hosts: if there are more silent peers, they take turns. */
#define NETWORK_QUESTIONS_MAX 64U
/* Strangers that are sent to although they did not prove their address. */
#define NETWORK_UNPROVED_MAX 16U

/* How far a DETACH has come: the second has heard the other's. */
enum detach_progress { DETACH_NONE, DETACH_FIRST, DETACH_SECOND };

enum core_use { CORE_SENDS, CORE_RECEIVES, CORE_FETCHES };

/* What the core is given to remember an operation by. */
struct core_operation {
	struct fi_context2 context; /* the core's own while it is under way */
	enum core_use use;
};

/* A frame that the core sends, its chunk apart. */
struct frame_out {
	struct core_operation operation; /* must be first */
	struct frame_out *next;          /* while it is free */
	struct network_peer *to;
	uint32_t chunk;
	uint32_t number; /* of all frames to this peer */
	unsigned char head[FRAME_HEAD_MAX];
};

/* A frame that the core receives. */
struct frame_in {
	struct core_operation operation; /* must be first */
	struct frame_in *next;           /* to be posted again */
	_Alignas(16) unsigned char bytes[FRAME_MAX];
};

/* A frame that is dealt with: it lies in the buffer that it came in, or in a copy. */
struct frame_view {
	const unsigned char *bytes;
	uint32_t length;
};

/* A copy of a frame that came too soon. The buffers that the core receives into are for all peers. */
struct held_frame {
	struct held_frame *next;
	size_t mapped; /* bytes, of the whole copy */
	uint32_t length;
	uint32_t sequence;
	_Alignas(16) unsigned char bytes[];
};

/* A read that the core makes. */
struct fetch {
	struct core_operation operation; /* must be first */
	struct fetch *next;              /* while it is free */
	struct network_peer *from;
	uint16_t stream; /* in which it was asked for */
	void *cookie;
	size_t length;
};

/* A first contact came from this address. */
struct first_contact {
	uint64_t nonce;
	struct sockaddr_storage address;
	uint64_t challenge; /* that was sent there */
	bool answered;
};

struct network_peer {
	struct credit_line credit; /* the receiver's, which we write for it: must be first, it has a line */
	shared_u64 claim;          /* as a member's slot has it */
	shared_u64 active;         /* 0: every push is shipped */
	struct network *network;
	struct peer *peer;
	struct ring_slot *slots;
	fi_addr_t address; /* the core's */
	uint32_t index;    /* in the directory */
	bool reachable;    /* `address` is valid */
	/* of a peer that nobody told us of: see network_strangers.c */
	bool proved_address; /* it answered our challenge from the address that it named */
	bool unproved;       /* it did not, and is sent to all the same */
	uint64_t challenge;  /* that was sent there; 0: none was */
	uint64_t met;        /* since when we know it */
	uint64_t wanted;     /* since when something is to go to it, and may not; 0: nothing is */
	/* of a peer of the region: see network_switch.c */
	uint64_t asking;    /* since when it is pinged without an answer; 0: it is not */
	bool proved;        /* it answered */
	bool switched;      /* it took our last frame */
	uint16_t stream;    /* of its frames and ours: see network_failover.c */
	uint32_t ring_left; /* the connection that it left for the network */
	/* detaching from a region, and meeting in one: see detach.h and reattach.h */
	enum detach_progress detach_said;  /* DETACH, by us */
	enum detach_progress detach_heard; /* by it */
	bool tx_paused;          /* what is sent next waits until it is heard that it expects that */
	bool awaits_reattach;    /* we know that we share a region again, and it may not yet */
	bool owes_region;        /* it was not told `answer`, for lack of room */
	bool owes_detach;        /* nor that we detached already */
	uint32_t answer;         /* what it is told of our region */
	uint32_t asked_in;       /* bit i: it was asked whether it is in the region of our attachment i */
	uint64_t failover_since; /* since when */
	uint64_t failover_asked;
	/* sending */
	uint32_t shipped;  /* of the ring's positions */
	uint32_t sequence; /* of the next frame */
	uint32_t given;    /* frames of all kinds that the core took */
	uint32_t gone;     /* so many of them it has sent for certain */
	uint32_t in_flight;
	uint32_t fetching;
	struct frame_out *own;  /* a frame that no other peer can take; NULL before the first send */
	struct fetch own_fetch; /* the same of reads */
	bool own_used;
	bool own_fetch_used;
	struct chunk_returns returns; /* on the receiver's behalf */
	struct network_peer *next_backlog;
	bool backlogged; /* in network.backlog: the core had no room, or more is to go with it */
	bool leave_sent; /* ours */
	bool owes_left;  /* the answer to its leave, for which there was no room */
	bool left;       /* it has taken all, or has left itself */
	/* receiving */
	uint32_t expected;       /* the next frame */
	struct held_frame *held; /* frames that came too soon */
	size_t held_bytes;
	uint32_t gap;        /* the frame that they wait for */
	uint32_t gap_checks; /* so many checks found the same */
	/* life */
	uint64_t heard;       /* when one had come by: the check's time */
	uint64_t asked;       /* when it was last asked whether it is there */
	uint64_t patience;    /* until it is asked again */
	uint64_t refused;     /* since when its port is refused; 0: it is not */
	uint64_t unreachable; /* since when the kernel says so; 0: it does not */
	uint64_t stuck;       /* since when the core has no room for what goes to it; 0: it has */
	int keepalive_error;  /* what its kernel answered to the last question; 0: nothing */
	bool spoke;           /* a frame came since the last check */
	/* its host */
	int host;                /* a connection that it may refuse; 0: none */
	bool host_answers;       /* it has answered one */
	uint32_t host_questions; /* that it did not answer, since it last did or a frame came */
	uint64_t host_asked;     /* the last */
	uint64_t host_silent;    /* the first of them */
	uint16_t host_port;      /* to which it was, or that answers */
	bool greeted;            /* the core sent our HELLO */
	bool heard_once;         /* a frame came, at any time */
};

struct network {
	struct transport *transport;
	struct core *core;
	struct directory *directory;
	uint64_t nonce;
	bool lost;            /* the core is not ours any more */
	bool listening;       /* buffers are posted */
	bool busy;            /* counted in transport->attention */
	uint32_t patience;    /* looks that may find nothing until it is not busy any more */
	uint32_t grants;      /* memory that peers may be reading now */
	uint32_t waits;       /* patience that was lost since the last frame, while there were grants */
	uint64_t polled;      /* when, by monotonic_now() */
	uint64_t interval;    /* nanoseconds from one look to the next while it is not busy */
	uint64_t asked;       /* when a seldom poll last asked whether there was a first contact */
	int keepalive;        /* our UDP socket, or -1 */
	bool keepalive_bound; /* to the address of our core */
	uint32_t questions;   /* TCP connections to hosts that are open now */
	struct first_contact
		contacts[NETWORK_FIRST_CONTACTS]; /* the last ones of peers that we did not know then */
	uint32_t next_contact;
	uint32_t unproved; /* strangers that we send to, though they did not prove their address */
	uint64_t strays;   /* frames that were dropped: not for us, or from nobody we know */
	/* saying */
	void (*notice)(const char *text); /* to the user; NULL: nobody listens */
	bool said;                        /* that a peer has another version */
	bool said_of_strangers;           /* that there are too many */
	/* sending */
	struct chunk_pool chunks;
	unsigned char *chunk_memory;
	struct frame_out *frames;
	struct frame_out *free_frames;
	uint32_t free_count;
	struct network_peer *backlog; /* first to last */
	struct network_peer *backlog_last;
	uint32_t backlog_count;
	struct fetch fetches[NETWORK_FETCHES];
	struct fetch *free_fetches;
	uint32_t fetches_used; /* those behind were never used */
	uint32_t fetches_taken;
	/* receiving */
	struct frame_in *buffers;
	struct frame_in *unposted;
	size_t held_bytes;          /* of the frames that came too soon, of all peers */
	struct credit_line *unread; /* what is given back to the senders of frames: nobody needs it */
	struct ring_slot *slots;    /* of the frame that is dealt with */
};

/* network_peers.c */
/* How we name a peer's end when the core says `error`, a positive errno. */
void network_fail(struct network_peer *to, int error);
/* The same of a frame: it harms nobody who is reached through the region. */
void network_fail_sending(struct network_peer *to, int error);
struct network_peer *network_new_peer(struct network *network, struct peer *peer, uint32_t index);
void network_free_peer(struct network_peer *peer);
/* In use, for either direction: of a peer of the region it may be not. */
static inline bool network_is_used(const struct network_peer *peer)
{
	return peer->peer->network != NULL || peer->peer->framed;
}
/* A frame came: look again soon. */
void network_stay_busy(struct network *network);
/* Make sure that the core knows where the peer is. */
bool network_make_reachable(struct network_peer *to);

/* network_send.c */
/* A frame without slots. `numbered` ones go after what was pushed before. Returns whether it went. */
bool network_send_notice(struct network_peer *to, enum frame_kind kind);
bool network_send_failover(struct network_peer *to, bool answers);
/* What network_detach.c says. */
bool network_send_detach(struct network_peer *to, bool heard);
bool network_send_region(struct network_peer *to, const struct member *self, uint32_t step);
void network_sent(struct frame_out *frame, int error);
/* Send what waits, as far as there is room. Returns how many frames went. */
uint32_t network_ship_backlog(struct network *network);
void network_leave_backlog(struct network_peer *to);

/* network_receive.c */
/* It broke the rules of the network: there is no other way to it. */
void network_violate(struct network_peer *from, int failure, const char *reason);
/* What a hello says. False if it cannot be. */
bool network_read_hello(const struct network *network, const struct frame_hello *hello,
			struct core_name *name);
void network_write_hello(const struct network *network, struct frame_hello *hello);

/* network_detach.c */
/* Say again what there was no room for: `answer`. */
void network_answer(struct network_peer *to);
/* The same of DETACH, said by one that is in no region with `to`. */
void network_detach_again(struct network_peer *to);
/* What tells one occupation of a region's slot from those of other regions, and other times. */
static inline uint32_t network_tenancy(const struct region *region, uint32_t epoch)
{
	return (uint32_t)region->id[0] ^ epoch;
}
void network_take_detach(struct network_peer *from, const struct frame_header *header);
void network_take_region(struct network_peer *from, const struct frame_header *header,
			 const struct frame_view *frame);

/* network_hold.c */
/*
 * Keep a copy of a frame that came too soon. False if it cannot be one of those that are under way, or
 * there is no memory.
 */
bool network_hold(struct network_peer *from, const struct frame_view *frame, uint32_t sequence);
/* The copy of the frame that is expected; NULL if it has not come. It is the caller's. */
struct held_frame *network_take_held(struct network_peer *from);
void network_free_held(struct held_frame *frame);
/* Forget all that came too soon from this peer. */
void network_drop_held(struct network_peer *from);
/* Now and then: fails a peer whose missing frame does not come. */
void network_check_gap(struct network_peer *from, uint64_t timeout);

/* network_failover.c */
/* Where we are in the region with this id; NULL if we are not, or not any more. */
struct attachment *network_attachment_in(struct transport *transport, const uint64_t id[2]);
/* Who sent this FAILOVER; NULL if it is nobody of our region. */
struct network_peer *network_peer_failing_over(struct network *network, const struct frame_header *header,
					       const struct frame_view *frame);
void network_take_failover(struct network_peer *from, const struct frame_header *header);

/* network_switch.c */
void network_take_switched(struct network_peer *from, const struct frame_header *header);

/* network_keepalive.c */
void network_keepalive_open(struct network *network);
void network_keepalive_close(struct network *network);
/* Have the peer look at its core, and show it that we are at our address. */
void network_first_contact(struct network_peer *to);
/* Did anybody have us do so, since this was asked last? */
bool network_was_contacted(struct network *network);
/* Take what came to the keepalive socket: first contacts, and what kernels answered to our questions. */
void network_keepalive_take(struct network *network);
/* Now and then: is it still there? Fails it if not. */
void network_probe(struct network_peer *peer, const struct core_name *name, uint64_t now, uint64_t timeout);
void network_probe_end(struct network_peer *peer);
/* The peer's address as sockets take it. Returns its length; 0 if it is none of the internet's. */
socklen_t network_address_of(const struct core_name *name, struct sockaddr_storage *address);

/* network_strangers.c */
/*
 * May anything go to the address of this peer of our own accord? So it is if we were told of it by the
 * application or a region, or if it answered a challenge from there.
 */
bool network_is_confirmed(const struct network_peer *peer);
/* The same for what the application asked for, which does not wait for ever: see network_strangers.c */
bool network_may_reach(struct network_peer *peer);
/* Is this the address that it named? */
bool network_is_at(const struct network_peer *peer, const struct sockaddr_storage *address);
/* The peer beyond the region that has this nonce; NULL if there is none. */
struct network_peer *network_beyond(const struct network *network, uint64_t nonce);
/*
 * Somebody who says to have this nonce spoke, by what the datagram says from this address. Returns the
 * challenge that is to go there; 0: none.
 */
uint64_t network_take_first_contact(struct network *network, uint64_t nonce, uint64_t answer,
				    const struct sockaddr_storage *address);
/* Did it do so before we knew it? */
void network_find_first_contact(struct network_peer *peer);
/* Now and then: fails a stranger to which something was to go for too long. */
void network_check_stranger(struct network_peer *peer, uint64_t now, uint64_t timeout);

/* network_host.c */
/* Now and then: did its host answer before, and does not any more for a whole timeout? */
bool network_host_is_gone(struct network_peer *peer, const struct core_name *name, uint64_t now,
			  uint64_t timeout);
void network_host_end(struct network_peer *peer);

/* network_fetch.c */
void network_fetched(struct network *network, struct fetch *fetch, int error);

/* network_receive.c */
/* Look what the core has for us. Returns how many frames came, or went of those that had waited. */
uint32_t network_poll(struct network *network);
bool network_post(struct network *network, struct frame_in *buffer);

#endif
