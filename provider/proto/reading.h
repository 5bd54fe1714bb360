/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reading.h - reads of memory that a peer exposes, by the core provider, directly into a local buffer: for
 * large messages (fetch.c) and long one-sided operations (remote_core.c).
 *
 * The memory is read in pieces, a few at a time, so that other traffic of the connection passes between them,
 * and the core provider has room. The buffer belongs to the core provider until the last piece has ended,
 * whatever happens to the peer.
 */
#ifndef VICINAL_PROTO_READING_H
#define VICINAL_PROTO_READING_H

#include "match/table.h"
#include "proto/buffer.h"
#include "transport/network.h"

struct messenger;
struct msg_peer;
struct reading;

/*
 * Called when all bytes have arrived, or when the last read of an abandoned reading has ended. The reading is
 * in no list any more.
 */
typedef void (*reading_ended)(struct messenger *messenger, struct reading *reading);

struct reading {
	struct match_link link; /* in messenger.readings */
	struct msg_peer *from;
	const struct buffer *to;    /* must outlive the reading */
	struct network_grant grant; /* the peer's: key and address */
	uint64_t length;            /* at least 1, at most the buffer's length */
	uint64_t asked;             /* bytes whose reads have begun */
	uint64_t arrived;
	uint32_t pieces; /* reads in progress */
	bool abandoned;  /* the peer failed: the reading ends with the last of its reads */
	reading_ended ended;
};

/* `from` must be a network peer. The other fields of `reading` need not be set. */
void reading_begin(struct messenger *messenger, struct reading *reading, struct msg_peer *from,
		   const struct buffer *to, uint64_t length, const struct network_grant *grant,
		   reading_ended ended);
/*
 * The peer failed. Returns true if reads are in progress: then `ended` is called after them. Otherwise the
 * reading has ended.
 */
bool reading_abandon(struct messenger *messenger, struct reading *reading);
/* See struct transport_user. */
void reading_piece_ended(void *messenger, void *reading, size_t length, int error);
/* Called when the core provider may have room again. Returns the number of begun reads. */
uint32_t reading_work(struct messenger *messenger);

#endif
