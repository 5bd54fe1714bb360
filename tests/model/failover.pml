/* SPDX-License-Identifier: BSD-3-Clause */
/* failover.pml - going on over the network when the region is of no use: renew.c, network_renew.c. */

/* ---- failing over: renew.c and network_renew.c ---- */

/* transport_report_failures(), transport_end_move(), transport_tell_end(), transport_may_renew(), transport_renew(), begin() */
inline report(i, j)
{
	OF(i, j).reported = 1;
	OF(i, j).moving = 0;
	OF(i, j).owes_moved = 0;
	OF(i, j).offer = 0;
	if
	:: OF(i, j).broken && OF(i, j).renewal == RENEWAL_NONE && OF(i, j).attachment != NOWHERE -> renews = 1
	:: else
	fi;
	if
	:: is_renewing(i, j) -> set_renewal(i, j, RENEWAL_DONE)
	:: OF(i, j).renewal == RENEWAL_DONE
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
	:: renews ->
		OF(i, j).attached = 1;
		OF(i, j).stream = 1;
		OF(i, j).greeted = 0;
		OF(i, j).gap = 0;
		OF(i, j).moved = 0;
#ifndef OLD_HUSH
		OF(i, j).hushed = 0;
#endif
		OF(i, j).reported = 0;
		OF(i, j).broken = 0;
		OF(i, j).sending = 1;
		OF(i, j).line = 0;
		set_renewal(i, j, RENEWAL_DRAINS);
		if
		:: set_state(i, j, PEER_PRESENT)
		:: set_state(i, j, PEER_UNTOLD)
		fi
	:: else
	fi;
	renews = 0
}

/* enter() of renew.c: the core has nothing of the old stream any more */
inline enter_renewed(i, j)
{
	OF(i, j).framed = 1;
	enter_network(i, j);
	set_renewal(i, j, RENEWAL_ASKS)
}

/* network_send_renew(), through peer->attachment: fault B2 */
inline send_renew(i, j, answers)
{
	assert(OF(i, j).attachment != NOWHERE);
	NET(i, j)!FRAME_RENEW, OF(i, j).attachment * 2 + answers, 1
}

/* transport_renewed() */
inline renewed(i, j)
{
	set_renewal(i, j, RENEWAL_DONE);
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

/* network_renewing_peer() and network_take_renew() */
inline take_renew(i, j, says)
{
	if
	:: !names_us(i, j, says / 2)
	:: names_us(i, j, says / 2) ->
		OF(i, j).attached = 1;
		if
		:: OF(i, j).renewal == RENEWAL_NONE -> fail(i, j, 1)
		:: OF(i, j).renewal == RENEWAL_DRAINS
		:: OF(i, j).renewal == RENEWAL_ASKS || OF(i, j).renewal == RENEWAL_DONE ->
			if
			:: says % 2 == 0 && (len(NET(i, j)) < NET_ROOM) -> send_renew(i, j, 1)
			:: else
			fi;
			if
			:: OF(i, j).renewal == RENEWAL_ASKS -> renewed(i, j)
			:: else
			fi
		fi
	fi
}
