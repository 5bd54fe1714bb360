/* SPDX-License-Identifier: BSD-3-Clause */
/* network_transport.h - shared declarations of the files of the transport over the network. */
#ifndef VICINAL_TRANSPORT_NETWORK_TRANSPORT_H
#define VICINAL_TRANSPORT_NETWORK_TRANSPORT_H

#include "transport/network.h"
#include "transport/network_frame.h"

/* Slots in the ring to one peer: 4 KiB for each peer to which we send. */
#define NETWORK_RING_SLOTS 64U
/* Chunks for all peers together, from small to large. */
#define NETWORK_CHUNKS \
	{ \
		128U, 32U, 16U \
	}
/*
 * The maximum number of frames that the core is sending. A peer that does not take its frames holds
 * at most as many as it leaves free. Each peer also has one frame of its own. The same holds for
 * reads.
 */
#define NETWORK_FRAMES 64U
/*
 * The maximum number of frames to one peer that the core may have copied but not sent. The core
 * keeps all that it is given (4 KiB each with tcp), and only the completion of a later frame that
 * it does not copy shows that they were sent.
 */
#define NETWORK_COPIED_MAX 128U
/*
 * The maximum number of waiting frames that one poll sends, for all peers: each takes a system call
 * of several microseconds, during which received frames wait.
 */
#define NETWORK_FRAMES_PER_POLL 4U
/* The core's receive buffers. */
#define NETWORK_BUFFERS 16U
/* The maximum number of reads in progress. */
#define NETWORK_FETCHES 64U
/* The maximum number of held frames of one peer, which arrived before an earlier frame. */
#define NETWORK_HELD_MAX 15U
/*
 * The maximum bytes of the held frames of all peers. If they are used up, the peer with the most
 * bytes loses its frames.
 */
#define NETWORK_HELD_BYTES_MAX ((size_t)4 << 20)

/* First contacts that are remembered until the peer's HELLO comes. */
#define NETWORK_FIRST_CONTACTS 32U
/*
 * The maximum number of descriptors for questions to hosts. If there are more silent peers, they
 * take turns.
 */
#define NETWORK_QUESTIONS_MAX 64U
/* The maximum number of strangers to which we send although their address is unproved. */
#define NETWORK_UNPROVED_MAX 16U

/* The progress of a DETACH: the second acknowledges the other end's. */
enum detach_progress { DETACH_NONE, DETACH_FIRST, DETACH_SECOND };

enum core_use { CORE_SENDS, CORE_RECEIVES, CORE_FETCHES };

/* The context of an operation of the core. */
struct core_operation {
	struct fi_context2 context; /* for the core while the operation is in progress */
	enum core_use use;
};

/* A frame that the core sends; its chunk is separate. */
struct frame_out {
	struct core_operation operation; /* must be first */
	struct frame_out *next;          /* while it is free */
	struct network_peer *to;
	uint32_t chunk;
	uint32_t number; /* counts all frames to this peer */
	unsigned char head[FRAME_HEAD_MAX];
};

/* A frame that the core receives. */
struct frame_in {
	struct core_operation operation; /* must be first */
	struct frame_in *next;           /* in the list of buffers to post again */
	_Alignas(16) unsigned char bytes[FRAME_MAX];
};

/* A frame that is being processed, in its receive buffer or in a copy. */
struct frame_view {
	const unsigned char *bytes;
	uint32_t length;
};

/*
 * A copy of a frame that arrived out of order. The core's receive buffers are shared by all peers.
 */
struct held_frame {
	struct held_frame *next;
	size_t mapped; /* length of the mapping */
	uint32_t length;
	uint32_t sequence;
	_Alignas(16) unsigned char bytes[];
};

/* A read by the core. */
struct fetch {
	struct core_operation operation; /* must be first */
	struct fetch *next;              /* while it is free */
	struct network_peer *from;
	uint16_t stream; /* the stream at the time of the request */
	void *cookie;
	size_t length;
};

/* The source address of a first contact. */
struct first_contact {
	uint64_t nonce;
	struct sockaddr_storage address;
	uint64_t challenge; /* the challenge that was sent there */
	bool answered;
};

