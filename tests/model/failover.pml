/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failover.pml - continuing over the network when the region cannot be used: failover.c, network_failover.c.
 */

/* ---- failing over: failover.c and network_failover.c ---- */

/* transport_report_failures(), transport_end_switch(), transport_publish_end(), transport_may_fail_over(), transport_fail_over(), begin() */
inline report(i, j)
{
	OF(i, j).reported = 1;
	OF(i, j).switching = 0;
	OF(i, j).owes_switched = 0;
	OF(i, j).offer = 0;
	if
	:: OF(i, j).broken && OF(i, j).failover == FAILOVER_NONE && OF(i, j).attachment != NOWHERE -> fails_over = 1
	:: else
	fi;
	if
	:: is_failing_over(i, j) -> set_failover(i, j, FAILOVER_DONE)
	:: OF(i, j).failover == FAILOVER_DONE
	:: else ->
		if
		:: OF(i, j).attachment != NOWHERE && !(OF(i, j).attachment == HOME && evicted[i]) && is_intact(i, j) ->
			OF(i, j).ended = 1
		:: else
		fi
	fi;
	if
	:: OF(i, j).receiving && !(OF(i, j).attachment == HOME && evicted[i]) -> OF(j, i).closed = 1
	:: else
	fi;
	OF(i, j).receiving = 0;
	OF(i, j).sending = 0;
	OF(i, j).told = 1;
	if
	:: fails_over ->
		OF(i, j).attached = 1;
		OF(i, j).stream = 1;
		OF(i, j).greeted = 0;
		OF(i, j).gap = 0;
		OF(i, j).switched = 0;
#ifndef OLD_PAUSE
		OF(i, j).tx_paused = 0;
#endif
		OF(i, j).reported = 0;
		OF(i, j).broken = 0;
		OF(i, j).sending = 1;
		OF(i, j).line = 0;
		set_failover(i, j, FAILOVER_DRAINING);
		if
		:: set_state(i, j, PEER_PRESENT)
		:: set_state(i, j, PEER_ERROR_PENDING)
		fi
	:: else
	fi;
	fails_over = 0
}

/* enter() of failover.c: the core has no frames of the old stream any more */
inline enter_failover(i, j)
{
	OF(i, j).framed = 1;
	enter_network(i, j);
	set_failover(i, j, FAILOVER_ASKING)
}

/* network_send_failover(), through peer->attachment: fault B2 */
inline send_failover(i, j, answers)
{
	assert(OF(i, j).attachment != NOWHERE);
	NET(i, j)!FRAME_FAILOVER, OF(i, j).attachment * 2 + answers, 1
}

/* transport_finish_failover() */
inline failover_done(i, j)
{
	set_failover(i, j, FAILOVER_DONE);
	if
	:: (len(NET(i, j)) < NET_ROOM) -> greet(i, j)
	:: else
	fi
}

#define names_us(i, j, r) \
	(is_in(i, r) && (OF(i, j).attachment == r || (r == HOME && (OF(i, j).attachment != NOWHERE || OLD_MEETING))))
#ifdef OLD_LEAVE
#define OLD_MEETING 1
#else
#define OLD_MEETING 0
#endif

/* network_peer_failing_over() and network_take_failover() */
inline take_failover(i, j, says)
{
	if
	:: !names_us(i, j, says / 2)
	:: names_us(i, j, says / 2) ->
		OF(i, j).attached = 1;
		if
		:: OF(i, j).failover == FAILOVER_NONE -> fail(i, j, 1)
		:: OF(i, j).failover == FAILOVER_DRAINING
		:: OF(i, j).failover == FAILOVER_ASKING || OF(i, j).failover == FAILOVER_DONE ->
			if
			:: says % 2 == 0 && (len(NET(i, j)) < NET_ROOM) -> send_failover(i, j, 1)
			:: else
			fi;
			if
			:: OF(i, j).failover == FAILOVER_ASKING -> failover_done(i, j)
			:: else
			fi
		fi
	fi
}
