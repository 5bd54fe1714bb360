/* SPDX-License-Identifier: BSD-3-Clause */
/* switch.pml - messages, rings, and switching transport while both are in use: switch.c, region_connect.c. */

/* ---- messages ---- */

/* arrive(): in order, once each, and none missing unless an error was reported before */
inline deliver(i, j, number)
{
	assert(number > OF(i, j).got);
	assert(number == OF(i, j).got + 1 || OF(i, j).told);
	OF(i, j).got = number;
	OF(i, j).told = 0
}

/* transport_connect(): offer a ring, with another id than the ring before */
inline offer_ring(i, j)
{
	do
	:: len(RING(i, j)) > 0 -> RING(i, j)?_
	:: else -> break
	od;
	OF(i, j).out = 1 + OF(i, j).out % 3;
	OF(i, j).line = OF(i, j).out;
	OF(i, j).accepted = 0;
	OF(i, j).closed = 0;
	OF(i, j).sending = 1
}

/* network_ship(): HELLO goes first, then the pushed slots */
inline greet(i, j)
{
	if
	:: !OF(i, j).greeted ->
		NET(i, j)!FRAME_HELLO, 0, OF(i, j).stream;
		OF(i, j).greeted = 1
	:: else
	fi
}

/* network_enter() */
inline enter_network(i, j)
{
	OF(i, j).network = 1;
	OF(i, j).switched = 0;
	OF(i, j).sending = 1
}

#define has_room(i, j) \
	(!OF(i, j).switching && !is_failing_over(i, j) && \
	 ((OF(i, j).network && !OF(i, j).tx_paused && len(NET(i, j)) < NET_ROOM - 1) || \
	  (!OF(i, j).network && OF(i, j).attachment != NOWHERE && (len(RING(i, j)) < MESSAGES + 1))))

#ifdef STAR
#define is_talking(i, j) ((i) == 0 || (j) == 0)
#elif defined(FROM_FIRST)
#define is_talking(i, j) ((i) == 0)
#elif defined(TO_FIRST)
#define is_talking(i, j) ((j) == 0)
#else
#define is_talking(i, j) 1
#endif

#define may_send(i, j) \
	(is_present(i, j) && is_talking(i, j) && OF(i, j).sent < MESSAGES && \
	 ((!OF(i, j).sending && OF(i, j).attachment != NOWHERE) || has_room(i, j)))

/* messenger_send(): after a failover, transport_refuse() reports the failure once */
inline send(i, j)
{
	if
	:: OF(i, j).state == PEER_ERROR_PENDING -> set_state(i, j, PEER_PRESENT)
	:: else ->
		if
		:: !OF(i, j).sending && !OF(i, j).network -> offer_ring(i, j)
		:: else
		fi;
		OF(i, j).sent++;
		if
		:: OF(i, j).network ->
			greet(i, j);
			NET(i, j)!FRAME_SLOTS, OF(i, j).sent, OF(i, j).stream
		:: else ->
			RING(i, j)!OF(i, j).sent;
			if
			:: offers > 0 && OF(i, j).attachment == HOME && !OF(i, j).alias ->
				offers--;
				OF(i, j).offer = 1
			:: else
			fi
		fi
	fi
}

/* single_copy_answered(): a hostile receiver says at any time that its buffer is in the region */
inline take_answer(i, j)
{
	OF(i, j).offer = 0;
#ifdef OLD_OFFER
	/* transfer_view() in the first of our regions, with the slot that the peer has now */
	assert(OF(i, j).attachment == HOME && !OF(i, j).alias && !left[i] && !evicted[i]);
#else
	if
	:: OF(i, j).attachment == HOME && !OF(i, j).alias && !left[i] && !evicted[i]
	:: else ->
		spoiled = 1;
		fail(i, j, 1)
	fi
#endif
}

/* ---- switching: switch.c ---- */

