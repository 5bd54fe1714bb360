/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * states.pml - the states that the model shares with the C code, and the allowed steps between them.
 * tests/model/test_states.py compares them with provider/transport: change both.
 */

/* enum peer_state */
#define PEER_PRESENT 0
#define PEER_FAILED 1
#define PEER_ERROR_PENDING 2

/* enum peer_failover */
#define FAILOVER_NONE 0
#define FAILOVER_DRAINING 1
#define FAILOVER_ASKING 2
#define FAILOVER_DONE 3

/* enum detach_progress */
#define DETACH_NONE 0
#define DETACH_FIRST 1
#define DETACH_SECOND 2

/* enum region_step */
#define REGION_ASKS 0
#define REGION_ANSWERS 1
#define REGION_ENDS 2

/* enum requested_route; ROUTE_RETURN is modelled as ROUTE_REGION */
#define ROUTE_REGION 0
#define ROUTE_NETWORK 1
#define ROUTE_LEAVE 2

/* enum frame_kind */
#define FRAME_SLOTS 1
#define FRAME_HELLO 2
#define FRAME_REFUSE 5
#define FRAME_SWITCHED 8
#define FRAME_FAILOVER 9
#define FRAME_DETACH 10
#define FRAME_REGION 11

/* allowed steps: the tables of provider/transport/states.c */
#define PEER_STATE_FOLLOWS(from, to) ( \
	((from) == PEER_PRESENT && (to) == PEER_FAILED) || \
	((from) == PEER_FAILED && (to) == PEER_PRESENT) || \
	((from) == PEER_FAILED && (to) == PEER_ERROR_PENDING) || \
	((from) == PEER_ERROR_PENDING && (to) == PEER_PRESENT) || \
	((from) == PEER_ERROR_PENDING && (to) == PEER_FAILED))

#define PEER_FAILOVER_FOLLOWS(from, to) ( \
	((from) == FAILOVER_NONE && (to) == FAILOVER_DRAINING) || \
	((from) == FAILOVER_DRAINING && (to) == FAILOVER_ASKING) || \
	((from) == FAILOVER_DRAINING && (to) == FAILOVER_DONE) || \
	((from) == FAILOVER_ASKING && (to) == FAILOVER_DONE))

inline set_state(i, j, new_state)
{
	assert(PEER_STATE_FOLLOWS(OF(i, j).state, new_state));
	OF(i, j).state = new_state
}

inline set_failover(i, j, new_failover)
{
	assert(PEER_FAILOVER_FOLLOWS(OF(i, j).failover, new_failover));
	OF(i, j).failover = new_failover
}
