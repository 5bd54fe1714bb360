/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup.h - what the members of a communicator tell each other before they exchange data: where their blocks
 * lie, and their staging buffers (communicator_stage()).
 */
#ifndef VICINAL_COLLECTIVES_SETUP_H
#define VICINAL_COLLECTIVES_SETUP_H

#include "collectives/communicator.h"

/*
 * Two exchanges of messages, the second of which makes sure that all members decide the same. `block` is this
 * member's, or NULL. Returns whether each member has one; then the communicator knows them.
 */
bool setup_exchange(struct communicator *communicator, struct block *block);

/* Releases the block and the staging buffer. */
void setup_release(struct communicator *communicator);

/* Ends the process. The other members are not told, and would wait for this one for ever. */
_Noreturn void setup_no_memory(int size);

#endif
