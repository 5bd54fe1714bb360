/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * single_copy.h - large messages copied once, by both ends at the same time.
 *
 *     offset   early                                                    end
 *              ├──── receiver ────▶ ┆          ┆ ◀──── sender ──────────┤
 *              copied    claimed    ▲          ▲    claimed    done
 *                                   they meet somewhere here
 *
 * The receiver copies from the front, the sender from the back. Each says in a line of its own
 * how far it has claimed, and the sender what it has done. One that is busy elsewhere
 * contributes nothing, and the other does it all.
 *
 * Before it copies, an end stores its claim, then there is a full fence, then it looks at the
 * other's line. So of two that claim the same bytes at the same time at least one sees the other.
 *
 * - The sender, if it sees that the receiver has claimed what it claims, withdraws its claim and
 *   does not copy. So it never writes what the receiver had claimed when it looked.
 * - The receiver copies anyway: it only reads, and what is copied twice is the same bytes. But
 *   it is not finished before the sender does not write any more, and can do so no more:
 *   either a look after its last claim showed that no claim of the sender's reached into it
 *   (later ones withdraw, since they see it), and all of the sender's part is done; or a look
 *   after it shows no claim that is not done. Until then it comes back at each poll: it never
 *   waits in a loop.
 * - The sender completes when the receiver acknowledges, after its last read. So neither buffer
 *   is the application's again while the other end reads or writes it.
 *
 * Where the lines are: for buffers in the region, in the sections (struct transfer_line). A peer
 * that writes nonsense there spoils bytes of the region, which it could have written itself. For
 * buffers in private memory, in the processes' records (struct process_record), so that nobody
 * but the two processes can say that a buffer may still be written, or where it is: a word in
 * the region that another member may write must not decide about private memory.
 *
 * The kernel may copy a word while it is written, in parts, and the words of a line in any order.
 * So a line in a record is read twice, one after the other: if both are the same, no word was
 * written between, and the words belong together.
 *
 * If the receiver cannot go on (the kernel refuses, the buffer is no ordinary memory), it says
 * RESUME, and the rest goes in pieces from where it stands. If the sender cannot, it stops, and
 * the receiver does the rest.
 */
#ifndef VICINAL_PROTO_SINGLE_COPY_H
#define VICINAL_PROTO_SINGLE_COPY_H

#include "match/match.h"
#include "proto/buffer.h"
#include "proto/wire.h"
#include "region/process.h"
#include "region/transfer.h"
#include "transport/transport.h"

struct msg_peer;
struct messenger;
struct receive;
struct send;

/* One end of one message. */
struct single_copy {
	struct match_link link;  /* a receiver's: in single_copies.pulling */
	struct receive *receive; /* a receiver's */
	enum wire_method method;
	uint32_t own; /* transfer ids */
	uint32_t other;
	uint32_t slot;       /* the other's, in the region that we both were in when it began */
	uint32_t epoch;      /* the other's there */
	uint32_t generation; /* of this place in the table */
	bool copies;         /* this end does something */
	bool sealed;         /* see above: the sender can claim no more that we have claimed */
	bool finished;       /* the receiver has all of it but perhaps early pieces */
	bool resumed;        /* the rest goes in pieces */
	bool draining;       /* failed; ends when the sender does not write any more */
	uint32_t polls;      /* since something was copied */
	uint64_t first;      /* of the message, [first, end) goes this way */
	uint64_t end;
	uint64_t mine;           /* a receiver has copied what is before, a sender what is behind */
	uint64_t theirs_claimed; /* as last seen */
	uint64_t theirs_done;    /* a sender's, as last seen */
	/* the other's buffer: one of the two */
	shared_bytes *view;
	struct buffer there;
	struct process_peer process;
	/* while it drains: how long at most, by our clock, when the kernel is asked again, why it failed */
	uint64_t drained;
	uint64_t next_question;
	int error;
	const char *reason;
};

enum single_copy_policy {
	SINGLE_COPY_OFF,  /* messages go in pieces always */
	SINGLE_COPY_AUTO, /* through the kernel only where that was measured to be worth it */
	SINGLE_COPY_ON,   /* through the kernel wherever it is proved possible */
};

struct single_copies {
	bool process; /* through the kernel too */
	bool stopped; /* we close: nothing new is accepted */
	struct process_offer offer;
	struct match_link pulling;
	uint32_t free_count;
	uint8_t free[REGION_TRANSFERS]; /* a stack of indices */
	struct single_copy copies[REGION_TRANSFERS];
};

/* Up to so many bytes a message goes in pieces always. Measured: docs/decisions/0007 */
#define SINGLE_COPY_BYTES 65536U

/* Once, after messenger_open(). Returns 0 or -ENOMEM. */
int single_copy_open(struct messenger *messenger, enum single_copy_policy policy);
/* No peer begins to write into our buffers after this; some may just do so: see is_quiet. */
void single_copy_stop(struct messenger *messenger);
bool single_copy_is_quiet(struct messenger *messenger);
void single_copy_close(struct messenger *messenger);

/* ---- single_copy_offer.c: who can, and where ---- */

/* Offer it in the header of a large message. Returns whether it will probably be taken. */
bool single_copy_offer(struct messenger *messenger, struct send *send, struct wire_rendezvous *header);
/* The answer. Returns 0, or -EPROTO if it cannot be. */
int single_copy_answered(struct messenger *messenger, struct send *send, const struct wire_clear *clear);
/* Take an offer, if it is possible: then fills `clear` in and begins. */
bool single_copy_accept(struct messenger *messenger, struct receive *receive, uint64_t accepted,
			struct wire_clear *clear);
/* It ended, or never began. */
void single_copy_release(struct messenger *messenger, struct single_copy *copy);
/* Through the kernel it does not work with this peer after all. */
void single_copy_refuse_process(struct msg_peer *peer);

/* ---- single_copy.c: the meeting ---- */

/* The sender's part, at most `budget` pieces. Returns what is left of the budget. */
uint32_t single_copy_push(struct messenger *messenger, struct send *send, uint32_t budget);
/* The receivers' parts, and what drains. Returns how many pieces were copied. */
uint32_t single_copy_work(struct messenger *messenger, uint32_t budget);
/*
 * The peer failed. True if the receive may not end yet, because the sender may be writing into
 * its buffer just now: it then ends with `error` by itself.
 */
bool single_copy_drain(struct messenger *messenger, struct receive *receive, int error, const char *reason);

#endif
