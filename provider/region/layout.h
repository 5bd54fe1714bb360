/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout.h - every byte that members share, and who may write it.
 *
 * docs/reference/region-format.md describes the format in prose. src/vicinal/region/format.py reads and
 * creates the same bytes from Python. tests/unit/test_layout.c and
 * tests/python/region/test_region_format.py keep the three consistent.
 *
 *    0 ┌──────────────────────────┐ region_header            writer: the creator, once
 *      │ header (one page)        │
 * 4096 ├──────────────────────────┤ member_slot[members]     writer: claim word, see below
 *      │ slot table               │ member_verdict[members]  writer: the host's manager
 *      ├──────────────────────────┤ sections_offset (page aligned)
 *      │ section of member 0      │ writer: member 0, except its doorbell words
 *      ├──────────────────────────┤ + section_bytes
 *      │ section of member 1      │
 *      └──────────────────────────┘ region_bytes
 *
 *   A section:
 *    0 ┌──────────────────────────┐ section_header           writer: the owner
 * 4096 ├──────────────────────────┤ doorbell u32[members]    writer: word j is member j's
 *      │ doorbells                │   (padded to whole lines)
 *      ├──────────────────────────┤ credit_line[members]     writer: the owner, as receiver
 *      │ credit, one line a sender│
 *      ├──────────────────────────┤ connection_line[members] writer: the owner, as sender
 *      │ connections, one a peer  │
 *      ├──────────────────────────┤ transfer_line[REGION_TRANSFERS] writer: the owner
 *      │ transfers of one copy    │
 *      ├──────────────────────────┤
 *      │ arena: rings, chunks     │ writer: the owner, who divides the arena; peers are told
 *      ├──────────────────────────┤   offsets and check them
 *      │ heap, heap_bytes of it   │ the owner's application, and peers that it permits:
 *      └──────────────────────────┘   application memory, whose contents have no format
 *
 * All integers are little endian. Nothing in the region is a pointer. Offsets named "section
 * offset" count from the start of their section.
 */
#ifndef VICINAL_REGION_LAYOUT_H
#define VICINAL_REGION_LAYOUT_H

#include <stddef.h>

#include "region/shared.h"

#define REGION_MAGIC UINT64_C(0x314c414e49434956) /* the bytes "VICINAL1" */
#define REGION_VERSION 3U

#define REGION_PAGE 4096U
#define REGION_LINE 64U

/* 512 = the number of bits in section_header.active, which is one line. */
#define REGION_MEMBERS_MAX 512U
#define REGION_MEMBERS_MIN 2U

/*
 * A section must hold its tables, a ring for each peer and a few chunks. These bounds apply to the
 * part before the heap, because offsets of rings and chunks have 32 bits.
 */
#define REGION_SECTION_MIN (256U * 1024U)
#define REGION_SECTION_MAX (1024U * 1024U * 1024U)
/*
 * The upper bound of heap_bytes: the end of a section that is for the application's memory. 0
 * bytes: no heap.
 */
#define REGION_HEAP_MAX (UINT64_C(1) << 40)

/*
 * The first page. The creator writes it before any other process knows the region. `magic` is
 * stored last, with release order; pairs with the acquire load in region_check_header(). Never
 * changed afterwards.
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
	/*
	 * 0: all bytes are reserved from the beginning. 1: pages of a heap are reserved by its
	 * member before use, and may be given back: see region/backing.h. Only in files that no
	 * guest maps.
	 */
	shared_u32 sparse_heaps; /* 136 */
	shared_bytes reserved[REGION_PAGE - 140];
};
_Static_assert(sizeof(struct region_header) == REGION_PAGE, "the header is one page");
_Static_assert(offsetof(struct region_header, label) == 64, "documented offset");
_Static_assert(offsetof(struct region_header, heap_bytes) == 128, "documented offset");
_Static_assert(offsetof(struct region_header, sparse_heaps) == 136, "documented offset");