struct network_peer {
	struct credit_line credit; /* the receiver's, written by us; first: it is one line */
	shared_u64 claim;          /* in the format of a member's claim word */
	shared_u64 active;         /* 0: send every pushed slot */
	struct network *network;
	struct peer *peer;
	struct ring_slot *slots;
	fi_addr_t address; /* in the core's address vector */
	uint32_t index;    /* in the directory */
	bool reachable;    /* `address` is valid */
	/* a stranger: see network_strangers.c */
	bool proved_address; /* the peer answered our challenge from the address that it named */
	bool unproved;       /* the address is unproved, but we send to it */
	uint64_t challenge;  /* the challenge that was sent there; 0: none */
	uint64_t met;        /* when it became known */
	uint64_t wanted;     /* since when a send waits for the proof; 0: none waits */
	/* a peer of the region: see network_switch.c */
	uint64_t asking;    /* since when pings are unanswered; 0: no ping was sent */
	bool proved;        /* the peer answered */
	bool switched;      /* the peer took our last frame */
	uint16_t stream;    /* the current stream of both ends: see network_failover.c */
	uint32_t ring_left; /* the connection of the ring that the peer left for the network */
	/* detaching from a region, and reattaching: see detach.h and reattach.h */
	enum detach_progress detach_said;  /* the DETACH that we sent */
	enum detach_progress detach_heard; /* the DETACH that we received */
	bool tx_paused;                    /* sends wait until the peer is known to expect frames */
	bool awaits_reattach; /* we know that we share a region again, but the peer may not know that yet */
	bool owes_region;     /* `answer` must still be sent, because there was no room */
	bool owes_detach;     /* a DETACH must still be repeated */
	uint32_t answer;      /* the FRAME_REGION to send: its `sequence` */
	uint32_t asked_in;    /* bit i: the peer was asked whether it is in the region of attachment i */
	uint64_t failover_since; /* when the failover began */
	uint64_t failover_asked;
	/* sending */
	uint32_t shipped;  /* position in the ring up to which slots were sent */
	uint32_t sequence; /* of the next frame */
	uint32_t taken;    /* our frames that the peer says it took; from the peer, but at most `sequence` */
	uint32_t given;    /* frames of all kinds that the core took */
	uint32_t gone;     /* frames that the core has certainly sent */
	uint32_t in_flight;
	uint32_t fetching;
	struct frame_out *own;        /* a frame that only this peer may use; NULL before the first send */
	struct fetch own_fetch;       /* the same for reads */
	struct chunk_returns returns; /* returned for the receiver */
	struct network_peer *next_backlog;
	bool own_used;
	bool own_fetch_used;
	bool backlogged; /* in network.backlog: the core had no room, or more slots will be added */
	bool leave_sent; /* our LEAVE was sent */
	bool owes_left;  /* the answer to its LEAVE must still be sent */
	bool left;       /* the peer has taken everything, or has left itself */
	/* receiving */
	uint32_t expected;       /* the number of the next frame */
	uint32_t told_taken;     /* what we told the peer of it */
	struct held_frame *held; /* frames that arrived out of order */
	size_t held_bytes;
	uint32_t gap;        /* the missing frame */
	uint32_t gap_checks; /* checks that found the same frame missing */
	/* liveness */
	uint64_t heard;       /* time of the check before which the last frame came */
	uint64_t asked;       /* time of the last liveness question */
	uint64_t patience;    /* time until the next question */
	uint64_t refused;     /* since when its port is refused; 0: not refused */
	uint64_t unreachable; /* since when the kernel reports it unreachable; 0: reachable */
	int keepalive_error;  /* the kernel's answer to the last question; 0: none */
	bool spoke;           /* a frame came since the last check */
	/* the peer's host */
	int host;                /* a connection attempt, which the host may refuse; 0: none */
	uint32_t host_questions; /* questions without an answer, since the last answer or frame */
	uint64_t host_asked;     /* time of the last question */
	uint64_t host_silent;    /* time of the first of these questions */
	uint16_t host_port;      /* the port of the last question, or the port that answers */
	bool host_answers;       /* the host has answered a connection attempt */
	bool greeted;            /* the core sent our HELLO */
	bool heard_once;         /* a frame has ever come */
};

