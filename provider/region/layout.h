/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout.h - every byte that members share, and who may write it.
 *
 * docs/reference/region-format.md says the same in prose; src/vicinal/region/format.py reads and
 * creates the same bytes from Python; tests/unit/test_layout.c and
 * tests/python/region/test_region_format.py hold the three together.
 *
 *   0 ┌──────────────────────────┐ region_header            writer: the creator, once
 *     │ header (one page)        │
 *4096 ├──────────────────────────┤ member_slot[members]     writer: claim word, see below
 *     │ slot table               │ member_verdict[members]  writer: the host's manager
 *     ├──────────────────────────┤ sections_offset (page aligned)
 *     │ section of member 0      │ writer: member 0, but for its doorbell words
 *     ├──────────────────────────┤ + section_bytes
 *     │ section of member 1      │
 *     └──────────────────────────┘ region_bytes
 *
 *   A section:
 *   0 ┌──────────────────────────┐ section_header           writer: the owner
 *4096 ├──────────────────────────┤ doorbell u32[members]    writer: word j is member j's
 *     │ doorbells                │   (padded to whole lines)
 *     ├──────────────────────────┤ credit_line[members]     writer: the owner, as receiver
 *     │ credit, one line a sender│
 *     ├──────────────────────────┤ connection_line[members] writer: the owner, as sender
 *     │ connections, one a peer  │
 *     ├──────────────────────────┤ transfer_line[REGION_TRANSFERS] writer: the owner
 *     │ transfers of one copy    │
 *     ├──────────────────────────┤
 *     │ arena: rings, chunks     │ writer: the owner; divided up as it likes, peers are
 *     ├──────────────────────────┤   told offsets and check them
 *     │ heap, heap_bytes of it   │ the owner's application, and peers that it let access it:
 *     └──────────────────────────┘   its memory, of which the format says nothing
 *
 * All integers are little endian. Nothing in the region is a pointer. Offsets named
 * "section offset" count from the start of the section they lie in.
 */
#ifndef VICINAL_REGION_LAYOUT_H
#define VICINAL_REGION_LAYOUT_H

#include <stddef.h>

#include "region/shared.h"

#define REGION_MAGIC UINT64_C(0x314c414e49434956) /* the bytes "VICINAL1" */
#define REGION_VERSION 1U

#define REGION_PAGE 4096U
#define REGION_LINE 64U

/* 512 = the bits of the one line that section_header.active takes. */
#define REGION_MEMBERS_MAX 512U
#define REGION_MEMBERS_MIN 2U

/*
 * A section must hold its tables, a ring for every peer and a few chunks. These bounds are
 * of what comes before the heap: offsets of rings and chunks have 32 bits.
 */
#define REGION_SECTION_MIN (256U * 1024U)
#define REGION_SECTION_MAX (1024U * 1024U * 1024U)
/* The end of a section that the application's memory may lie in; none if zero. */
#define REGION_HEAP_MAX (UINT64_C(1) << 40)

/*
 * The first page. Written by the creator before anybody else knows of the region;
 * `magic` is stored last, with release order, and pairs with the acquire load in
 * region_attach(). Read-only for ever after.
 */
struct region_header {
	shared_u64 magic;           /*   0  REGION_MAGIC */
	shared_u32 version;         /*   8  REGION_VERSION */
	shared_u32 members;         /*  12  number of member slots */
	shared_u64 region_bytes;    /*  16  the whole region */
	shared_u64 id[2];           /*  24  random, names this region */
	shared_u64 section_bytes;   /*  40  multiple of REGION_PAGE, the heap included */
	shared_u64 sections_offset; /* 48  region offset of section 0, page aligned */
	shared_u64 created;         /*  56  seconds since 1970 by the creator's clock; for people */
	shared_bytes label[64];     /*  64  job name, NUL padded; for people */
	shared_u64 heap_bytes;      /* 128  the end of each section, multiple of REGION_PAGE */
	shared_bytes reserved[REGION_PAGE - 136];
};
_Static_assert(sizeof(struct region_header) == REGION_PAGE, "the header is one page");
_Static_assert(offsetof(struct region_header, label) == 64, "documented offset");
_Static_assert(offsetof(struct region_header, heap_bytes) == 128, "documented offset");

