/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * single_copy.h - large messages copied once, by both ends at the same time.
 *
 *     offset   early                                                    end
 *              ├──── receiver ────▶ ┆          ┆ ◀──── sender ──────────┤
 *              copied    claimed    ▲          ▲    claimed    done
 *                                   they meet somewhere here
 *
 * The receiver copies from the front, the sender from the back. Each end publishes in its own line how far it
 * has claimed, and the sender also what it has done. If one end is busy elsewhere, the other end copies
 * everything.
 *
 * Before an end copies, it stores its claim, executes a full fence, and then reads the other end's line. So
 * if both ends claim the same bytes at the same time, at least one of them sees the other's claim.
 *
 * - If the sender sees that the receiver has claimed the same bytes, the sender withdraws its claim and does
 *   not copy. So it never writes bytes that the receiver had claimed when the sender looked.
 * - The receiver copies anyway: it only reads, and bytes that are copied twice are the same. But it finishes
 *   only when the sender does not write any more, and cannot begin to. Two observations show this. Either the
 *   receiver read the sender's line after its own last claim and found that no claim of the sender reaches
 *   into that claim (later claims are withdrawn, because the sender sees the receiver's claim), and the
 *   sender's part is all done. Or a later look shows no claim that is not done. Until then the receiver looks
 *   once at each poll: it never waits in a loop.
 * - The sender completes when the receiver acknowledges, after the receiver's last read. So neither buffer
 *   belongs to the application again while the other end reads or writes it.
 *
 * For buffers in the region, the lines are in the sections (struct transfer_line). A peer that writes invalid
 * values there spoils bytes of the region, which it could overwrite anyway. For buffers in private memory,
 * the lines are in the processes' records (struct process_record). So only the two processes can say where a
 * buffer is, and whether it may still be written: a word in the region, which other members may write, must
 * not decide about private memory.
 *
 * The kernel may copy a word in parts while it is written, and the words of a line in any order. So a line in
 * a record is read twice, one read after the other. If both reads are equal, no word was written in between,
 * and the words belong together.
 *
 * If the receiver cannot continue (the kernel refuses, the buffer is no ordinary memory), it sends RESUME,
 * and the rest is sent in pieces. If the sender cannot continue, it stops, and the receiver copies the rest.
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

/* One end of the transfer of one message. */
struct single_copy {
	struct match_link link;  /* of a receiver: in single_copies.pulling */
	struct receive *receive; /* of a receiver */
	enum wire_method method;
	uint32_t own; /* transfer ids */
	uint32_t other;
	uint32_t slot;       /* the other's, in the region that both ends shared at the beginning */
	uint32_t epoch;      /* the other's epoch in that slot */
	uint32_t generation; /* of this entry of the table */
	bool copies;         /* this end copies */
	bool sealed;         /* see above: the sender can claim nothing more that the receiver has claimed */
	bool finished;       /* the receiver has all bytes, except perhaps early pieces */
	bool resumed;        /* the rest is sent in pieces */
	bool draining;       /* failed; ends when the sender no longer writes */
	uint32_t polls;      /* since the last copy */
	uint64_t first;      /* [first, end) of the message is copied this way */
	uint64_t end;
	uint64_t mine;           /* a receiver has copied all bytes before it, a sender all bytes after it */
	uint64_t theirs_claimed; /* as last read */
	uint64_t theirs_done;    /* of a sender, as last read */
	/* the other's buffer: one of the two */
	shared_bytes *view;
	struct buffer there;
	struct process_peer process;
	/* while draining: when it ends at the latest, when the kernel is asked again, why it failed */
	uint64_t drained;
	uint64_t next_question;
	int error;
	const char *reason;
};

enum single_copy_policy {
	SINGLE_COPY_OFF,  /* messages are always sent in pieces */
	SINGLE_COPY_AUTO, /* through the kernel only where that was measured to be worth it */
	SINGLE_COPY_ON,   /* through the kernel wherever it is proved possible */
};

struct single_copies {
	bool process; /* through the kernel too */
	bool stopped; /* the endpoint closes, and accepts no new copies */
	struct process_offer offer;
	struct match_link pulling;
	uint32_t free_count;
	uint8_t free[REGION_TRANSFERS]; /* a stack of free indices */
	struct single_copy copies[REGION_TRANSFERS];
};

/* Messages of up to this length are always sent in pieces. Measured: docs/decisions/0007 */
#define SINGLE_COPY_BYTES 65536U

/* Called once, after messenger_open(). Returns 0 or -ENOMEM. */
int single_copy_open(struct messenger *messenger, enum single_copy_policy policy);
/*
 * After single_copy_stop(), no peer begins to write to this endpoint's buffers. Writes in progress end before
 * single_copy_is_quiet() returns true.
 */
void single_copy_stop(struct messenger *messenger);
bool single_copy_is_quiet(struct messenger *messenger);
void single_copy_close(struct messenger *messenger);

/* ---- single_copy_offer.c: whether and how a message is copied once ---- */

/* Offers a single copy in the header of a large message. Returns whether it probably will be accepted. */
bool single_copy_offer(struct messenger *messenger, struct send *send, struct wire_rendezvous *header);
/* Handles the receiver's answer. Returns 0, or -EPROTO if it is invalid. */
int single_copy_answered(struct messenger *messenger, struct send *send, const struct wire_clear *clear);
/* Accepts an offer, if a single copy is possible. If so, fills in `clear`, and begins. */
bool single_copy_accept(struct messenger *messenger, struct receive *receive, uint64_t accepted,
			struct wire_clear *clear);
/* The copy ended or never began. */
void single_copy_release(struct messenger *messenger, struct single_copy *copy);
/* The kernel does not copy between this process and the peer after all. */
void single_copy_refuse_process(struct msg_peer *peer);

/* ---- single_copy.c: the copy ---- */

/* The sender's part, at most `budget` pieces. Returns the remaining budget. */
uint32_t single_copy_push(struct messenger *messenger, struct send *send, uint32_t budget);
/* The receivers' parts, and draining copies. Returns the number of copied pieces. */
uint32_t single_copy_work(struct messenger *messenger, uint32_t budget);
/*
 * The peer failed. Returns true if the receive must not end yet, because the sender may be writing to its
 * buffer: it then ends later with `error`.
 */
bool single_copy_drain(struct messenger *messenger, struct receive *receive, int error, const char *reason);

#endif
