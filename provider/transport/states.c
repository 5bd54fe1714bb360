/* SPDX-License-Identifier: BSD-3-Clause */
/* states.c - see states.h. */
#include "transport/states.h"

#include <assert.h>

/* clang-format off */
const bool peer_state_follows[PEER_ERROR_PENDING + 1][PEER_ERROR_PENDING + 1] = {
	[PEER_PRESENT][PEER_FAILED] = true,
	[PEER_FAILED][PEER_PRESENT] = true, /* the peer fails over, and the failure was reported */
	[PEER_FAILED][PEER_ERROR_PENDING] = true,
	[PEER_ERROR_PENDING][PEER_PRESENT] = true,
	[PEER_ERROR_PENDING][PEER_FAILED] = true,
};

const bool peer_failover_follows[FAILOVER_DONE + 1][FAILOVER_DONE + 1] = {
	[FAILOVER_NONE][FAILOVER_DRAINING] = true,
	[FAILOVER_DRAINING][FAILOVER_ASKING] = true,
	[FAILOVER_DRAINING][FAILOVER_DONE] = true, /* given up */
	[FAILOVER_ASKING][FAILOVER_DONE] = true,
};
/* clang-format on */

void peer_set_state(struct peer *peer, enum peer_state next)
{
	assert(peer_state_follows[peer->state][next]);
	peer->state = next;
}

void peer_set_failover(struct peer *peer, enum peer_failover next)
{
	assert(peer_failover_follows[peer->failover][next]);
	peer->failover = next;
}