/*
 * One line a member slot, so that a join never disturbs a neighbour.
 *
 * claim = epoch << 32 | state. The only word in the region that several members may
 * write, always by compare-and-swap: a joiner moves it from a free or a dead occupant's
 * value to (epoch + 1, SLOT_CLAIMED); the winner goes on to SLOT_JOINED, and to SLOT_FREE
 * when it leaves, by way of SLOT_HELD if its application still has memory in the heap. So
 * one that was taken for dead while it was paused cannot take the slot back from its
 * successor. Moving to SLOT_JOINED releases the section's beginning, and
 * pairs with the acquire load in member_identify().
 *
 * The section stays as it was left until the slot is claimed again: what is read from it
 * is the occupant's as long as the claim word has the occupant's epoch afterwards.
 */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_CLAIMED = 1, /* won, its section is being written */
	SLOT_JOINED = 2,  /* its section is valid */
	SLOT_HELD = 3,    /* it left, but its process lives and has memory in its heap */
};

/*
 * requested_route = epoch << 32 | enum requested_route: how the member with this epoch is to be reached, by
 * all its peers, and reaches them. Anything else: through the region. Writer: the manager alone, for `vicinal
 * region detach` and `attach`. It is a request: a member that cannot says so in its connection lines.
 */
enum requested_route {
	ROUTE_REGION = 0,
	ROUTE_NETWORK = 1, /* over the network, and it stays a member */
	ROUTE_LEAVE = 2,   /* over the network, and then it leaves the region */
	ROUTE_RETURN = 3,  /* as ROUTE_REGION, and if it has left, it may come back */
};

struct member_slot {
	shared_u64 claim;           /*  0 */
	shared_u64 requested_route; /*  8 */
	shared_bytes reserved[REGION_LINE - 16];
};
_Static_assert(sizeof(struct member_slot) == REGION_LINE, "one line a slot");

/*
 * verdict = epoch << 32 | 1 : the host's manager saw the member with this epoch end (its
 * VM was destroyed, its process reaped). Writer: the manager alone.
 */
struct member_verdict {
	shared_u64 verdict;
};

#define REGION_SLOTS_OFFSET REGION_PAGE
#define REGION_VERDICTS_OFFSET(members) (REGION_SLOTS_OFFSET + (size_t)(members) * sizeof(struct member_slot))
#define REGION_SECTIONS_OFFSET(members) \
	REGION_ROUND_UP(REGION_VERDICTS_OFFSET(members) + (size_t)(members) * sizeof(struct member_verdict), \
			REGION_PAGE)
#define REGION_ROUND_UP(value, unit) (((size_t)(value) + (unit)-1) / (unit) * (unit))

/* How other members find out that the owner of a section died. */
enum liveness_kind {
	/*
	 * It holds a lock on byte `slot` of the region's file. While it checks its peers it counts
	 * `heartbeat` up as well, so that its peers need not ask the kernel about the lock: see
	 * member_check_heartbeat().
	 */
	LIVENESS_LOCK = 1,
	LIVENESS_HEARTBEAT = 2, /* it counts `heartbeat` up, ten times a second */
};

/*
 * section_header.sleeping while the owner may sleep: how it can be woken, and above that a
 * number that is another for each sleep, so that nobody wakes it twice.
 */
#define SLEEPING_ON_DOORBELLS 1U /* by FUTEX_WAKE of the waker's own doorbell word */
#define SLEEPING_ON_WORD 2U      /* by FUTEX_WAKE of the word `sleeping` itself */
#define SLEEPING_INTERRUPTED 4U  /* by an interrupt of the device */
#define SLEEPING_FOR_ROOM 8U     /* also when it is given credit or chunks back */
#define SLEEPING_STEP 16U        /* times the number */

/* section_header.interrupt of a member that can be interrupted, and interrupts others. */
#define INTERRUPTIBLE (UINT64_C(1) << 32)

/*
 * Memory in a heap that peers may reach by loads and stores of their own, under the key of a
 * registration: see region/exposure.h. Writer: the owner of the section. The heap is that of
 * the section, or of another endpoint of the same process.
 *
 * sequence: 0 for a line that was never used, which ends the table; odd while there is nothing,
 *   or the line changes; else there is an exposure, and each has another. Released after the
 *   other words; pairs with the acquire loads in exposure_find() and exposure_is_valid(). Who
 *   reads the others loads it once more afterwards.
 */
#define REGION_EXPOSURES 48U
#define EXPOSED_TO_READ 1U
#define EXPOSED_TO_WRITE 2U

