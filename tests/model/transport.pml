/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.pml - a model of provider/transport for the model checker Spin: leaving a region, failing over to
 * the network, switching between the two, and coming back. tests/README.md says what the
 * model leaves out, and test_model.py lists the searches.
 *
 * Each inline below is one C function, or the part of one that changes this state; the comment before it
 * names the function. One atomic step of the model is one frame, one slot of a ring, or the slow part of a
 * poll for one peer. So the model has every order of these steps that the C code can have, and more.
 *
 *   -DN=3         the number of members
 *   -DMESSAGES=1  messages that each member sends to each other member
 *   -DREQUESTS=2  requests of the manager: how a member is to be reached
 *   -DWHO=1       the manager's requests concern only the first member; 2: the first two
 *   -DSTAR, -DFROM_FIRST, -DTO_FIRST  the first member and the others send to each other, only the first
 *                 sends, or only the others send to the first; otherwise all send to all
 *   -DATTACHED    all members know the others' network names from the beginning
 *   -DDEATHS=1    members that die, at any step
 *   -DLOSSES=1    frames that are lost, at any step
 *   -DBREAKS=1    pairs that find an invalid word in the region
 *   -DEVICTIONS=1 members whose slot another member takes
 *   -DBUSY=1      how often a region cannot be left, because the application has memory in it
 *   -DOFFERS=1    offers of a single copy that a hostile receiver answers at any time
 *   -DOLD_OFFER   the rule of fault B1: an offer was answered in the receiver's present region
 *   -DOLD_LEAVE   the rules of fault B2: members were forgotten before the region was left
 *   -DOLD_STAY    rules by which a pair got stuck if the manager changed its mind while the pair detached
 *   -DOLD_PAUSE   rules by which a pair got stuck if the region failed meanwhile
 */
#ifndef N
#define N 2
#endif
#ifndef MESSAGES
#define MESSAGES 1
#endif
#ifndef REQUESTS
#define REQUESTS 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef EVICTIONS
#define EVICTIONS 0
#endif
#ifndef BUSY
#define BUSY 0
#endif
#ifndef OFFERS
#define OFFERS 0
#endif

#define NET_ROOM 5

/*
 * where two members meet: in no region, in the region in which all began, in the region to which they come
 * back
 */
#define NOWHERE 0
#define HOME 1
#define OTHER 2

#define MOVE 255 /* in a slot: the last of this transport */

/* the state of `j` at `i` */
#define OF(i, j) peers[(i) * N + (j)]

#ifndef WHO
#define WHO N
#endif
#include "states.pml"

/* ---- the state of a peer: struct peer and struct network_peer ---- */

typedef Peer {
	unsigned state : 2;      /* enum peer_state */
	unsigned failover : 2;    /* enum peer_failover */
	unsigned detach_said : 2;  /* enum detach_progress */
	unsigned detach_heard : 2; /* enum detach_progress */
	unsigned attachment : 2;       /* the region that both are in: NOWHERE, HOME, OTHER */
	unsigned asked_in : 2;   /* bit 0: of HOME, bit 1: of OTHER */
	unsigned answer : 2;     /* enum region_step */
	bit owes_region;
	bit owes_detach;
	bit alias;
	bit network;             /* we send over the network */
	bit sending;
	bit switching;
	bit owes_switched;
	bit receiving;
	bit framed;
	bit broken;
	bit reported;
	bit attached;            /* peer->beyond exists: a ping is answered */
	bit switched;
	bit tx_paused;
	bit awaits_reattach;
	bit stream;
	bit greeted;             /* network_peer.sequence > 0 */
	bit offer;               /* a single copy was offered and not answered */
	/* the ring for our sends, and its words in the region */
	unsigned out : 2;        /* its connection id */
	unsigned line : 2;       /* connection_line.id; 0: none */
	unsigned in : 2;         /* the connection that we read */
	unsigned ring_left : 2;
	bit accepted;            /* the credit line has our id */
	bit closed;              /* the receiver refused it */
	bit ended;               /* connection_line.ended */
	/* for the properties */
	unsigned sent : 2;       /* messages */
	unsigned got : 2;        /* the number of the last delivered message */
	bit told;                /* an error was reported: later messages may be missing */
	bit gap;                 /* a numbered frame of ours was lost: no later one is accepted */
}

Peer peers[N * N];
#define ALL (N * N)

/* a ring: numbers of messages, and MOVE; a stream of frames: kind, content, the stream's number */
chan ring[ALL] = [MESSAGES + 1] of { byte };
chan net[ALL] = [NET_ROOM] of { byte, byte, bit };
#define RING(i, j) ring[(i) * N + (j)]
#define NET(i, j) net[(i) * N + (j)]

/* ---- a member's own state, and the manager's request ---- */

