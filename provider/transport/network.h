/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network.h - peers outside our regions, reached by another provider of the same libfabric, the
 * core provider, or core for short.
 *
 * Such a peer has a ring and chunks like any other peer, but in private memory. Slots that are
 * pushed into the ring are sent in frames at once, or later if the core has no room. Chunks are
 * free again when the core has sent them. The receiver copies a frame's slots into a private ring,
 * which serves as the peer's ring during their processing; the bytes of chunks stay in the frame. A
 * message that must be kept longer is copied. So nothing is returned to the sender, neither chunks
 * nor credit. Matching, protocols and the end of peers are the same as in the region.
 *
 *   network_directory.h    the identities of peers, by numbers that all endpoints of a domain share
 *   network_core.h         choosing and opening the core
 *   network_frame.h        the format of frames
 *   network_peers.c        opening, closing; new, failed and leaving peers
 *   network_send.c         slots into frames
 *   network_receive.c      frames into slots
 *   network_hold.c         frames that arrived out of order
 *   network_strangers.c    what may be sent to peers that only frames made known
 *   network_fetch.c        reading a peer's memory
 *   network_switch.c       peers of the region that are reached over the network for a while
 *   network_detach.c       detaching from a region, and reattaching to one
 *   network_failover.c     failing over from an unusable region
 *   network_keepalive.c    detecting that a process is gone
 *   network_host.c         detecting that a host is gone
 *
 * docs/explanation/network.md says the same in prose.
 */
#ifndef VICINAL_TRANSPORT_NETWORK_H
#define VICINAL_TRANSPORT_NETWORK_H

#include "transport/network_core.h"
#include "transport/network_directory.h"
#include "transport/transport.h"

/*
 * The most frames of slots that a peer has not taken yet. So a peer that tells us to send no messages has a
 * bounded number still to come: see proto/pause.c. The core's and the kernel's buffers would bound them only
 * by bytes, which are some hundred thousand messages.
 */
#define NETWORK_WINDOW 128U

/* The upper bound of peers' numbers in one transport. */
#define TRANSPORT_PEERS_MAX (ATTACHMENTS_MAX * REGION_MEMBERS_MAX + NETWORK_PEERS_MAX)

/* All network peers have one epoch, because an address is never reused. */
#define NETWORK_EPOCH 1U

/*
 * From now on the transport reaches peers by `core`, which it takes over. `directory` has the
 * identities of peers, and lives longer. Returns 0 or -ENOMEM; after an error, the caller still
 * owns the core.
 */
int network_open(struct transport *transport, struct core *core, struct directory *directory);
/*
 * Begin to receive. This happens when the directory has its first entry, or when a peer makes first
 * contact. Before, the core's buffers, which may take megabytes, are not posted, and the core is
 * not polled.
 */
void network_listen(struct transport *transport);
/* Set the function that receives messages for the user, one line at a time. */
void network_set_notice(struct transport *transport, void (*notice)(const char *text));
/* Close the core. Does nothing without a network. */
void network_close(struct transport *transport);

/* The peer's index in the directory. */
uint32_t network_index_of(const struct peer *peer);
/*
 * `self` joined a region: publish our network address there, so that its peers can reach us over
 * the network.
 */
void network_publish(const struct transport *transport, const struct member *self);
/* Our own address in the network. */
const struct core_name *network_name(const struct network *network);

/*
 * The peer whose number is transport->members plus its index in the directory. It is created if
 * necessary. NULL without a network, if its address is not of our core's kind, or if no memory is
 * left.
 */
struct peer *network_meet(struct transport *transport, uint32_t source);

/*
 * The existing peer with this nonce and this network address: a peer outside our regions, or a peer
 * of a region that is also in the network. NULL if there is none.
 */
struct peer *network_met(const struct transport *transport, uint64_t nonce, const struct core_name *name);

/* Is there a peer with this nonce, at any address? */
bool network_has_met(const struct transport *transport, uint64_t nonce);

/* Memory that a peer may read through the core. */
struct network_grant {
	struct fid_mr *mr; /* our registration; NULL if the memory is a peer's, or the grant was revoked */
	struct network *network;
	uint64_t key;
	uint64_t address; /* the core's address of the first byte */
};

/* Can our core read the memory that `peer` exposes, and let `peer` read what we expose? */
bool network_reads(const struct peer *peer);
/* Permit `peer` to read the memory. Returns false if the core cannot do that. */
bool network_expose(struct peer *peer, void *buffer, size_t length, struct network_grant *grant);
void network_revoke(struct network_grant *grant);
/*
 * Read `length` bytes at `offset` of the memory that `peer` exposed. Returns 0, and later calls the
 * `fetched` function of the transport's user with `cookie`; -EAGAIN if there is no room now, or
 * another errno.
 */
int network_fetch(struct peer *peer, const struct network_grant *grant, uint64_t offset, void *to,
		  size_t length, void *cookie);

/*
 * ---- peers of the region that are reached over the network for a while: see switch.h ----
 */