struct exposure_line {
	shared_u64 sequence; /*  0 */
	shared_u64 key;      /*  8 */
	shared_u64 address;  /* 16  what peers call the first byte */
	shared_u64 length;   /* 24 */
	shared_u64 offset;   /* 32  section offset of the first byte, in the section of `slot` */
	shared_u32 slot;     /* 40  the member whose heap it is */
	shared_u32 epoch;    /* 44 */
	shared_u32 access;   /* 48  EXPOSED_... */
	shared_bytes reserved[REGION_LINE - 52];
};
_Static_assert(sizeof(struct exposure_line) == REGION_LINE, "an exposure is one line");

/*
 * The first page of a section. Writer: the owner. Everything up to `active` is written
 * before the claim word becomes SLOT_JOINED, and `membarrier`, `process` and `interrupt`.
 */
struct section_header {
	/* line 0: identity */
	shared_u64 nonce;      /*  0  random; the same as in the owner's libfabric address */
	shared_u32 epoch;      /*  8  the same as in the claim word */
	shared_u32 liveness;   /* 12  enum liveness_kind */
	shared_u32 rank;       /* 16  rank by the launcher's variables, or ~0; for people */
	shared_u32 pid;        /* 20  in the owner's own PID namespace; for people */
	shared_u32 endpoint;   /* 24  which endpoint of its process this is, from 0; for people */
	shared_u32 arena_used; /* 28  bytes of rings and chunks in use, for people */
	/*
	 * Where the owner is first, if that is another region: its id, and the owner's slot and epoch
	 * there, as in its libfabric address. All 0 in the region that the address names. Before
	 * SLOT_JOINED; read in member_find().
	 */
	shared_u64 home[2];    /* 32 */
	shared_u32 home_slot;  /* 48 */
	shared_u32 home_epoch; /* 52 */
	/*
	 * 1: the owner came back to a region, and has another nonce in its address: it is met over the
	 * network, and never by this section. Before SLOT_JOINED.
	 */
	shared_u32 alias; /* 56 */
	shared_u32 job;   /* 60  which job of the region's the owner belongs to, 0 if unknown; for people */
	/*
	 * line 1: on a line of its own since it changes while others read line 0. heartbeat changes while the
	 * owner lives: see enum liveness_kind. death_notice = epoch << 32 | slot of the member whose lock the
	 * owner found free last, so that others ask for it next; 0: none. Relaxed: who reads it asks the
	 * kernel.
	 */
	shared_u64 heartbeat;    /* 64 */
	shared_u64 death_notice; /* 72 */
	shared_bytes reserved1[48];
	/* line 2: host name, NUL padded; for people */
	shared_bytes hostname[64];
	/*
	 * line 3: bit s is set while the owner polls the ring from member s at every poll.
	 * A sender that finds its bit clear bumps its doorbell word after sending.
	 * Relaxed on both sides: the owner also polls its cold rings now and then, so a
	 * lost race costs time, never a message. An owner that goes to sleep clears all.
	 */
	shared_u64 active[8];
	/*
	 * line 4: not 0 while the owner may sleep: SLEEPING_..., see region/sleep.h. Relaxed: full fences on
	 * both sides order it with the doorbells.
	 */
	shared_u32 sleeping; /* 256 */
	/* 1 if the owner's process answers the barriers of the file's kernel; before SLOT_JOINED */
	shared_u32 membarrier; /* 260 */
	/*
	 * Random, the same in the sections of all endpoints of a process, so that an exposure in one
	 * of them may be in the heap of another. Never 0.
	 */
	shared_u64 process; /* 264 */
	/*
	 * INTERRUPTIBLE | what is written into a doorbell register of the region's device to interrupt the
	 * owner: the number of its guest << 16 | vector. 0 if it is not interrupted, and interrupts nobody.
	 * Before SLOT_JOINED.
	 */
	shared_u64 interrupt; /* 272 */
	/*
	 * line 5: counts up when a line of `exposures` has got something new, after it: release,
	 * pairs with the acquire loads in region/exposure.h. Who found no line with a key need not
	 * look again until it changes.
	 */
	shared_bytes reserved2[40];
	shared_u64 exposed; /* 320 */
	shared_bytes reserved3[56];
	/*
	 * line 6: epoch << 32 | slot of the member into whose heap the owner stores just now, or 0. Then
	 * there is a full fence, and the owner looks whether that member has its slot: see late_writers.h.
	 */
	shared_u64 reaching; /* 384 */
	shared_bytes reserved4[56];
	/*
	 * line 7: where the owner is in the network, as in its address: the core's number, bytes of the
	 * name << 16, flags << 24; 0 if it is in none. Released once, after the name; pairs with the acquire
	 * load in member_core(). For peers that are to reach it another way.
	 */
	shared_u32 core;            /* 448 */
	shared_bytes core_name[28]; /* 452 */
	shared_bytes reserved5[1024 - 480];
	struct exposure_line exposures[REGION_EXPOSURES]; /* 1024 */
};
_Static_assert(sizeof(struct section_header) == REGION_PAGE, "the section header is one page");
_Static_assert(offsetof(struct section_header, home) == 32, "documented offset");
_Static_assert(offsetof(struct section_header, home_slot) == 48, "documented offset");
_Static_assert(offsetof(struct section_header, home_epoch) == 52, "documented offset");
_Static_assert(offsetof(struct section_header, alias) == 56, "documented offset");
_Static_assert(offsetof(struct section_header, heartbeat) == 64, "documented offset");
_Static_assert(offsetof(struct section_header, death_notice) == 72, "documented offset");
_Static_assert(offsetof(struct section_header, hostname) == 128, "documented offset");
_Static_assert(offsetof(struct section_header, active) == 192, "documented offset");
_Static_assert(offsetof(struct section_header, sleeping) == 256, "documented offset");
_Static_assert(offsetof(struct section_header, membarrier) == 260, "documented offset");
_Static_assert(offsetof(struct section_header, process) == 264, "documented offset");
_Static_assert(offsetof(struct section_header, interrupt) == 272, "documented offset");
_Static_assert(offsetof(struct section_header, exposed) == 320, "documented offset");
_Static_assert(offsetof(struct section_header, reaching) == 384, "documented offset");
_Static_assert(offsetof(struct section_header, core) == 448, "documented offset");
_Static_assert(offsetof(struct section_header, core_name) == 452, "documented offset");
_Static_assert(offsetof(struct section_header, exposures) == 1024, "documented offset");

