/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reading.h - memory that a peer exposes, read by the core straight into a buffer of ours: of large
 * messages (fetch.c), and of long one-sided operations (remote_core.c).
 *
 * It is read in pieces, a few at a time, so that what else comes by the same connection passes between
 * them; and no more than the core has room for. The buffer is the core's until the last piece has ended,
 * whatever becomes of the peer.
 */
#ifndef VICINAL_PROTO_READING_H
#define VICINAL_PROTO_READING_H

#include "match/table.h"
#include "proto/buffer.h"
#include "transport/network.h"

struct messenger;
struct msg_peer;
struct reading;

/* All is there; or, of one that was abandoned, nothing more comes. It is in no list any more. */
typedef void (*reading_ended)(struct messenger *messenger, struct reading *reading);

struct reading {
	struct match_link link; /* in messenger.readings */
	struct msg_peer *from;
	const struct buffer *to;    /* outlives it */
	struct network_grant grant; /* the peer's: its key and address */
	uint64_t length;            /* at least 1, and at most the buffer's */
	uint64_t asked;             /* bytes of which the reads were begun */
	uint64_t arrived;
	uint32_t pieces; /* reads under way */
	bool abandoned;  /* its peer failed, and it ends with the last of the reads */
	reading_ended ended;
};

/* `from` is in the network. The other fields of `reading` need not be set. */
void reading_begin(struct messenger *messenger, struct reading *reading, struct msg_peer *from,
		   const struct buffer *to, uint64_t length, const struct network_grant *grant,
		   reading_ended ended);
/* Its peer failed. True if reads are under way, and `ended` is called after them; else it is over now. */
bool reading_abandon(struct messenger *messenger, struct reading *reading);
/* As struct transport_user has it. */
void reading_piece_ended(void *messenger, void *reading, size_t length, int error);
/* The core may have room again. Returns how many reads were begun. */
uint32_t reading_work(struct messenger *messenger);

#endif
