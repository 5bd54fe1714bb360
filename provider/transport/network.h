/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network.h - peers that are not in our region, reached by another provider of the same libfabric,
 * the core.
 *
 * Such a peer has a ring and chunks like any other, but in private memory. What is pushed into the
 * ring is shipped in frames at once, or later if the core has no room; chunks are ours again when
 * the core has sent them. The receiver puts a frame's slots into a ring of its own memory, which is
 * the peer's while they are dealt with, and the bytes of chunks stay in the frame. What holds them
 * longer copies them: so nothing needs to be given back to the sender, and no credit either. All
 * else, matching, protocols and the end of peers, is the same as in the region.
 *
 * network_directory.h  who they are, in numbers that all endpoints of a domain share
 * network_core.h       the core: choosing it, opening it
 * network_frame.h      what goes over the wire
 * network_peers.c      opening, closing; peers that are met, fail and leave
 * network_send.c       slots into frames
 * network_receive.c    frames into slots
 * network_hold.c       frames that came too soon
 * network_strangers.c  what may go to peers that only said themselves who they are
 * network_fetch.c      reading a peer's memory
 * network_switch.c       peers of the region that are reached over the network for a while
 * network_detach.c       peers that detach from a region, and meet in one
 * network_failover.c      and those that the region is of no use for
 * network_keepalive.c      finding out that a peer is gone
 *
 * docs/explanation/network.md says the same in prose.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_H
#define VICINAL_TRANSPORT_NETWORK_H

#include "transport/network_core.h"
#include "transport/network_directory.h"
#include "transport/transport.h"

/* The numbers that peers of one transport may have, in all. */
#define TRANSPORT_PEERS_MAX (ATTACHMENTS_MAX * REGION_MEMBERS_MAX + NETWORK_PEERS_MAX)

/* Network peers have one epoch: an address that was used once is never another's. */
#define NETWORK_EPOCH 1U

/*
 * From here on the transport reaches peers by `core`, which it owns from then on. `directory` says who
 * they are, and lives longer. Returns 0 or -ENOMEM, and then the core is still the caller's.
 */
int network_open(struct transport *transport, struct core *core, struct directory *directory);
/*
 * Take what comes from here on. It is so once the directory has somebody, or another peer makes first
 * contact: until then a core's buffers, which may take megabytes, are not filled, and it is not looked at.
 */
void network_listen(struct transport *transport);
/* Who is to be told what a user must see, a line at a time. */
void network_set_notice(struct transport *transport, void (*notice)(const char *text));
/* Closes the core. Does nothing without a network. */
void network_close(struct transport *transport);

/* Which of those it is that we met there, from 0. */
uint32_t network_index_of(const struct peer *peer);
/* `self` joined a region: its peers there may be told to reach us here. */
void network_publish(const struct transport *transport, const struct member *self);
/* Where we are in it. */
const struct core_name *network_name(const struct network *network);

/*
 * The peer whose number is transport->members and its index in the directory, met now if it was not
 * before. NULL without a network, at an address that is none of our core's, or without memory.
 */
struct peer *network_meet(struct transport *transport, uint32_t source);

/*
 * Who was met and has this nonce and this place in the network: one beyond our regions, or one of a region
 * that is in the network too. NULL if nobody has.
 */
struct peer *network_met(const struct transport *transport, uint64_t nonce, const struct core_name *name);

/* The same, by whatever name. */
bool network_has_met(const struct transport *transport, uint64_t nonce);

/* Memory that a peer may read by the core. */
struct network_grant {
	struct fid_mr *mr; /* ours; NULL if it is another's, or given back */
	struct network *network;
	uint64_t key;
	uint64_t address; /* what the core calls its first byte */
};

/* Can our core read what `peer`, which is in the network, exposes; and let it read what we expose? */
bool network_reads(const struct peer *peer);
/* Let `peer` read it. False if the core cannot do that. */
bool network_expose(struct peer *peer, void *buffer, size_t length, struct network_grant *grant);
void network_revoke(struct network_grant *grant);
/*
 * Read `length` bytes at `offset` of what `peer` exposed. Returns 0, and then the transport's user hears of
 * its end with `cookie`; -EAGAIN if there is no room now, or another errno.
 */
int network_fetch(struct peer *peer, const struct network_grant *grant, uint64_t offset, void *to,
		  size_t length, void *cookie);

/* ---- peers of the region that are reached over the network for a while: see switch.h ---- */

