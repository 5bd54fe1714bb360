/* SPDX-License-Identifier: BSD-3-Clause */
/* arrive.pml - effects of frames, and detection of failures: network_receive.c, transport_check_peers(). */

/* ---- frames over the network: network_receive.c ---- */

/* take_in_order(), take_numbered() and take_slots() */
inline take_numbered(i, j, number)
{
	if
	:: stream != OF(i, j).stream || OF(j, i).gap /* of the old stream, or held for ever */
	:: else ->
		if
		:: !OF(i, j).framed -> violate(i, j)
		:: else ->
			if
			:: OF(i, j).failover == FAILOVER_ASKING -> failover_done(i, j)
			:: else
			fi;
			if
			:: kind == FRAME_HELLO
			:: kind == FRAME_SLOTS && number == MOVE -> leave_frames(i, j)
			:: kind == FRAME_SLOTS && number != MOVE -> deliver(i, j, number)
			fi
		fi
	fi
}

/* take_frame() and take_notice() */
inline take_frame(i, j)
{
	NET(j, i)?kind, says, stream;
	if
	:: OF(i, j).state == PEER_FAILED ->
		if
		:: kind == FRAME_FAILOVER && OF(i, j).reported && names_us(i, j, says / 2) &&
		   (len(NET(i, j)) < NET_ROOM) -> NET(i, j)!FRAME_REFUSE, 0, OF(i, j).stream
		:: else
		fi
	:: else ->
		if
		:: kind == FRAME_SLOTS || kind == FRAME_HELLO -> take_numbered(i, j, says)
		:: kind == FRAME_SWITCHED ->
			if
			:: stream != OF(i, j).stream
			:: else ->
				if
				:: !OF(i, j).switching || !OF(i, j).network || OF(i, j).switched -> violate(i, j)
				:: else -> OF(i, j).switched = 1
				fi
			fi
		:: kind == FRAME_DETACH ->
			if
			:: stream != OF(i, j).stream
			:: else -> take_detach(i, j, says)
			fi
		:: kind == FRAME_REGION -> take_region(i, j, says / 4, says % 4)
		:: kind == FRAME_FAILOVER -> take_failover(i, j, says)
		:: kind == FRAME_REFUSE -> fail(i, j, 0)
		fi
	fi;
	kind = 0;
	says = 0;
	stream = 0
}

/* ---- detection: transport_check_peers() and network_check() ---- */

#define has_read_all(i, j) \
	((!OF(i, j).receiving || (len(RING(j, i)) == 0) || !is_intact(i, j)) && \
	 (!OF(i, j).framed || (len(NET(j, i)) == 0)))

#define may_find_dead(i, j) (dead[j] && is_present(i, j) && has_read_all(i, j) && (len(NET(j, i)) == 0))

#define may_find_gone(i, j) \
	(!dead[j] && is_present(i, j) && OF(i, j).failover == FAILOVER_NONE && OF(i, j).attachment == HOME && \
	 !evicted[i] && has_read_all(i, j) && \
	 ((left[j] && !is_detaching(i, j)) || usurped[j]))

#ifdef OLD_STAY
#define is_undone(i, j) 0
#else
#define is_undone(i, j) OF(i, j).awaits_reattach
#endif

inline find_gone(i, j)
{
	if
	:: is_undone(i, j) ->
		/* the peer left before it learned that we met it there: nothing of it is in the region */
		assert(OF(i, j).network && OF(i, j).framed && !OF(i, j).switching);
		OF(i, j).awaits_reattach = 0;
		forget_slot(i, j)
	:: else ->
		if
		:: usurped[j] -> fail(i, j, 1)
		:: else -> violate(i, j)
		fi
	fi
}

/* check_ourselves(), transport_evict() and transport_break_all() */
inline find_evicted(i)
{
	evicted[i] = 1;
	leaving[i] = 0;
	other = 0;
	do
	:: other < N ->
		if
		:: other != i && OF(i, other).attachment == HOME && OF(i, other).failover == FAILOVER_NONE ->
			fail(i, other, 1)
		:: else
		fi;
		other++
	:: else -> break
	od;
	other = 0
}