bit dead[N];
bit left[N];       /* attachment->region->left, of HOME */
bit elsewhere[N];  /* it came back to OTHER */
bit leaving[N];
bit welcomes[N];   /* attachment->welcomes, of HOME */
bit usurped[N];    /* the claim word of its slot in HOME is another member's */
bit evicted[N];    /* and the member knows */
byte requested[N];      /* enum requested_route */

byte requests = REQUESTS, deaths = DEATHS, losses = LOSSES, breaks = BREAKS, evictions = EVICTIONS;
byte busy = BUSY, offers = OFFERS;

/* scratch, 0 between two steps */
byte word, other, kind, says;
bit stream, fails_over;

bit spoiled; /* a frame was lost, or a member lied: from here on only safety is promised */

#define in_use(i) (!evicted[i] && !left[i])
#define is_asked_for(i, j) \
	(OF(i, j).attachment == HOME && (requested[i] != ROUTE_REGION || requested[j] != ROUTE_REGION))
#define is_intact(i, j) (OF(i, j).attachment != HOME || !usurped[j])
#define is_detaching(i, j) \
	(OF(i, j).attached && (OF(i, j).detach_said != DETACH_NONE || OF(i, j).detach_heard != DETACH_NONE))
/* wants_network() of switch.c */
#ifdef OLD_STAY
#define wanted(i, j) is_asked_for(i, j)
#else
#define wanted(i, j) (is_asked_for(i, j) || (OF(i, j).attachment != NOWHERE && is_detaching(i, j)))
#endif
#define is_failing_over(i, j) (OF(i, j).failover == FAILOVER_DRAINING || OF(i, j).failover == FAILOVER_ASKING)
#define is_in(i, r) ((r == HOME && !left[i]) || (r == OTHER && elsewhere[i]))
#define is_used(i, j) (OF(i, j).network || OF(i, j).framed)
/* network_prove(): a ping is answered as soon as both ends know the other's network name */
#define is_proved(i, j) (OF(i, j).attached && OF(j, i).attached)
#define is_present(i, j) (OF(i, j).state != PEER_FAILED)

/* transport_fail(), and transport_break() if `because` is 1 */
inline fail(i, j, because)
{
	if
	:: OF(i, j).state != PEER_FAILED ->
		set_state(i, j, PEER_FAILED);
		OF(i, j).broken = because;
		OF(i, j).reported = 0
	:: else
	fi
}

/* network_violate(), and transport_fail() with EPROTO: no honest peer may ever be taken for hostile */
inline violate(i, j)
{
	assert(spoiled);
	fail(i, j, 0)
}

/* forget_slot() of detach.c */
inline forget_slot(i, j)
{
	OF(i, j).attachment = NOWHERE;
	OF(i, j).alias = 0
}

#include "switch.pml"
#include "leave.pml"
#include "return.pml"
#include "failover.pml"
#include "arrive.pml"
#include "promises.pml"

#if N == 2
#define pick(i) if :: i = 0 :: i = 1 fi
#else
#define pick(i) if :: i = 0 :: i = 1 :: i = 2 fi
#endif

#if WHO == 1
#define pick_one(i) i = 0
#elif WHO == 2
#define pick_one(i) if :: i = 0 :: i = 1 fi
#else
#define pick_one(i) pick(i)
#endif

/* ---- the processes ---- */

