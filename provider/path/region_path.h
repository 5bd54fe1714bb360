/* SPDX-License-Identifier: BSD-3-Clause */
/* region_path.h - what the files of the path through the region need of each other. */
#ifndef VICINAL_PATH_REGION_PATH_H
#define VICINAL_PATH_REGION_PATH_H

#include "path/path.h"

/* ---- region_path.c: joining and leaving; peers that come, fail and go ---- */

/* What we send to `peer`, which is not connected, goes through the region. */
void path_aim_at_region(struct peer *peer);
/* What `peer` sends comes through the region. */
void path_expect_ring(struct peer *peer);
/*
 * May one end reach into the other's memory, where that lies in the region? Heaps, and the lines of single
 * copies, are used in the first of our regions alone: no more than one region's heap is the application's.
 * Not in one that we left, where only we ourselves are met: the slot that a line names there is not ours.
 */
static inline bool path_may_map(const struct peer *peer)
{
	return peer->port == &peer->port->path->ports[0] && !peer->guest && !peer->port->region->left;
}
/* Who is in the port's slot in this epoch, as far as we know it: by the slot's number, or as a guest. */
struct peer *path_peer_in(const struct port *port, uint32_t slot, uint32_t epoch);
/* The words of the peer in `slot`, which is met there. */
void path_place_peer(struct port *port, struct peer *peer, uint32_t slot, uint32_t epoch);
/* It is in no region with us. */
void path_leave_place(struct peer *peer);
/* Its arena and tables of ours, for a region that was just joined; and giving them back. */
int path_furnish_port(struct port *port);
void path_strip_port(struct port *port);
/* Into rings and chunks, once we are a member. */
void path_divide_arena(struct port *port);
/* Have we still our slots? One that we lost is evicted. Returns false if one was lost since the last time. */
bool path_check_places(struct path *path);
/* The slot is another's, or the region is gone: all that is reached through it ends. */
void path_evict(struct port *port, const char *reason);
/* Tell the user of the peers that failed, from a place where it may complete operations. */
void path_report_failures(struct path *path);
void path_publish_arena_used(const struct port *port);
/* All that we know of the peer in `slot` of the port's region, of which nothing is known so far. */
void path_reset_peer(struct port *port, struct peer *peer, uint32_t slot, uint32_t epoch, uint64_t nonce);

/* ---- region_connect.c: rings offered and taken ---- */

/*
 * Once, when we have joined: doorbells still count what was rung for former occupants of our slot,
 * and somebody may have found us in the region and rung already. So every offer is looked at.
 */
void path_take_first_rings(struct port *port);
/* Look who rang since the last time, and take the rings that are offered. Returns how many rang. */
uint32_t path_read_doorbells(struct port *port);

/* ---- region_sleep.c ---- */

/* Ring the peer's doorbell, whichever way what we send goes, and wake it if it sleeps. */
void path_ring_doorbell(struct peer *peer);

/* ---- region_attend.c: which rings are looked at ---- */

/* Look at its ring at every poll from now on. */
void path_warm(struct path *path, struct peer *peer);
/* Read no more of its ring. */
void path_stop_reading(struct path *path, struct peer *peer);
/* Read no more of what it sends, and let it know. */
void path_stop_receiving(struct path *path, struct peer *peer);

#endif
