/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * states.h - the permitted transitions between states of a peer. tests/model/states.pml has the
 * same tables, and a test compares them. Builds with assert() abort at any other transition.
 */
#ifndef VICINAL_TRANSPORT_STATES_H
#define VICINAL_TRANSPORT_STATES_H

#include "transport/transport.h"

/* Indexed by the old and the new state. */
extern const bool peer_state_follows[PEER_ERROR_PENDING + 1][PEER_ERROR_PENDING + 1];
extern const bool peer_failover_follows[FAILOVER_DONE + 1][FAILOVER_DONE + 1];

/* The only way to change a state, except for a peer that was just created. */
void peer_set_state(struct peer *peer, enum peer_state next);
void peer_set_failover(struct peer *peer, enum peer_failover next);

#endif