/* The steps of `i` towards `j`, one at a time. */
proctype pair(byte i; byte j)
{
end:	do
	:: atomic { !dead[i] && may_send(i, j) -> send(i, j) }
	:: atomic { !dead[i] && may_attach(i, j) -> OF(i, j).attached = 1 }
	:: atomic { !dead[i] && may_switch(i, j) -> begin_switch(i, j) }
	:: atomic { !dead[i] && may_go_on(i, j) -> go_on(i, j) }
	:: atomic { !dead[i] && is_present(i, j) && OF(i, j).owes_switched && (len(NET(i, j)) < NET_ROOM) ->
		NET(i, j)!FRAME_SWITCHED, 0, OF(i, j).stream;
		OF(i, j).owes_switched = 0 }
	:: atomic { !dead[i] && may_find_closed(i, j) -> fail(i, j, 1) }
	:: atomic { !dead[i] && may_accept(i, j) -> accept_connection(i, j) }
	:: atomic { !dead[i] && may_drain(i, j) -> drain(i, j) }
	:: atomic { !dead[i] && (len(NET(j, i)) > 0) -> take_frame(i, j) }
	:: atomic { dead[i] && (len(NET(j, i)) > 0) -> NET(j, i)?kind, says, stream; kind = 0; says = 0; stream = 0 }
	:: atomic { !dead[i] && may_detach(i, j) -> detach(i, j) }
	:: atomic { !dead[i] && may_ask(i, j, HOME) -> ask(i, j, HOME) }
	:: atomic { !dead[i] && may_ask(i, j, OTHER) -> ask(i, j, OTHER) }
	:: atomic { !dead[i] && OF(i, j).owes_detach && len(NET(i, j)) < NET_ROOM ->
		NET(i, j)!FRAME_DETACH, NOWHERE * 2 + 1, OF(i, j).stream;
		OF(i, j).owes_detach = 0 }
	:: atomic { !dead[i] && may_answer(i, j) -> answer_region(i, j) }
	:: atomic { !dead[i] && OF(i, j).state == PEER_FAILED && !OF(i, j).reported -> report(i, j) }
	:: atomic { !dead[i] && OF(i, j).failover == FAILOVER_DRAINING && is_present(i, j) -> enter_failover(i, j) }
	/* network_ask_failover(): repeated; one frame on its way is enough */
	:: atomic { !dead[i] && OF(i, j).failover == FAILOVER_ASKING && is_present(i, j) && (len(NET(i, j)) == 0) &&
		    !dead[j] -> send_failover(i, j, 0) }
	:: atomic { !dead[i] && may_find_dead(i, j) -> fail(i, j, 0) }
	:: atomic { !dead[i] && may_find_gone(i, j) -> find_gone(i, j) }
#if OFFERS
	:: atomic { !dead[i] && OF(i, j).offer && is_present(i, j) && !dead[j] &&
		    (OF(i, j).receiving || OF(i, j).framed) -> take_answer(i, j) }
#endif
#if BREAKS
	/* another process wrote over the ring or the credit line that it reads */
	:: atomic { !dead[i] && breaks > 0 && is_present(i, j) && OF(i, j).failover == FAILOVER_NONE &&
		    OF(i, j).attachment != NOWHERE &&
		    (OF(i, j).receiving || (OF(i, j).sending && !OF(i, j).network)) ->
		breaks--;
		fail(i, j, 1) }
#endif
	od
}

/* The steps of `i` with its regions. */
proctype member(byte i)
{
end:	do
	:: atomic { !dead[i] && in_use(i) && leaving[i] != (requested[i] == ROUTE_LEAVE) -> meet_leavers(i) }
	:: atomic { !dead[i] && in_use(i) && leaving[i] && are_free(i) -> leave_regions(i) }
	:: atomic { !dead[i] && left[i] && !elsewhere[i] -> elsewhere[i] = 1; forget_asking(i, OTHER) }
	:: atomic { !dead[i] && usurped[i] && in_use(i) -> find_evicted(i) }
	od
}

/* The manager's requests, and faults, each as often as the options say. */
proctype world()
{
	byte i, j;

end:	do
	:: atomic { requests > 0 -> requests--; pick_one(i); if
		:: requested[i] != ROUTE_REGION -> requested[i] = ROUTE_REGION
		:: requested[i] != ROUTE_NETWORK -> requested[i] = ROUTE_NETWORK
		:: requested[i] != ROUTE_LEAVE -> requested[i] = ROUTE_LEAVE
		fi; i = 0 }
#if DEATHS
	:: atomic { deaths > 0 -> deaths--; pick(i); dead[i] = 1; i = 0 }
#endif
#if EVICTIONS
	:: atomic { evictions > 0 -> evictions--; pick(i); usurped[i] = !left[i]; i = 0 }
#endif
#if LOSSES
	:: atomic { losses > 0 -> pick(i); pick(j); if
		:: i != j && (len(NET(i, j)) > 0) ->
			losses--;
			spoiled = 1;
			NET(i, j)?kind, says, stream;
			if
			:: (kind == FRAME_SLOTS || kind == FRAME_HELLO) && stream == OF(i, j).stream ->
				OF(i, j).gap = 1
			:: else
			fi;
			/* the core reports that to the sender, or not */
			if
			:: is_used(i, j) -> fail(i, j, 0)
			:: skip
			fi;
			kind = 0;
			says = 0;
			stream = 0
		:: else
		fi; i = 0; j = 0 }
#endif
	od
}

init {
	byte i, j;

	atomic {
		do
		:: i < N ->
			j = 0;
			do
			:: j < N ->
				if
				:: i != j ->
					OF(i, j).attachment = HOME;
#ifdef ATTACHED
					OF(i, j).attached = 1;
#endif
					run pair(i, j)
				:: else
				fi;
				j++
			:: else -> break
			od;
			run member(i);
			i++
		:: else -> break
		od;
		i = 0;
		j = 0;
		run world()
	}
	timeout;
	atomic {
		do
		:: spoiled -> break
		:: !spoiled && i < N ->
			assert(dead[i] || has_left(i));
			j = 0;
			do
			:: j < N -> check_pair(i, j); j++
			:: else -> break
			od;
			i++
		:: else -> break
		od
	}
}
