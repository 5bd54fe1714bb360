/* SPDX-License-Identifier: BSD-3-Clause */
/* return.pml - coming back to a region, and meeting there: reattach.c, network_detach.c. */

/* ---- coming back: reattach.c and network_detach.c ---- */

#define asks_in(r) (r)
#define REGION_SAYS(r, step) ((r) * 4 + (step))

/* network_forget_asking() */
inline forget_asking(i, r)
{
	other = 0;
	do
	:: other < N ->
		OF(i, other).asked_in = OF(i, other).asked_in & (3 - asks_in(r));
		other++
	:: else -> break
	od;
	other = 0
}

/* network_ask_who_is_in(); in OTHER the manager requests only ROUTE_REGION */
#define may_ask(i, j, r) \
	(is_in(i, r) && (r == OTHER || (welcomes[i] && !evicted[i] && requested[i] == ROUTE_REGION)) && \
	 OF(i, j).attachment == NOWHERE && OF(i, j).state == PEER_PRESENT && \
	 OF(i, j).failover == FAILOVER_NONE && is_used(i, j) && (OF(i, j).asked_in & asks_in(r)) == 0 && \
	 (len(NET(i, j)) < NET_ROOM))

inline ask(i, j, r)
{
	NET(i, j)!FRAME_REGION, REGION_SAYS(r, REGION_ASKS), OF(i, j).stream;
	OF(i, j).asked_in = OF(i, j).asked_in | asks_in(r)
}

#define may_answer(i, j) (OF(i, j).owes_region && (len(NET(i, j)) < NET_ROOM))

/* network_answer() */
inline answer_region(i, j)
{
	if
	:: OF(i, j).attachment != NOWHERE ->
		NET(i, j)!FRAME_REGION, REGION_SAYS(OF(i, j).attachment, OF(i, j).answer), OF(i, j).stream
	:: else
	fi;
	OF(i, j).owes_region = 0;
	OF(i, j).answer = 0
}

#define is_there(i, j, r) (OF(i, j).attachment == r && OF(i, j).alias)
#define may_reattach(i, j, r) \
	(OF(i, j).attachment == NOWHERE && OF(i, j).state == PEER_PRESENT && \
	 OF(i, j).failover == FAILOVER_NONE && OF(i, j).network && OF(i, j).framed && !OF(i, j).switching && \
	 !OF(i, j).owes_switched && !(r == HOME && (evicted[i] || usurped[j])) && is_in(j, r))
#define is_welcome(i, j, r) (r == OTHER || (requested[i] == ROUTE_REGION && requested[j] == ROUTE_REGION))

/* network_take_region() and transport_reattach_peer() */
inline take_region(i, j, r, step)
{
	if
	:: !is_in(i, r)
	:: is_in(i, r) && !is_there(i, j, r) && !may_reattach(i, j, r) ->
		skip
	:: is_in(i, r) && !is_there(i, j, r) && may_reattach(i, j, r) && !is_welcome(i, j, r) ->
		welcomes[i] = 1;
		OF(i, j).asked_in = OF(i, j).asked_in & (3 - asks_in(r))
	:: is_in(i, r) && (is_there(i, j, r) || (may_reattach(i, j, r) && is_welcome(i, j, r))) ->
		if
		:: !is_there(i, j, r) ->
			OF(i, j).attachment = r;
			OF(i, j).alias = 1;
			OF(i, j).detach_said = DETACH_NONE;
			OF(i, j).detach_heard = DETACH_NONE;
			OF(i, j).tx_paused = 0;
#ifndef OLD_STAY
			OF(i, j).asked_in = 0;
#endif
			OF(i, j).awaits_reattach = 1
		:: else
		fi;
		if
		:: step != REGION_ASKS -> OF(i, j).awaits_reattach = 0
		:: else
		fi;
		if
		:: step < REGION_ENDS && !is_detaching(i, j) ->
			OF(i, j).answer = step + 1;
			OF(i, j).owes_region = 1
		:: else
		fi
	fi
}