/* Find out where it is. False if it is nowhere that our core reaches. */
bool network_attach(struct transport *transport, struct peer *peer);
/*
 * Find out whether the network reaches it, by and by. True when it does; until then it is unreachable if
 * it is nowhere, or does not answer for long.
 */
bool network_prove(struct transport *transport, struct peer *peer);
bool network_is_unreachable(const struct peer *peer);
/* It has to be proved anew. */
void network_forget_proof(struct peer *peer);
/* What we send to `peer`, which is proved, goes over the network from now on. */
void network_enter(struct peer *peer);
/* The ring that `peer` sent by is done with; and is this the one? */
void network_leave_ring(struct peer *peer);
bool network_left_ring(const struct peer *peer, uint32_t connection);
/* Has it said that it took our last frame? */
bool network_has_switched(const struct peer *peer);
/* Tell it that we took its last frame. False if there is no room now. */
bool network_send_switched(struct peer *peer);
/* A newcomer has the slot of `peer`, which failed: what is left of it gets a place of its own. */
bool network_retire(struct transport *transport, struct peer *peer);

/* ---- peers that detach from a region, and meet in one: see detach.h and reattach.h ---- */

/*
 * Say DETACH to `peer`, once what we send to it does not go through the region any more: from here on nothing
 * does. True when it is known to have heard that, and has said so too.
 */
bool network_detach(struct peer *peer);
/* Has it said DETACH? Then it does not use the region any more, whatever the manager's words are. */
bool network_is_detaching(const struct peer *peer);
/* It switches back to the region: what was said before of detaching is void. */
void network_stop_detaching(struct peer *peer);
/* Does it still have to say that it heard ours? Of one that we have detached from. */
bool network_owes_detach(const struct peer *peer);
/* It is not known to be in our region from here on. */
void network_forget_region(struct peer *peer);
/* The region is not known to be where `peer` is: its words there are its own word. */
void network_stay_with(struct peer *peer);
bool network_tx_paused(const struct peer *peer);
bool network_awaits_reattach(const struct peer *peer);
void network_reattached(struct peer *peer);
/* Ask each peer that was not asked yet whether it is in `attachment`'s region; and let all be asked again. */
void network_ask_who_is_in(struct transport *transport, const struct attachment *attachment);
void network_forget_asking(struct transport *transport, const struct attachment *attachment);
/* The same of one peer, which is reached over the network. */
void network_ask_again(const struct attachment *attachment, struct peer *peer);
/*
 * The place in the network of the member in `slot`, which is to be known by that; its number here. 0 if it
 * has none.
 */
uint32_t network_add_member(struct transport *transport, const struct attachment *attachment, uint32_t slot,
			    uint32_t epoch, uint64_t nonce);

/* ---- peers of the region that it is of no use for: see failover.h ---- */

/* Is there a core that works? */
bool network_is_there(const struct transport *transport);
/* Nothing is known of before. False if the peer is nowhere that our core reaches. */
bool network_begin_failover(struct transport *transport, struct peer *peer);
/* What we send goes there, as far as it is let. */
void network_enter_failover(struct peer *peer);
/* Now and then a frame to the peer, until it answers. */
void network_ask_failover(struct peer *peer);
bool network_failover_timed_out(const struct peer *peer);

/* ---- for the transport ---- */

/* Open the ring to `peer`. Returns 0 or a negative errno. */
int network_connect(struct peer *peer);
/* Slots were pushed: they go now, or when there is room. */
void network_ship(struct peer *peer);
/* What is pushed until the next look goes then, in as few frames as hold it. */
void network_ship_later(struct peer *peer);
/* `peer` failed: nothing more goes to it of what there is, nor at all unless it `fails_over`. */
void network_stop(struct peer *peer, bool fails_over);
/* Does the core have nothing of ours that is for `peer`? */
bool network_is_quiet(const struct peer *peer);
/* What a poll does for the network; both return how many frames came, or went of those that had waited. */
uint32_t network_progress_slow(struct transport *transport, bool idle);
/* The same, whether or not it is worth it just now. */
uint32_t network_progress_full(struct transport *transport);
/* Are there peers that a sleep over the region does not wake for? */
bool network_has_peers(const struct transport *transport);
/* Now and then: peers that went without a word. */
void network_check(struct transport *transport, uint64_t now);
/* Everything that we sent was taken by its receivers, or they are gone. Tells them that we leave. */
bool network_drained(struct transport *transport);
/* In a forked child: the core is our parent's. */
void network_after_fork(struct transport *transport, const char *reason);

#endif
