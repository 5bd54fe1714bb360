/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * broker.h - a region that a broker hands out: what a member and a broker say to each other, and
 * the member's side. provider/broker is the other side; docs/reference/broker.md describes both.
 *
 * Over a socket of the kind SOCK_SEQPACKET, the member sends one request, and the broker one answer.
 * An answer that grants the region carries one descriptor of its memory, and nothing else does.
 * Then the broker closes the connection: no member needs the broker afterwards.
 *
 * All fields are little endian. A later version keeps the meaning of the first 16 bytes.
 */
#ifndef VICINAL_REGION_BROKER_H
#define VICINAL_REGION_BROKER_H

#include <fcntl.h>
#include <sys/stat.h>

#include "region/region.h"

#define BROKER_MAGIC UINT64_C(0x52454b4f52424356) /* the bytes "VCBROKER" */
#define BROKER_VERSION 1U
#define BROKER_REASON_BYTES 240U

#ifndef F_SEAL_FUTURE_WRITE /* headers older than Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* A member can neither shrink nor grow its memory, nor take these seals away. */
#define BROKER_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/* With one of these seals, members could not write. */
#define BROKER_NO_SEALS (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

enum broker_purpose {
	BROKER_JOIN = 1,   /* to become a member: refused if no slot is free */
	BROKER_LOOK = 2,   /* to read: the descriptor is read-only */
	BROKER_MANAGE = 3, /* to write what the manager of a region writes */
};

enum broker_verdict {
	BROKER_GRANTED = 0,
	BROKER_REFUSED = 1,       /* the broker's rules do not allow this process */
	BROKER_FULL = 2,          /* living members have all slots */
	BROKER_OTHER_VERSION = 3, /* `version` of the answer is the broker's */
	BROKER_UNABLE = 4,        /* the broker cannot hand out its memory now */
};

struct broker_request {
	uint64_t magic;
	uint32_t version;
	uint32_t purpose;
};

struct broker_answer {
	uint64_t magic;
	uint32_t version;
	uint32_t verdict;
	char reason[BROKER_REASON_BYTES]; /* for the user, unless granted; padded with NUL */
};

_Static_assert(sizeof(struct broker_request) == 16, "a request has no padding");
_Static_assert(sizeof(struct broker_answer) == 256, "an answer has no padding");

/*
 * Get a new descriptor of the memory of the region that the broker at the socket `path` hands out.
 * Each call gets an open file description of its own. Takes at most `milliseconds`, whatever the
 * broker does. Returns 0 and a descriptor, or a negative errno and a text: -ENOENT without a socket,
 * -ECONNREFUSED if no broker listens any more. The descriptor is not checked.
 */
int broker_fetch(const char *path, enum broker_purpose purpose, uint32_t milliseconds, int *descriptor,
		 struct region_error *error);

/*
 * Check a descriptor that a broker sent: it is memory that no process can truncate, and that this
 * process can read and write. Fills in `status`. Returns 0, or a negative errno and a text.
 */
int broker_check(int descriptor, const char *path, struct stat *status, struct region_error *error);

#endif