/*
 * One line for each slot, so that a join does not invalidate a neighbour's line.
 *
 * claim = epoch << 32 | state. This is the only word in the region that several members may write,
 * always by compare-and-swap. A joiner changes it from the value of a free slot or a dead occupant
 * to (epoch + 1, SLOT_CLAIMED). The winner goes on to SLOT_JOINED, and to SLOT_FREE when it leaves,
 * or first to SLOT_HELD if its application still has memory in the heap. So a member that was taken
 * for dead while it was paused cannot take the slot back from its successor. The move to
 * SLOT_JOINED releases the beginning of the section; pairs with the acquire load in
 * member_identify().
 *
 * The section stays unchanged until the slot is claimed again: data that was read from it is the
 * occupant's if the claim word has the occupant's epoch afterwards.
 */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_CLAIMED = 1, /* claimed, and the section is being written */
	SLOT_JOINED = 2,  /* the section is valid */
	SLOT_HELD = 3,    /* the occupant left, but its process lives and has memory in the heap */
};

/*
 * requested_route = epoch << 32 | enum requested_route: the route between the member with this
 * epoch and all its peers. Any other value: through the region. Writer: only the manager, for
 * `vicinal region detach` and `attach`. It is a request: a member that cannot follow it says so in
 * its connection lines.
 */
enum requested_route {
	ROUTE_REGION = 0,
	ROUTE_NETWORK = 1, /* over the network, and the member stays in the region */
	ROUTE_LEAVE = 2,   /* over the network, and then the member leaves the region */
	ROUTE_RETURN = 3,  /* as ROUTE_REGION, and a member that has left may come back */
};

struct member_slot {
	shared_u64 claim;           /*  0 */
	shared_u64 requested_route; /*  8 */
	shared_bytes reserved[REGION_LINE - 16];
};
_Static_assert(sizeof(struct member_slot) == REGION_LINE, "one line a slot");

/*
 * verdict = epoch << 32 | 1: the host's manager saw the member with this epoch end (its VM was
 * destroyed, or its process was reaped). Writer: only the manager.
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

/* How other members detect the death of a section's owner. */
enum liveness_kind {
	/*
	 * The owner holds a lock on byte `slot` of the region's file. While it checks its peers, it
	 * also increments `heartbeat`, so that its peers need not ask the kernel about the lock:
	 * see member_check_heartbeat().
	 */
	LIVENESS_LOCK = 1,
	LIVENESS_HEARTBEAT = 2, /* the owner increments `heartbeat` ten times a second */
};

/*
 * section_header.sleeping while the owner may sleep: how to wake the owner, and above these bits a
 * number that differs for each sleep, so that no sleep is woken twice.
 */
#define SLEEPING_ON_DOORBELLS 1U /* by FUTEX_WAKE of the waker's own doorbell word */
#define SLEEPING_ON_WORD 2U      /* by FUTEX_WAKE of the word `sleeping` itself */
#define SLEEPING_INTERRUPTED 4U  /* by an interrupt from the device */
#define SLEEPING_FOR_ROOM 8U     /* also when the sleeper gets credit or chunks back */
#define SLEEPING_STEP 16U        /* times the number */

/* Set in section_header.interrupt of a member that receives interrupts and interrupts others. */
#define INTERRUPTIBLE (UINT64_C(1) << 32)

/*
 * Memory in a heap that peers may access by their own loads and stores, under the key of a
 * registration: see region/exposure.h. Writer: the owner of the section. The heap is the heap of
 * the section, or of another endpoint of the same process.
 *
 * sequence: 0 for a line that was never used, which ends the table. Odd while the line has no
 *   exposure or changes. Else the line has an exposure, and each exposure has another value. Stored
 *   after the other words with release order; pairs with the acquire loads in exposure_find() and
 *   exposure_is_valid(). A reader of the other words loads it again afterwards.
 */
#define REGION_EXPOSURES 48U
#define EXPOSED_TO_READ 1U
#define EXPOSED_TO_WRITE 2U

