/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * block.h - the memory by which the members of a communicator exchange data: one block for each member, in
 * the heap of that member's section.
 *
 * Each word has one writer, the owner of the block. There is no lock and no read-modify-write.
 *
 *    0 ┌───────────────┐ done       steps that the owner has completed, and the communicator's number
 *   64 ├───────────────┤ closed     the last collective that the members do by their blocks
 *  128 ├───────────────┤ cell[0]    what the owner published in steps 0, 16, 32 ...
 *      │               │ cell[1]    ... in steps 1, 17, 33 ...
 *      └───────────────┘ BLOCK_BYTES
 *
 * The members of a communicator count the steps of its collectives, so all have the same number for a step.
 * In a step, a member may publish data in a cell, and reads the cells of others. `control` has the number of
 * the step, and is stored last. Short data lies on the same line, so that it costs one transfer of a line.
 *
 * A cell is used again CELLS steps later, after all members have completed its last step. Each member
 * publishes in `done` how many steps it has completed. A step in which a member reads the cells of all others
 * shows it that they have completed the step before. So `done` is read only after CELLS steps without such a
 * step, for example in a stream of broadcasts.
 *
 * Peers are hostile input. A word is loaded once. Whatever a peer writes can change only the values that the
 * application receives: all lengths, offsets and bounds are private, or are loaded once and checked
 * against private limits before they are used (verdict.h).
 */
#ifndef VICINAL_COLLECTIVES_BLOCK_H
#define VICINAL_COLLECTIVES_BLOCK_H

#include "region/shared.h"

/*
 * So far may a member that only sends be ahead of the slowest one. With 4 cells, streams of broadcasts and
 * reductions took twice as long: docs/decisions/0036.
 */
#define CELLS 16U
#define BLOCK_BYTES 8192U
#define CELL_BYTES 448U /* 7 lines: two lines and sixteen cells are less than two pages */
#define CELL_DATA (CELL_BYTES - 16U)
/* Data that fits beside the words of a cell in one line. */
#define LINE_DATA 48U

struct cell {
	shared_u64 control; /* the number of the step; 0: never used */
	shared_u64 kind;    /* what the owner does in this step: see step_kind() */
	shared_bytes data[CELL_DATA];
};

struct block {
	/* Written in this order, with release order, when a communicator begins to use the block. */
	shared_u64 number; /* the communicator's; another number: the owner has released the block */
	shared_u64 done;
	shared_bytes reserved1[48];
	/*
	 * Not 0: a member must leave the region. One more than the number of collectives that the owner has
	 * begun. The owner begins no more through the region than the member that has begun the most. Stored
	 * once.
	 */
	shared_u64 closed;
	/*
	 * Not 0: the owner knows the words `closed` of all, and this is the greatest. No member releases a
	 * block of a closed communicator before all know. Stored once.
	 */
	shared_u64 agreed;
	shared_bytes reserved2[48];
	struct cell cells[CELLS];
};
_Static_assert(sizeof(struct cell) == CELL_BYTES, "a cell is whole lines");
_Static_assert(offsetof(struct block, cells) % 64 == 0 && sizeof(struct block) <= BLOCK_BYTES,
	       "a block is two pages");

/*
 * A staging buffer has one piece for each cell, for data that is longer than a cell. A member whose heap has
 * no room takes shorter pieces; all members use the shortest. Pieces of 8 KiB took up to twice as long as
 * these for 64 KiB: docs/decisions/0036.
 */
#define STAGING_PIECE 32768U
#define STAGING_PIECE_MIN 1024U
/* With shorter pieces, data in more pieces than this goes by messages. */
#define SHORT_PIECES_MAX 4

#endif
