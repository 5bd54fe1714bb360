/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * states.pml - the states that the model shares with the C code, and which may follow which.
 * tests/model/test_states.py compares them with provider/transport: change both.
 */

/* enum peer_state */
#define PEER_PRESENT 0
#define PEER_FAILED 1
#define PEER_UNTOLD 2

/* enum peer_renewal */
#define RENEWAL_NONE 0
#define RENEWAL_DRAINS 1
#define RENEWAL_ASKS 2
#define RENEWAL_DONE 3

/* enum network_word */
#define WORD_NONE 0
#define WORD_FIRST 1
#define WORD_SECOND 2

/* enum region_step */
#define REGION_ASKS 0
#define REGION_ANSWERS 1
#define REGION_ENDS 2

/* enum requested_route; ROUTE_RETURN is as ROUTE_REGION */
#define ROUTE_REGION 0
#define ROUTE_NETWORK 1
#define ROUTE_LEAVE 2

/* enum frame_kind */
#define FRAME_SLOTS 1
#define FRAME_HELLO 2
#define FRAME_REFUSE 5
#define FRAME_MOVED 8
#define FRAME_RENEW 9
#define FRAME_PART 10
#define FRAME_REGION 11

/* which may follow which: the tables of provider/transport/states.c */
#define PEER_STATE_FOLLOWS(from, to) ( \
	((from) == PEER_PRESENT && (to) == PEER_FAILED) || \
	((from) == PEER_FAILED && (to) == PEER_PRESENT) || \
	((from) == PEER_FAILED && (to) == PEER_UNTOLD) || \
	((from) == PEER_UNTOLD && (to) == PEER_PRESENT) || \
	((from) == PEER_UNTOLD && (to) == PEER_FAILED))

#define PEER_RENEWAL_FOLLOWS(from, to) ( \
	((from) == RENEWAL_NONE && (to) == RENEWAL_DRAINS) || \
	((from) == RENEWAL_DRAINS && (to) == RENEWAL_ASKS) || \
	((from) == RENEWAL_DRAINS && (to) == RENEWAL_DONE) || \
	((from) == RENEWAL_ASKS && (to) == RENEWAL_DONE))

inline set_state(i, j, new_state)
{
	assert(PEER_STATE_FOLLOWS(OF(i, j).state, new_state));
	OF(i, j).state = new_state
}

inline set_renewal(i, j, new_renewal)
{
	assert(PEER_RENEWAL_FOLLOWS(OF(i, j).renewal, new_renewal));
	OF(i, j).renewal = new_renewal
}