#define may_begin(i, j) \
	(is_present(i, j) && OF(i, j).failover == FAILOVER_NONE && OF(i, j).attachment != NOWHERE && \
	 (OF(i, j).attachment != HOME || !evicted[i]))

/* consider(), for the part that makes the peer's network name known */
#define may_attach(i, j) (may_begin(i, j) && wanted(i, j) && !OF(i, j).attached)

/* consider() and begin() */
#define may_switch(i, j) \
	(may_begin(i, j) && OF(i, j).sending && !OF(i, j).switching && wanted(i, j) != OF(i, j).network && \
	 (!wanted(i, j) || is_proved(i, j)) && \
	 !(!wanted(i, j) && OF(i, j).network && OF(i, j).awaits_reattach) && has_room(i, j))

inline begin_switch(i, j)
{
	if
	:: OF(i, j).network ->
		greet(i, j);
		NET(i, j)!FRAME_SLOTS, MOVE, OF(i, j).stream
	:: else -> RING(i, j)!MOVE
	fi;
	OF(i, j).switching = 1
}

#define may_go_on(i, j) \
	(is_present(i, j) && OF(i, j).switching && \
	 ((!OF(i, j).network && OF(i, j).accepted && (len(RING(i, j)) == 0)) || \
	  (OF(i, j).network && OF(i, j).switched)))

/* go_on(), leave_region() and return_to_region() of switch.c */
inline go_on(i, j)
{
	OF(i, j).switching = 0;
	if
	:: !OF(i, j).network ->
		OF(i, j).line = 0;
		enter_network(i, j)
	:: else ->
		OF(i, j).network = 0;
		offer_ring(i, j)
	fi
}

/* is_taken() of switch.c and transport_refresh(), which find that the credit was refused */
#define may_find_closed(i, j) \
	(is_present(i, j) && !OF(i, j).network && OF(i, j).sending && OF(i, j).closed && \
	 OF(i, j).failover == FAILOVER_NONE && OF(i, j).attachment != NOWHERE)

/* leave_ring() */
inline leave_ring(i, j)
{
	OF(i, j).attached = 1;
	OF(i, j).ring_left = OF(i, j).in;
	OF(i, j).receiving = 0;
	OF(i, j).framed = 1
}

/* leave_frames() */
inline leave_frames(i, j)
{
	assert(OF(i, j).attachment != NOWHERE);
	OF(i, j).framed = 0;
	OF(i, j).awaits_reattach = 0;
	OF(i, j).owes_switched = 1
}

/* ---- the region: region_connect.c ---- */

/* accept_connection(): the offer of `j` to `i` */
#define may_accept(i, j) \
	(OF(i, j).attachment != NOWHERE && OF(j, i).attachment == OF(i, j).attachment && is_intact(i, j) && \
	 !(OF(i, j).attachment == HOME && evicted[i]) && OF(i, j).failover == FAILOVER_NONE && \
	 ((OF(j, i).ended && is_present(i, j)) || \
	  (OF(j, i).line != 0 && !OF(j, i).accepted && !OF(j, i).closed && \
	   !(OF(i, j).framed && OF(i, j).ring_left == OF(j, i).line))))

inline accept_connection(i, j)
{
	if
	:: OF(j, i).ended && is_present(i, j) -> fail(i, j, 1)
	:: else ->
		if
		:: !is_present(i, j) -> OF(j, i).closed = 1
		:: else ->
			if
			:: OF(i, j).receiving || OF(i, j).framed -> violate(i, j)
			:: else ->
				OF(i, j).in = OF(j, i).line;
				OF(i, j).receiving = 1;
				OF(j, i).accepted = 1
			fi
		fi
	fi
}

#define may_drain(i, j) \
	(is_present(i, j) && OF(i, j).receiving && is_intact(i, j) && (len(RING(j, i)) > 0))

/* transport_drain() */
inline drain(i, j)
{
	RING(j, i)?word;
	if
	:: word == MOVE -> leave_ring(i, j)
	:: else -> deliver(i, j, word)
	fi;
	word = 0
}