struct exposure_line {
	shared_u64 sequence; /*  0 */
	shared_u64 key;      /*  8 */
	shared_u64 address;  /* 16  the first byte's address for peers */
	shared_u64 length;   /* 24 */
	shared_u64 offset;   /* 32  section offset of the first byte, in the section of `slot` */
	shared_u32 slot;     /* 40  the member that owns the heap */
	shared_u32 epoch;    /* 44 */
	shared_u32 access;   /* 48  EXPOSED_... */
	shared_bytes reserved[REGION_LINE - 52];
};
_Static_assert(sizeof(struct exposure_line) == REGION_LINE, "an exposure is one line");

/*
 * The first page of a section. Writer: the owner. Everything before `active`, and `membarrier`,
 * `process` and `interrupt`, is written before the claim word becomes SLOT_JOINED.
 */
struct section_header {
	/* line 0: identity */
	shared_u64 nonce;      /*  0  random; the same as in the owner's libfabric address */
	shared_u32 epoch;      /*  8  the same as in the claim word */
	shared_u32 liveness;   /* 12  enum liveness_kind */
	shared_u32 rank;       /* 16  rank from the launcher's variables, or ~0; for people */
	shared_u32 pid;        /* 20  in the owner's own PID namespace; for people */
	shared_u32 endpoint;   /* 24  index of this endpoint in its process, from 0; for people */
	shared_u32 arena_used; /* 28  bytes of rings and chunks in use, for people */
	/*
	 * The region that the owner joined first, if it is another region: its id, and the owner's
	 * slot and epoch there, as in its libfabric address. All 0 in the region that the address
	 * names. Stored before SLOT_JOINED; read in member_find().
	 */
	shared_u64 home[2];    /* 32 */
	shared_u32 home_slot;  /* 48 */
	shared_u32 home_epoch; /* 52 */
	/*
	 * 1: the owner came back to a region, and has another nonce in its address. Peers reach it
	 * over the network, and never by this section. Stored before SLOT_JOINED.
	 */
	shared_u32 alias; /* 56 */
	shared_u32 job;   /* 60  the job of the region to which the owner belongs, 0 if unknown; for people */
	/*
	 * line 1: separate, because it changes while other members read line 0. heartbeat changes
	 * while the owner lives: see enum liveness_kind. death_notice = epoch << 32 | slot of the
	 * member whose lock the owner last found free, so that other members check that lock next;
	 * 0: none. Relaxed, because a reader asks the kernel.
	 */
	shared_u64 heartbeat;    /* 64 */
	shared_u64 death_notice; /* 72 */
	shared_bytes reserved1[48];
	/* line 2: host name, NUL padded; for people */
	shared_bytes hostname[64];
	/*
	 * line 3: bit s is set while the owner polls the ring from member s at every poll. If its
	 * bit is clear, a sender increments its doorbell word after sending. Relaxed on both sides:
	 * the owner also polls its cold rings from time to time, so a lost race costs time but
	 * never a message. An owner that goes to sleep clears all bits.
	 */
	shared_u64 active[8];
	/*
	 * line 4: not 0 while the owner may sleep: SLEEPING_..., see region/sleep.h. Relaxed,
	 * because full fences on both sides order it with the doorbells.
	 */
	shared_u32 sleeping; /* 256 */
	/*
	 * 1 if the owner's process takes part in the barriers of the file's kernel; stored before
	 * SLOT_JOINED
	 */
	shared_u32 membarrier; /* 260 */
	/*
	 * Random, the same in the sections of all endpoints of a process, so that an exposure in
	 * one of the sections may lie in the heap of another. Never 0.
	 */
	shared_u64 process; /* 264 */
	/*
	 * INTERRUPTIBLE | the value that is written into a doorbell register of the region's device
	 * to interrupt the owner: the number of its guest << 16 | vector. 0 if the owner receives
	 * no interrupts and interrupts no member. Stored before SLOT_JOINED.
	 */
	shared_u64 interrupt; /* 272 */
	/*
	 * line 5: incremented after a line of `exposures` has a new exposure, with release order;
	 * pairs with the acquire loads in region/exposure.h. A peer that found no line with a key
	 * need not search again until the word changes.
	 */
	shared_bytes reserved2[40];
	shared_u64 exposed; /* 320 */
	shared_bytes reserved3[56];
	/*
	 * line 6: epoch << 32 | slot of the member into whose heap the owner stores at the moment,
	 * or 0. After a full fence, the owner checks that the member still has its slot: see
	 * late_writers.h.
	 */
	shared_u64 reaching; /* 384 */
	shared_bytes reserved4[56];
	/*
	 * line 7: the owner's address in the network, as in its libfabric address: the core
	 * provider's number, bytes of the name << 16, flags << 24; 0 if the owner is in no network.
	 * Stored once, after the name, with release order; pairs with the acquire load in
	 * member_core(). For peers that are to reach the owner over the network.
	 */
	shared_u32 core;            /* 448 */
	shared_bytes core_name[28]; /* 452 */
	/*
	 * Blocks of MPI's windows and of MPI_Alloc_mem() in the owner's heap, while the manager
	 * asks the owner to leave; for people
	 */
	shared_u32 windows; /* 480 */
	shared_bytes reserved5[28];
	/*
	 * line 8: what the owner's process has done by its own loads and stores, without messages
	 * (libvicinal-mpi.so): collectives, the bytes that it wrote in them for others, one-sided
	 * operations, and the bytes that it read or wrote at their targets. For people; only in the
	 * section of the process's first endpoint.
	 */
	shared_u64 collectives;      /* 512 */
	shared_u64 collective_bytes; /* 520 */
	shared_u64 one_sided;        /* 528 */
	shared_u64 one_sided_bytes;  /* 536 */
	shared_bytes reserved6[1024 - 544];
	struct exposure_line exposures[REGION_EXPOSURES]; /* 1024 */
};
_Static_assert(sizeof(struct section_header) == REGION_PAGE, "the section header is one page");
_Static_assert(offsetof(struct section_header, windows) == 480, "documented offset");
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
_Static_assert(offsetof(struct section_header, collectives) == 512, "documented offset");
_Static_assert(offsetof(struct section_header, exposures) == 1024, "documented offset");