/*
 * What the receiver (the owner of this section) gives back to one sender, on one line.
 * Writer: the receiver.
 *
 * consumed = connection id << 32 | slots consumed, modulo 2^32. Stored with release
 *   order after the slots were read; pairs with the acquire load in ring_credit(), which
 *   lets the sender overwrite them. The connection id is odd; with its lowest bit cleared
 *   it says that the receiver closed the ring, because it took the sender for dead or for
 *   a violator, and reads no more.
 * returned: one bit for each chunk of the sender. The receiver flips bit c when it has
 *   done with chunk c; release, pairs with the acquire load in chunk_collect().
 * All bits are cleared before the connection id is first stored, and the sender takes
 * no notice of the line until it sees the id that it chose.
 */
#define REGION_CHUNKS_MAX 448U

struct credit_line {
	shared_u64 consumed;
	shared_u64 returned[REGION_CHUNKS_MAX / 64];
};
_Static_assert(sizeof(struct credit_line) == REGION_LINE, "a sender's credit is one line");

/*
 * How one sender (the owner of this section) reaches one receiver. Writer: the sender.
 *
 * id is zero while there is no ring or while the line changes. It is stored last, with
 * release order; pairs with the acquire load in accept_connection(), which loads it once
 * more after the others and believes them only if it is the same. A receiver takes the
 * ring only if receiver_epoch is its own epoch.
 * messages and bytes are for people, brought up to date now and then. route is for the manager and for
 * people: how what the owner sends goes now. Over the network there is no ring, and id is zero.
 * ended is the receiver's epoch once the owner has found in the region, of that member, what cannot be,
 * and has nothing to do with it there any more, in either direction; else 0. The owner rings the
 * receiver's doorbell after it, with release order; pairs with the acquire load in
 * transport_read_doorbells(). For those that are in the network too: see transport/failover.h.
 */
enum connection_route {
	CONNECTION_BY_REGION = 0,
	CONNECTION_SWITCHING = 1, /* from one to the other */
	CONNECTION_BY_NETWORK = 2,
	CONNECTION_STAYS = 3, /* it is to go over the network, and there is none that works */
	CONNECTION_ENDED = 4, /* over the network for good: see `ended` */
};

struct connection_line {
	shared_u32 id;             /*  0  random and odd, or zero */
	shared_u32 receiver_epoch; /*  4 */
	shared_u64 ring;           /*  8  section offset of the ring, a multiple of a line */
	shared_u32 slots;          /* 16  slots in the ring, a power of two */
	shared_u32 route;          /* 20  enum connection_route */
	shared_u64 messages;       /* 24  sent so far */
	shared_u64 bytes;          /* 32 */
	shared_u32 ended;          /* 40 */
	shared_bytes reserved1[20];
};
_Static_assert(sizeof(struct connection_line) == REGION_LINE, "a connection is one line");

