/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * states.h - which state of a peer may follow which. tests/model has the same tables in states.pml, and a
 * test compares them. Builds with assert() end at a step that stands in neither.
 */
#ifndef VICINAL_TRANSPORT_STATES_H
#define VICINAL_TRANSPORT_STATES_H

#include "transport/transport.h"

/* By the state before, and the one after it. */
extern const bool peer_state_follows[PEER_ERROR_PENDING + 1][PEER_ERROR_PENDING + 1];
extern const bool peer_failover_follows[FAILOVER_DONE + 1][FAILOVER_DONE + 1];

/* The only way to another state, but for a peer that was just met. */
void peer_set_state(struct peer *peer, enum peer_state next);
void peer_set_failover(struct peer *peer, enum peer_failover next);

#endif