struct network {
	struct transport *transport;
	struct core *core;
	struct directory *directory;
	uint64_t nonce;
	bool lost;            /* this process no longer owns the core */
	bool listening;       /* buffers are posted */
	bool busy;            /* counted in transport->attention */
	uint32_t patience;    /* polls without a frame until the network is not busy any more */
	uint32_t grants;      /* memory that peers may be reading */
	uint32_t waits;       /* how often `patience` was renewed because of grants, since the last frame */
	uint64_t polled;      /* time of the last poll, from monotonic_now() */
	uint64_t interval;    /* nanoseconds between two polls while not busy */
	uint64_t asked;       /* time of the last check for a first contact by the clock */
	int keepalive;        /* the UDP socket, or -1 */
	bool keepalive_bound; /* bound to the address of our core */
	uint32_t questions;   /* open TCP connections to hosts */
	struct first_contact contacts[NETWORK_FIRST_CONTACTS]; /* the last first contacts of unknown peers */
	uint32_t next_contact;
	uint32_t unproved; /* strangers to which we send although their address is unproved */
	uint64_t strays;   /* dropped frames: for another endpoint, or from an unknown sender */
	/* messages to the user */
	void (*notice)(const char *text); /* NULL: messages are dropped */
	bool said;                        /* the user was told that a peer has another version */
	bool said_of_strangers;           /* the user was told that there are too many strangers */
	/* sending */
	struct chunk_pool chunks;
	unsigned char *chunk_memory;
	struct frame_out *frames;
	struct frame_out *free_frames;
	uint32_t free_count;
	struct network_peer *backlog; /* first entry of the list */
	struct network_peer *backlog_last;
	uint32_t backlog_count;
	struct fetch fetches[NETWORK_FETCHES];
	struct fetch *free_fetches;
	uint32_t fetches_used; /* entries from this one on were never used */
	uint32_t fetches_taken;
	/* receiving */
	struct frame_in *buffers;
	struct frame_in *unposted;
	size_t held_bytes;          /* bytes of all held frames */
	struct credit_line *unread; /* receives the credit for the senders of frames, and is never read */
	struct ring_slot *slots;    /* slots of the frame that is being processed */
};

/* network_peers.c */
/* Fail a peer with a reason for the core's `error`, a positive errno. */
void network_fail(struct network_peer *to, int error);
/*
 * The same for an error of a frame: a peer that is reached only through the region does not fail.
 */
void network_fail_sending(struct network_peer *to, int error);
struct network_peer *network_new_peer(struct network *network, struct peer *peer, uint32_t index);
void network_free_peer(struct network_peer *peer);
/* Is the network in use in either direction? Not always for a peer of the region. */
static inline bool network_is_used(const struct network_peer *peer)
{
	return peer->peer->network != NULL || peer->peer->framed;
}
/* A frame came or went: poll the network often for a while. */
void network_stay_busy(struct network *network);
/* Make sure that the peer's address is in the core's address vector. */
bool network_make_reachable(struct network_peer *to);

/* network_send.c */
/*
 * Send a frame without slots. Numbered frames must follow all slots pushed before. Returns whether
 * it was sent.
 */
bool network_send_notice(struct network_peer *to, enum frame_kind kind);
bool network_send_failover(struct network_peer *to, bool answers);
/* Frames for network_detach.c. */
bool network_send_detach(struct network_peer *to, bool heard);
bool network_send_region(struct network_peer *to, const struct member *self, uint32_t step);
void network_sent(struct frame_out *frame, int error);
/* Send waiting frames, as far as there is room. Returns the number of sent frames. */
uint32_t network_ship_backlog(struct network *network);
void network_leave_backlog(struct network_peer *to);

/* network_receive.c */
/*
 * Fail a peer that violated the protocol of the network. No failover follows, because no other
 * transport is left.
 */
void network_violate(struct network_peer *from, int failure, const char *reason);
/* Tells the peer how many of its frames were taken, if it is half a window more than it knows. */
void network_tell_taken(struct network_peer *from);
/* Read a HELLO. Returns false if it is invalid. */
bool network_read_hello(const struct network *network, const struct frame_hello *hello,
			struct core_name *name);
void network_write_hello(const struct network *network, struct frame_hello *hello);