/*
 * How far the owner is with one large message that both ends copy at once, from or into memory
 * of theirs that lies in the region: see proto/single_copy.h. Writer: the owner, as sender or
 * as receiver of that message. The other end reads it, and is told its index in a slot.
 *
 * id is 0 while the line is not in use, and else what the slot said: index | generation << 8. It
 *   is released after the others, and pairs with the acquire load in transfer_read().
 * claimed: the receiver is copying what is before this offset, the sender what is behind it.
 *   Stored, then a full fence, then the other's line is loaded: one of two that claim the same
 *   bytes at the same time sees the other.
 * done: of a sender, that what is behind this offset is copied. Release, after the bytes.
 * offset: of a sender, the section offset of its buffer, if it lies in its heap, else 0.
 * peer: whose line is the other one, epoch << 32 | slot: a sender whose `claimed` is less than its
 *   `done` may be writing into that one's heap. See region/late_writers.h.
 */
#define REGION_TRANSFERS 128U

struct transfer_line {
	shared_u64 id;
	shared_u64 claimed;
	shared_u64 done;
	shared_u64 offset;
	shared_u64 peer;
	shared_bytes reserved[REGION_LINE - 40];
};
_Static_assert(sizeof(struct transfer_line) == REGION_LINE, "a transfer is one line");

/*
 * What the owner sent to one peer beyond the region, over the network. Writer: the owner. For people: the
 * lines say nothing that anybody acts on. nonce is in the peer's address, and in its section of its own
 * region, which is how who looks at several regions finds out whom it means; 0 in a line that is not
 * in use. Peers after the first REGION_NETWORK_LINES that the owner met have none.
 */
#define REGION_NETWORK_LINES 128U

struct network_line {
	shared_u64 nonce;    /*  0 */
	shared_u64 messages; /*  8  sent so far, brought up to date now and then */
	shared_u64 bytes;    /* 16 */
	shared_u64 reserved; /* 24 */
};
_Static_assert(sizeof(struct network_line) * 2 == REGION_LINE, "two on a line: nobody else writes there");

#define SECTION_DOORBELLS_OFFSET REGION_PAGE
#define SECTION_CREDITS_OFFSET(members) \
	REGION_ROUND_UP(SECTION_DOORBELLS_OFFSET + (size_t)(members) * sizeof(shared_u32), REGION_LINE)
#define SECTION_CONNECTIONS_OFFSET(members) \
	(SECTION_CREDITS_OFFSET(members) + (size_t)(members) * sizeof(struct credit_line))
#define SECTION_TRANSFERS_OFFSET(members) \
	(SECTION_CONNECTIONS_OFFSET(members) + (size_t)(members) * sizeof(struct connection_line))
#define SECTION_NETWORK_OFFSET(members) \
	(SECTION_TRANSFERS_OFFSET(members) + REGION_TRANSFERS * sizeof(struct transfer_line))
#define SECTION_ARENA_OFFSET(members) \
	REGION_ROUND_UP(SECTION_NETWORK_OFFSET(members) + \
				REGION_NETWORK_LINES * sizeof(struct network_line), \
			REGION_PAGE)

/*
 * The least that a section of a region with so many members may have: its tables, a
 * smallest ring for everybody, and room for some chunks.
 */
#define SECTION_BYTES_MIN(members) \
	(SECTION_ARENA_OFFSET(members) + (size_t)(members)*RING_SLOTS_MIN * REGION_LINE + 128U * 1024U)

/*
 * A ring slot: one line. Writer: the sender. The receiver never writes it.
 *
 * control = lap (16 bits) | kind << 16 (8 bits) | flags << 24 (8 bits) | length << 32.
 * Stored last, with release order; pairs with the acquire load in ring_peek(). A slot is
 * new when its lap is the receiver's current lap; laps count from 1, and wrap past 0.
 * What the other 56 bytes mean depends on the kind: see proto/wire.h.
 */
#define RING_SLOTS_MIN 16U
#define RING_SLOTS_MAX 1024U
#define RING_PAYLOAD 56U

struct ring_slot {
	shared_u64 control;
	shared_u64 word; /* the tag, for a message */
	shared_bytes payload[RING_PAYLOAD - 8];
};
_Static_assert(sizeof(struct ring_slot) == REGION_LINE, "a slot is one line: one transfer a message");

#endif