/*
 * What the receiver (the owner of this section) returns to one sender, on one line. Writer: the
 * receiver.
 *
 * consumed = connection id << 32 | slots consumed, modulo 2^32. Stored with release order after the
 *   slots were read; pairs with the acquire load in ring_credit(), which permits the sender to
 *   overwrite them. The connection id is odd. An even id, with the lowest bit cleared, says that
 *   the receiver closed the ring, because it took the sender for dead or for a violator, and reads
 *   it no more.
 * returned: one bit for each chunk of the sender. The receiver flips bit c when it is done with
 *   chunk c. Release; pairs with the acquire load in chunk_collect().
 *
 * All bits are cleared before the connection id is first stored. The sender ignores the line until
 * it sees the id that it chose.
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
 * id is zero while there is no ring and while the line changes. It is stored last, with release
 * order; pairs with the acquire load in accept_connection(), which loads it again after the other
 * words and believes them only if the id is the same. A receiver accepts the ring only if
 * receiver_epoch is its own epoch.
 *
 * messages and bytes are for people, and are updated from time to time. route is for the manager
 * and for people: the current route of the owner's messages. Over the network there is no ring, and
 * id is zero.
 *
 * ended is the receiver's epoch if the owner found a protocol violation of that member in the
 * region, and has ended both directions between them there; else 0. Stored with release order,
 * before the owner rings the receiver's doorbell; pairs with the acquire load in
 * transport_read_doorbells(). For pairs that are also in the network: see transport/failover.h.
 */