/* network_detach.c */
/* Send `answer` again after there was no room for it. */
void network_answer(struct network_peer *to);
/* Repeat DETACH to a peer that shares no region with us. */
void network_detach_again(struct network_peer *to);
/* Distinguishes one occupation of a slot from occupations in other regions and at other times. */
static inline uint32_t network_tenancy(const struct region *region, uint32_t epoch)
{
	return (uint32_t)region->id[0] ^ epoch;
}
void network_take_detach(struct network_peer *from, const struct frame_header *header);
void network_take_region(struct network_peer *from, const struct frame_header *header,
			 const struct frame_view *frame);

/* network_hold.c */
/*
 * Keep a copy of a frame that arrived out of order. Returns false if its number is too far ahead or
 * already held, or no memory is left.
 */
bool network_hold(struct network_peer *from, const struct frame_view *frame, uint32_t sequence);
/* Take the held copy of the expected frame; NULL if it has not arrived. The caller must free it. */
struct held_frame *network_take_held(struct network_peer *from);
void network_free_held(struct held_frame *frame);
/* Drop all held frames of this peer. */
void network_drop_held(struct network_peer *from);
/* Call from time to time: fails a peer whose missing frame does not arrive. */
void network_check_gap(struct network_peer *from, uint64_t timeout);

/* network_failover.c */
/* Our attachment to the region with this id; NULL if there is none, or it was left. */
struct attachment *network_attachment_in(struct transport *transport, const uint64_t id[2]);
/* The sender of this FAILOVER; NULL if it is not in a region of ours. */
struct network_peer *network_peer_failing_over(struct network *network, const struct frame_header *header,
					       const struct frame_view *frame);
void network_take_failover(struct network_peer *from, const struct frame_header *header);

/* network_switch.c */
void network_take_switched(struct network_peer *from, const struct frame_header *header);

/* network_keepalive.c */
void network_keepalive_open(struct network *network);
void network_keepalive_close(struct network *network);
/* Make the peer poll its core, and show it that we are at our address. */
void network_first_contact(struct network_peer *to);
/* Did any first contact arrive since the last call? */
bool network_was_contacted(struct network *network);
/* Process the keepalive socket: first contacts, and kernels' answers to our questions. */
void network_keepalive_take(struct network *network);
/* Call from time to time: is the peer still there? Fails it if not. */
void network_probe(struct network_peer *peer, const struct core_name *name, uint64_t now, uint64_t timeout);
void network_probe_end(struct network_peer *peer);
/*
 * The peer's address for the socket API. Returns its length, or 0 if it is not an internet address.
 */
socklen_t network_address_of(const struct core_name *name, struct sockaddr_storage *address);

/* network_strangers.c */
/*
 * May we send to this peer's address unasked? Yes if the application or a region named the address,
 * or if a challenge was answered from there.
 */
bool network_is_confirmed(const struct network_peer *peer);
/*
 * The same for sends that the application requested, which do not wait for ever: see
 * network_strangers.c
 */
bool network_may_reach(struct network_peer *peer);
/* Is this the address that the peer named? */
bool network_is_at(const struct network_peer *peer, const struct sockaddr_storage *address);
/* The network peer with this nonce; NULL if there is none. */
struct network_peer *network_beyond(const struct network *network, uint64_t nonce);
/*
 * Process a first contact: a datagram from `address` that names this nonce. Returns the challenge
 * to send there; 0: none.
 */
uint64_t network_take_first_contact(struct network *network, uint64_t nonce, uint64_t answer,
				    const struct sockaddr_storage *address);
/* Apply a first contact that came before the peer was known. */
void network_find_first_contact(struct network_peer *peer);
/* Call from time to time: fails a stranger for which a send has waited too long. */
void network_check_stranger(struct network_peer *peer, uint64_t now, uint64_t timeout);

/* network_host.c */
/* Call from time to time: has the host answered before, but not for a whole timeout? */
bool network_host_is_gone(struct network_peer *peer, const struct core_name *name, uint64_t now,
			  uint64_t timeout);
void network_host_end(struct network_peer *peer);

/* network_fetch.c */
void network_fetched(struct network *network, struct fetch *fetch, int error);

/* network_receive.c */
/* Poll the core. Returns the number of received frames, plus waiting frames that were sent. */
uint32_t network_poll(struct network *network);
bool network_post(struct network *network, struct frame_in *buffer);

#endif
