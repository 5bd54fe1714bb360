/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * process.h - reads and writes memory of another process by the kernel's process_vm_readv() and
 * process_vm_writev(), after a proof of whose memory it is.
 *
 * Nothing in the region can be that proof. A PID means another process in another namespace.
 * Another member could have written whatever a member published there, or could have sent it as a
 * message into a buffer of an innocent process. So the kernel provides the proof:
 *
 * - A member takes a POSIX lock on a range of the region's file that belongs to its slot. The
 *   length of the range is the address of its process_record. A process that asks the kernel about
 *   that range (F_GETLK) learns the PID of the holder, in its own PID namespace (0 if the holder
 *   has none there), and the range. So the process and the address come from the holder itself, and
 *   no other process can change them.
 * - According to /proc, the holder must be a process that may trace the asker (below).
 * - The record must be readable there, and must name the region, slot, epoch and nonce of the
 *   member.
 *
 * So a process that locks another member's range exposes only its own memory. Other members cannot
 * direct an access to the memory of any other process: all addresses and lengths come from records
 * in private memory, and the words in the region only choose among the open transfers of one
 * record.
 *
 * The kernel's copies have no time limit. If the peer's memory is backed by userfaultfd or a FUSE
 * file, the call waits until the peer provides the page. No timer ends that wait; with FUSE,
 * SIGKILL does not end it either. So these copies are used only with a peer that gains no new power
 * from this: a process that may trace us can already stop us, kill us, and make us execute any
 * system call. The kernel checks that we may trace the peer. We check the reverse, and so does the
 * peer. An end that the other end may not trace does not copy. The conditions for the peer are:
 *
 * - It is in our PID namespace, so that it can name us. A process in a namespace below ours cannot.
 * - It is in our user namespace, so that ids and capabilities mean the same to both.
 * - Its real, effective and saved user ids are one number, which is also the number of all of ours;
 *   the same holds for group ids.
 * - It has all capabilities that we have: root that dropped some, and root in another container,
 *   are not root with CAP_SYS_PTRACE.
 * - We are dumpable: otherwise, it needs capabilities to trace us.
 *
 * If any condition cannot be determined, the answer is no. The check happens once for each peer,
 * not for each message. A peer may drop privileges afterwards (setuid, unshare, capset): it had
 * them at the check, and could have used them, or kept them in another process. It gains privileges
 * only by executing another program, which has no record. These cases remain: a process takes over
 * a peer after the peer dropped privileges; we lock out a peer later ourselves (setuid,
 * PR_SET_DUMPABLE); or a peer is confined by means that are not checked (seccomp, Landlock, labels
 * of security modules) and can still keep pages back.
 *
 * A PID may be reused, and a process may execute another program. So the proof takes the privileges
 * and the record from one process, see process.c. Each read also reads the record's random secret,
 * from the same process in the same call, after the data; and such a read directly precedes each
 * write. A forked child has no secret. To go wrong, the peer would have to end between the read and
 * the write, and a third process would have to get its PID. That takes as many forks as there are
 * PIDs, by a process that may trace the third process (or set its PID) in the first place. (A pidfd
 * would not help: the kernel's calls take a PID, and a pidfd does not reserve it.)
 *
 * prctl(PR_SET_PTRACER) is not used, because it would weaken the application's protection without
 * its consent. If Yama forbids tracing between siblings (kernel.yama.ptrace_scope above 0), the
 * proof fails.
 */
#ifndef VICINAL_REGION_PROCESS_H
#define VICINAL_REGION_PROCESS_H

#include <sys/uio.h>

#include "region/member.h"

/* As BUFFER_PIECES: the maximum number of pieces in a buffer of the application. */
#define PROCESS_PIECES 4U

/*
 * The first line of a transfer, which the peer checks at each access. It is in private memory of
 * its owner, and only the owner writes it. The peer reads it through the kernel.
 */
struct process_line {
	_Atomic uint64_t secret;  /* the record's; 0 once the record is gone */
	_Atomic uint64_t id;      /* 0 while the transfer is closed */
	_Atomic uint64_t claimed; /* offset in the message; see proto/single_copy.h */
	_Atomic uint64_t done;
};

/* A transfer of one message. Everything except the line is written while the id is 0. */
struct process_transfer {
	struct process_line line;
	uint64_t member;    /* the member that may use it: epoch << 32 | slot */
	uint64_t operation; /* the sender's id of the message */
	uint64_t bytes;     /* total length of the pieces */
	uint64_t count;
	struct iovec pieces[PROCESS_PIECES];
};

/* In private memory of a member, at the address that its lock encodes. */
struct process_record {
	uint64_t magic;
	uint64_t region[2];
	uint64_t member; /* epoch << 32 | slot */
	uint64_t nonce;
	_Atomic uint64_t secret;
	uint64_t reserved[2];
	struct process_transfer transfers[REGION_TRANSFERS];
};

/* A copy of a line. */
struct process_snapshot {
	uint64_t secret;
	uint64_t id;
	uint64_t claimed;
	uint64_t done;
};

/* The proved process of another member. Plain values, which may be copied. */
struct process_peer {
	pid_t pid;
	uint64_t record; /* address */
	uint64_t secret;
};

/* What this member offers to its peers. */
struct process_offer {
	const struct member *member;
	struct process_record *record; /* NULL: no record is offered */
};

/*
 * Offer a record. Returns 0, or a negative errno if the file supports no locks or no memory is
 * left. Then peers do not find the record, which is no error.
 */
int process_offer_open(struct process_offer *offer, const struct member *member);
/*
 * Take the lock again. The kernel drops it whenever this process closes a descriptor of the
 * region's file, as another endpoint does when it closes.
 */
void process_offer_relock(const struct process_offer *offer);
/* Invalidates the record's secret and all transfers before the memory is unmapped. */
void process_offer_close(struct process_offer *offer);

/*
 * Is the member (slot, epoch, nonce) a process whose memory we may access and which may trace us?
 * If so, fills in `peer`.
 */
bool process_prove(const struct member *self, uint32_t slot, uint32_t epoch, uint64_t nonce,
		   struct process_peer *peer);

/* The result of an access. */
enum process_result {
	PROCESS_GOOD,
	PROCESS_GONE, /* the process ended, or the record is void: it no longer accesses any memory of ours */
	PROCESS_REFUSED,  /* the kernel refused the access: the process may still exist */
	PROCESS_CHANGING, /* the data was copied, but the line was being written: read again */
};

/*
 * Read `bytes` bytes from the peer's pieces `from` into our pieces `to`, and after them, in the
 * same call, the line of transfer `index`. If the caller relies on the line, it is read twice,
 * because the kernel guarantees neither that a word that is being written is copied whole, nor the
 * order of words.
 */
enum process_result process_read(const struct process_peer *peer, const struct iovec *to, size_t to_count,
				 const struct iovec *from, size_t from_count, size_t bytes, uint32_t index,
				 bool twice, struct process_snapshot *snapshot);
/* Read all of transfer `index`. */
enum process_result process_read_transfer(const struct process_peer *peer, uint32_t index,
					  struct process_transfer *transfer);
/* Write. Call directly after a read that found the secret. */
enum process_result process_write(const struct process_peer *peer, const struct iovec *from,
				  size_t from_count, const struct iovec *to, size_t to_count, size_t bytes);

/*
 * Does a process with the peer's PID exist? For a peer whose memory the kernel no longer lets us
 * read.
 */
bool process_is_there(const struct process_peer *peer);

/*
 * How many times longer a copy by the kernel between processes takes than a copy within a process.
 * Measured once in each process, in a fraction of a millisecond.
 */
double process_measure(void);

/* For fork.c: no thread accesses the list of offers. */
void process_offers_lock(void);
void process_offers_unlock(void);

#endif