/* Find the network address of `peer`. Returns false if it has none that our core can use. */
bool network_attach(struct transport *transport, struct peer *peer);
/*
 * Check by a ping whether the network reaches `peer`. Call repeatedly. Returns true once `peer` has
 * answered. Until then network_is_unreachable() says whether it has no address, or has not answered
 * for long.
 */
bool network_prove(struct transport *transport, struct peer *peer);
bool network_is_unreachable(const struct peer *peer);
/* Discard the result of the check. */
void network_forget_proof(struct peer *peer);
/* Send to `peer` over the network from now on. network_prove() must have succeeded. */
void network_enter(struct peer *peer);
/* Note that the ring from `peer` is no longer used; and is this connection the unused one? */
void network_leave_ring(struct peer *peer);
bool network_left_ring(const struct peer *peer, uint32_t connection);
/* Has the peer acknowledged our last frame? */
bool network_has_switched(const struct peer *peer);
/* Acknowledge the peer's last frame. Returns false if there is no room now. */
bool network_send_switched(struct peer *peer);
/*
 * A new member has the slot of `peer`, which failed: move the network state of `peer` to a peer of
 * its own.
 */
bool network_retire(struct transport *transport, struct peer *peer);

/*
 * ---- peers that detach from a region, and reattach: see detach.h and reattach.h ----
 */

/*
 * Send DETACH to `peer`, once what we send to it no longer goes through the region: from now on
 * nothing does. Returns true when `peer` is known to have received DETACH, and has sent its own.
 */
bool network_detach(struct peer *peer);
/*
 * Has either end sent DETACH? Then the pair no longer uses the region, whatever the manager
 * requests.
 */
bool network_is_detaching(const struct peer *peer);
/* The peer switches back to the region: earlier DETACHes are void. */
void network_stop_detaching(struct peer *peer);
/* Does a peer from which we have detached still have to acknowledge our DETACH? */
bool network_owes_detach(const struct peer *peer);
/*
 * The peer has just been bound to a slot of our region, and may not know that yet: reset the state
 * of detaching.
 */
void network_forget_region(struct peer *peer);
/*
 * Replace the peer's claim word by a private one, because the peer's words in the region no longer
 * count.
 */
void network_stay_with(struct peer *peer);
bool network_tx_paused(const struct peer *peer);
bool network_awaits_reattach(const struct peer *peer);
void network_reattached(struct peer *peer);
/*
 * Ask each peer that was not asked yet whether it is in the region of `attachment`; and forget who
 * was asked.
 */
void network_ask_who_is_in(struct transport *transport, const struct attachment *attachment);
void network_forget_asking(struct transport *transport, const struct attachment *attachment);
/* Forget for one peer, which is reached over the network, that it was asked. */
void network_ask_again(const struct attachment *attachment, struct peer *peer);
/*
 * Add the member in `slot` to the directory by its network address. Returns its number here, or 0
 * if it has no usable address.
 */
uint32_t network_add_member(struct transport *transport, const struct attachment *attachment, uint32_t slot,
			    uint32_t epoch, uint64_t nonce);

/*
 * ---- peers of an unusable region: see failover.h ----
 */

/* Is there a usable core? */
bool network_is_there(const struct transport *transport);
/* Forget the old stream. Returns false if the peer has no address that our core can use. */
bool network_begin_failover(struct transport *transport, struct peer *peer);
/* Send over the network, as far as the failover permits. */
void network_enter_failover(struct peer *peer);
/* Send FAILOVER to the peer from time to time, until the peer answers. */
void network_ask_failover(struct peer *peer);
bool network_failover_timed_out(const struct peer *peer);

/*
 * ---- for the rest of the transport ----
 */

/* Open the ring to `peer`. Returns 0 or a negative errno. */
int network_connect(struct peer *peer);
/* Slots were pushed: send them now, or when there is room. */
void network_ship(struct peer *peer);
/* Send the slots that are pushed until the next poll then, in as few frames as possible. */
void network_ship_later(struct peer *peer);
/* `peer` failed: drop all that waits for it. Nothing more is sent to it unless it `fails_over`. */
void network_stop(struct peer *peer, bool fails_over);
/* Has the core completed all our sends to `peer`? */
bool network_is_quiet(const struct peer *peer);
/*
 * The part of a poll for the network. Both functions return the number of received frames, plus
 * waiting frames that were sent.
 */
uint32_t network_progress_slow(struct transport *transport, bool idle);
/* The same, whether or not polling the network is due. */
uint32_t network_progress_full(struct transport *transport);
/* Are there peers that do not wake a sleep over the region? */
bool network_has_peers(const struct transport *transport);
/* From time to time: detect peers that are gone without notice. */
void network_check(struct transport *transport, uint64_t now);
/* Have all receivers taken everything that we sent, or gone? Also sends LEAVE. */
bool network_drained(struct transport *transport);
/* In a forked child: the core belongs to the parent. */
void network_after_fork(struct transport *transport, const char *reason);

#endif