enum connection_route {
	CONNECTION_BY_REGION = 0,
	CONNECTION_SWITCHING = 1, /* between the two */
	CONNECTION_BY_NETWORK = 2,
	CONNECTION_STAYS = 3, /* requested to use the network, but no network works */
	CONNECTION_ENDED = 4, /* over the network for good: see `ended` */
};

struct connection_line {
	shared_u32 id;             /*  0  random and odd, or zero */
	shared_u32 receiver_epoch; /*  4 */
	shared_u64 ring;           /*  8  section offset of the ring, a multiple of a line */
	shared_u32 slots;          /* 16  slots in the ring, a power of two */
	shared_u32 route;          /* 20  enum connection_route */
	shared_u64 messages;       /* 24  messages sent so far */
	shared_u64 bytes;          /* 32 */
	shared_u32 ended;          /* 40 */
	shared_bytes reserved1[20];
};
_Static_assert(sizeof(struct connection_line) == REGION_LINE, "a connection is one line");

/*
 * How far the owner is with one large message that both ends copy at once, from or into memory of
 * theirs that lies in the region: see proto/single_copy.h. Writer: the owner, as sender or receiver
 * of that message. The other end reads the line, and learns its index from a slot.
 *
 * id is 0 while the line is not in use, else the value from the slot: index | generation << 8. It
 *   is stored after the other words with release order; pairs with the acquire load in
 *   transfer_read().
 * claimed: the receiver copies the bytes before this offset, the sender copies the bytes behind it.
 *   The owner stores it, executes a full fence, and loads the other end's line. If both claim the
 *   same bytes at the same time, at least one of the two sees the other's claim.
 * done: for a sender, the bytes behind this offset are copied. Release, after the bytes.
 * offset: for a sender, the section offset of its buffer if the buffer lies in its heap, else 0.
 * peer: the other end, epoch << 32 | slot. A sender whose `claimed` is less than its `done` may be
 *   writing into that member's heap. See region/late_writers.h.
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
 * What the owner sent to one peer outside the region, over the network. Writer: the owner. For
 * people only: no program acts on these lines. nonce is also in the peer's address, and in the
 * peer's section of its own region, so a reader of several regions can identify the peer; 0 in a
 * line that is not in use. Only the first REGION_NETWORK_LINES peers of the owner have a line.
 */
#define REGION_NETWORK_LINES 128U

struct network_line {
	shared_u64 nonce;    /*  0 */
	shared_u64 messages; /*  8  messages sent so far, updated from time to time */
	shared_u64 bytes;    /* 16 */
	shared_u64 reserved; /* 24 */
};
_Static_assert(sizeof(struct network_line) * 2 == REGION_LINE, "two on a line, which has one writer");

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
 * The minimum length of a section in a region with this many members: its tables, a smallest ring
 * for each member, and some chunks.
 */
#define SECTION_BYTES_MIN(members) \
	(SECTION_ARENA_OFFSET(members) + (size_t)(members)*RING_SLOTS_MIN * REGION_LINE + 128U * 1024U)

/*
 * A ring slot: one line. Writer: the sender. The receiver never writes it.
 *
 * control = lap (16 bits) | kind << 16 (8 bits) | flags << 24 (8 bits) | length << 32. Stored last,
 * with release order; pairs with the acquire load in ring_peek(). A slot is new if its lap is the
 * receiver's current lap. Laps count from 1, and wrap past 0.
 *
 * The meaning of the other 56 bytes depends on the kind: see proto/wire.h.
 */
#define RING_SLOTS_MIN 16U
#define RING_SLOTS_MAX 1024U
#define RING_PAYLOAD 56U

struct ring_slot {
	shared_u64 control;
	shared_u64 word; /* the tag, for a message */
	shared_bytes payload[RING_PAYLOAD - 8];
};
_Static_assert(sizeof(struct ring_slot) == REGION_LINE,
	       "a slot is one line, so that a message is one transfer of a line");

#endif
