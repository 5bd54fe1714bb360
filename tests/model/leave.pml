/* SPDX-License-Identifier: BSD-3-Clause */
/* leave.pml - detaching from a region, and leaving the region: detach.c, network_detach.c. */

/* ---- leaving: detach.c and network_detach.c ---- */

#define is_requested(i, j) (OF(i, j).attachment == HOME && (requested[i] == ROUTE_LEAVE || requested[j] == ROUTE_LEAVE))
/* an answer to REGION goes before DETACH; otherwise it would call back a peer from which we detach */
#ifdef OLD_STAY
#define owes_answer(i, j) 0
#else
#define owes_answer(i, j) OF(i, j).owes_region
#endif
#define is_out_of_region(i, j) \
	(!owes_answer(i, j) && !OF(i, j).switching && !OF(i, j).owes_switched && !OF(i, j).receiving && \
	 (OF(i, j).network || !OF(i, j).sending))
#define own_word(i, j) (OF(i, j).detach_heard == DETACH_NONE -> DETACH_FIRST : DETACH_SECOND)

#define may_detach(i, j) \
	(may_begin(i, j) && (is_requested(i, j) || is_detaching(i, j)) && is_proved(i, j) && \
	 is_out_of_region(i, j) && (len(NET(i, j)) < NET_ROOM) && \
	 (!OF(i, j).network || OF(i, j).detach_said < own_word(i, j)))

/* transport_detach_peer() and network_detach() */
inline detach(i, j)
{
	if
	:: !OF(i, j).network ->
		enter_network(i, j);
		OF(i, j).tx_paused = (OF(i, j).detach_heard != DETACH_SECOND)
	:: else
	fi;
	word = own_word(i, j);
	if
	:: OF(i, j).detach_said < word ->
		NET(i, j)!FRAME_DETACH, OF(i, j).attachment * 2 + (word == DETACH_SECOND), OF(i, j).stream;
		OF(i, j).detach_said = word
	:: else
	fi;
	word = 0;
	if
	:: OF(i, j).detach_said == DETACH_SECOND ->
#ifndef OLD_STAY
		welcomes[i] = welcomes[i] || (OF(i, j).attachment == HOME && !leaving[i]);
#endif
		forget_slot(i, j)
	:: else
	fi
}

#ifdef OLD_STAY
#define MAY_SAY_AGAIN 0
#else
#define MAY_SAY_AGAIN 1
#endif

/* network_take_detach() */
inline take_detach(i, j, says)
{
	if
	:: (OF(i, j).attachment == NOWHERE && OF(i, j).detach_said == DETACH_NONE) ||
	   OF(i, j).failover != FAILOVER_NONE
	:: else ->
		if
		:: OF(i, j).attachment == NOWHERE && OF(i, j).detach_heard == DETACH_SECOND && says % 2 == 0 ->
			/* the peer met us, and we did not meet it: it may detach */
			OF(i, j).owes_detach = MAY_SAY_AGAIN
		:: OF(i, j).attachment != NOWHERE && says / 2 != OF(i, j).attachment && says / 2 != NOWHERE
			/* of another time */
		:: else ->
			if
			:: OF(i, j).receiving -> violate(i, j)
			:: else ->
				word = (says % 2 -> DETACH_SECOND : DETACH_FIRST);
				if
				:: word > OF(i, j).detach_heard -> OF(i, j).detach_heard = word
				:: else
				fi;
				word = 0;
				OF(i, j).framed = 1;
				if
				:: OF(i, j).detach_heard == DETACH_SECOND && OF(i, j).network ->
					OF(i, j).tx_paused = 0;
					if
					:: (len(NET(i, j)) < NET_ROOM) -> greet(i, j)
					:: else
					fi
				:: else
				fi
			fi
		fi
	fi
}

/* is_free() of detach.c, for one peer */
#define is_free(i, j) \
	(dead[i] || i == j || \
	 (OF(i, j).attachment == HOME && \
	  ((OF(i, j).state == PEER_FAILED && OF(i, j).reported) || OF(i, j).failover == FAILOVER_DONE)) || \
	 (OF(i, j).attachment == OTHER) || \
	 (OF(i, j).attachment == NOWHERE && \
	  !(OF(i, j).state == PEER_PRESENT && OF(i, j).detach_said != DETACH_NONE && \
	    OF(i, j).detach_heard != DETACH_SECOND)))

#if N == 2
#define are_free(i) (is_free(i, 0) && is_free(i, 1))
#else
#define are_free(i) (is_free(i, 0) && is_free(i, 1) && is_free(i, 2))
#endif

/* forget_all() */
inline forget_all(i)
{
	other = 0;
	do
	:: other < N ->
		if
		:: other != i && OF(i, other).attachment == HOME -> forget_slot(i, other)
		:: else
		fi;
		other++
	:: else -> break
	od;
	other = 0
}

/*
 * transport_leave_regions(), and region_leave(), which fails while the application has memory in the region
 */
inline leave_regions(i)
{
#ifdef OLD_LEAVE
	forget_all(i);
#endif
	if
	:: busy > 0 -> busy--
	:: left[i] = 1;
		forget_all(i);
		leaving[i] = 0
	fi
}

/* transport_meet_leavers() and stay() */
inline meet_leavers(i)
{
	if
	:: leaving[i] ->
		welcomes[i] = 1;
		forget_asking(i, HOME)
	:: else
	fi;
	leaving[i] = (requested[i] == ROUTE_LEAVE)
}
