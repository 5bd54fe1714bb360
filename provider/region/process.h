/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * process.h - memory of another process, read and written by the kernel's
 * process_vm_readv() and process_vm_writev(), once it is proved whose it is.
 *
 * Nothing that lies in the region can prove that. A PID means another process in another
 * namespace, and whatever a member published there, another could have written, or could have
 * sent as a message into a buffer of an innocent process. So the kernel itself is the witness:
 *
 * - A member takes a POSIX lock on a range of the region's file that belongs to its slot. The
 *   range's length is the address of its process_record. Who asks the kernel about that range
 *   (F_GETLK) is told the holder's PID, in the PID namespace of the one who asks (0 if it has none
 *   there), and the range: which process, and where in it, told by that very process and not
 *   changed by anybody between.
 * - The holder must be a process that may trace the asker (below), by /proc.
 * - The record must be readable there, and must name the region, slot, epoch and nonce of the
 *   member that is meant.
 *
 * So a process that locks another's range gets its own memory read and written, and nobody
 * else's. Members elsewhere cannot make us touch the memory of any process: all addresses and
 * lengths come from records, in private memory, and the words in the region only choose among the
 * transfers that are open in one.
 *
 * The kernel's copies have no time limit. Where memory of the peer is backed by userfaultfd or by a
 * FUSE file, we wait in the call until the peer provides the page. No timer ends that wait; for
 * FUSE, SIGKILL does not either. So this is done only with a peer to which that is no new power:
 * one that may trace us, stop us, kill us and have us make any system call, as it is. The kernel
 * checks that we may trace the peer. We check the reverse, each for itself; if either may not
 * trace the other, that one does not copy:
 *
 * - it is in our PID namespace, and so can name us; one in a namespace below ours cannot;
 * - it is in our user namespace, so that ids and capabilities mean the same to both;
 * - its user ids, real, effective and saved, are one number, which all of ours are too; so are the
 *   group ids;
 * - it has all capabilities that we have: root that gave some up, and root in another container,
 *   are not root with CAP_SYS_PTRACE;
 * - we are dumpable: else only capabilities allow it to trace us.
 *
 * If any of this cannot be found out, the answer is no. It is asked once for a peer, not for each
 * message. After that a peer may give up rights (setuid, unshare, capset): it had them when it was
 * asked, and could have used them, or kept them in another process. It gets more only by executing
 * another program, which has no record. What remains: somebody who takes over a peer after it gave
 * up rights; a peer that we shut out later ourselves (setuid, PR_SET_DUMPABLE); and a peer that is
 * confined by means that are not asked about (seccomp, Landlock, labels of security modules) and
 * can keep pages back all the same.
 *
 * A PID may be used again, and a process may run another program. So the proof takes the rights and
 * the record of one process, see process.c. And each reading takes the record's secret, which is
 * random, from the same process in the same call, and after the data; and each writing is directly
 * preceded by such a reading. A forked child has no secret. Between reading and writing the other
 * would have to end and its PID to be given to a third process: this takes as many forks as there
 * are PIDs, by a process that may trace that third one (or set its PID) in the first place.
 * (A pidfd would not help: the kernel's calls take a PID, and a pidfd does not keep it taken.)
 *
 * prctl(PR_SET_PTRACER) is not used: it would weaken the application's protection unasked.
 * Where Yama forbids tracing among siblings (kernel.yama.ptrace_scope above 0), the proof fails.
 */
#ifndef VICINAL_REGION_PROCESS_H
#define VICINAL_REGION_PROCESS_H

#include <sys/uio.h>

#include "region/member.h"

/* As BUFFER_PIECES: a buffer of the application has at most so many. */
#define PROCESS_PIECES 4U

/*
 * What a peer must know again at each access: the first line of a transfer. It is in the private
 * memory of its owner, who alone writes it; the peer has it copied by the kernel.
 */
struct process_line {
	_Atomic uint64_t secret;  /* the record's; 0 once the record is gone */
	_Atomic uint64_t id;      /* 0 while the transfer is closed */
	_Atomic uint64_t claimed; /* offset in the message; see proto/single_copy.h */
	_Atomic uint64_t done;
};

/* A transfer of one message: all but the line is written while its id is 0. */
struct process_transfer {
	struct process_line line;
	uint64_t member;    /* whom it is for: epoch << 32 | slot */
	uint64_t operation; /* the sender's id of the message */
	uint64_t bytes;     /* that the pieces have in all */
	uint64_t count;
	struct iovec pieces[PROCESS_PIECES];
};

/* In private memory of a member, where its lock says. */
struct process_record {
	uint64_t magic;
	uint64_t region[2];
	uint64_t member; /* epoch << 32 | slot */
	uint64_t nonce;
	_Atomic uint64_t secret;
	uint64_t reserved[2];
	struct process_transfer transfers[REGION_TRANSFERS];
};

/* A copy of a line, as it was read. */
struct process_snapshot {
	uint64_t secret;
	uint64_t id;
	uint64_t claimed;
	uint64_t done;
};

/* Another member's process, proved. Plain values: they may be copied. */
struct process_peer {
	pid_t pid;
	uint64_t record; /* address */
	uint64_t secret;
};

/* What we show of ourselves. */
struct process_offer {
	const struct member *member;
	struct process_record *record; /* NULL: nothing is shown */
};

/*
 * Show our record. Returns 0, or a negative errno if the file takes no locks or no memory is
 * left; then others do not find us, which is no error.
 */
int process_offer_open(struct process_offer *offer, const struct member *member);
/*
 * Take the lock again: the kernel drops it when this process closes any descriptor of the
 * region's file, which it does when another endpoint closes.
 */
void process_offer_relock(const struct process_offer *offer);
/* The record's secret and all transfers are void before the memory is anything else. */
void process_offer_close(struct process_offer *offer);

/* Is the member (slot, epoch, nonce) a process whose memory we may reach, which may trace us, and which? */
bool process_prove(const struct member *self, uint32_t slot, uint32_t epoch, uint64_t nonce,
		   struct process_peer *peer);

/* How the access went. */
enum process_result {
	PROCESS_GOOD,
	PROCESS_GONE,     /* it ended, or the record is void: it touches nothing of ours any more */
	PROCESS_REFUSED,  /* the kernel would not: it may be there still */
	PROCESS_CHANGING, /* the data is there, but the line was being written: look again */
};

/*
 * Read `bytes` bytes from its pieces `from` into our pieces `to`, and after them, in the same
 * call, transfer `index`'s line; twice if the caller is going to believe it: the kernel does not
 * promise to copy a word that is just written in one piece, nor words in an order.
 */
enum process_result process_read(const struct process_peer *peer, const struct iovec *to, size_t to_count,
				 const struct iovec *from, size_t from_count, size_t bytes, uint32_t index,
				 bool twice, struct process_snapshot *snapshot);
/* The whole of transfer `index`, as it is now. */
enum process_result process_read_transfer(const struct process_peer *peer, uint32_t index,
					  struct process_transfer *transfer);
/* Write; directly after a look that found the secret. */
enum process_result process_write(const struct process_peer *peer, const struct iovec *from,
				  size_t from_count, const struct iovec *to, size_t to_count, size_t bytes);

/* Is there still a process with its PID? For one that the kernel lets us look into no more. */
bool process_is_there(const struct process_peer *peer);

/*
 * How many times longer the kernel takes to copy between processes than a copy within one, here
 * and now. Measured once in a process; a fraction of a millisecond.
 */
double process_measure(void);

/* For fork.c: nobody looks at what this process shows. */
void process_offers_lock(void);
void process_offers_unlock(void);

#endif
