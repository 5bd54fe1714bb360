/* SPDX-License-Identifier: BSD-3-Clause */
/* states.c - see states.h. */
#include "transport/states.h"

#include <assert.h>

/* clang-format off */
const bool peer_state_follows[PEER_UNTOLD + 1][PEER_UNTOLD + 1] = {
	[PEER_PRESENT][PEER_FAILED] = true,
	[PEER_FAILED][PEER_PRESENT] = true, /* gone on with, and somebody was told */
	[PEER_FAILED][PEER_UNTOLD] = true,
	[PEER_UNTOLD][PEER_PRESENT] = true,
	[PEER_UNTOLD][PEER_FAILED] = true,
};

const bool peer_renewal_follows[RENEWAL_DONE + 1][RENEWAL_DONE + 1] = {
	[RENEWAL_NONE][RENEWAL_DRAINS] = true,
	[RENEWAL_DRAINS][RENEWAL_ASKS] = true,
	[RENEWAL_DRAINS][RENEWAL_DONE] = true, /* given up */
	[RENEWAL_ASKS][RENEWAL_DONE] = true,
};
/* clang-format on */

void peer_set_state(struct peer *peer, enum peer_state next)
{
	assert(peer_state_follows[peer->state][next]);
	peer->state = next;
}

void peer_set_renewal(struct peer *peer, enum peer_renewal next)
{
	assert(peer_renewal_follows[peer->renewal][next]);
	peer->renewal = next;
}
