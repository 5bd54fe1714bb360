/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * member.h - membership of a region: joining, leaving, identifying members, and detecting their
 * death.
 */
#ifndef VICINAL_REGION_MEMBER_H
#define VICINAL_REGION_MEMBER_H

#include <pthread.h>
#include <sys/types.h>

#include "region/region.h"

/* Our own membership. One for each endpoint and region. Private. */
struct member {
	struct region *region;
	uint64_t nonce;
	uint32_t slot;
	uint32_t epoch;
	/* as in section_header: the region that this endpoint joined first, if that is another */
	uint64_t home[2];
	uint32_t home_slot;
	uint32_t home_epoch;
	int lock_fd;    /* holds the lock on byte `slot`, and queries other locks */
	pid_t process;  /* a forked child must not leave in the parent's name */
	bool beating;   /* the heartbeat thread runs */
	uint64_t beats; /* number of calls of member_beat() */
	bool alias;     /* the endpoint came back to a region: see section_header.alias */
	bool ready;     /* to leave the region, together with all members of the mapping: see leave.h */
	struct member *next_joined;
	atomic_bool stop;
	pthread_t heart;
};

/* The last known heartbeat of another member, timed by this process's clock in nanoseconds. */
struct last_heartbeat {
	uint64_t heartbeat;
	uint64_t since; /* when the heartbeat changed last; 0: never read */
};

enum member_state {
	MEMBER_ALIVE,
	MEMBER_LEFT, /* it freed its slot */
	MEMBER_DIED,
	MEMBER_QUIET, /* only from member_check_heartbeat(): the heartbeat stands still, and the lock may be
			 free */
};

/*
 * Claim a free slot, or the slot of a dead occupant. `endpoint` is the index of the endpoint in
 * this process. `timeout` (nanoseconds) is how long a heartbeat may stand still before its member
 * counts as dead; the call waits for it only if no slot is free. Returns 0 and a member, or a
 * negative errno and a text.
 */
int member_join(struct region *region, uint32_t endpoint, uint64_t timeout, struct member **member,
		struct region_error *error);
/*
 * Join one more region, with the nonce of `first`, the endpoint's membership of its first region.
 */
int member_join_as(const struct member *first, struct region *region, uint32_t endpoint, uint64_t timeout,
		   struct member **member, struct region_error *error);
/*
 * Join as an alias: the process was a member of another region, or of this region before. Does not
 * wait, because the application waits for other events meanwhile: returns -ENOSPC at once if no
 * slot is free.
 */
int member_join_as_alias(struct region *region, uint32_t endpoint, struct member **member,
			 struct region_error *error);
void member_leave(struct member *member);

/*
 * Leave, but keep the slot: peers see that the member left, but no member can claim the slot or
 * section until member_leave() or the end of the process. For memory in the heap that is still in
 * use.
 */
void member_hold(struct member *member);

/* In a forked child: close the descriptor that holds the lock, so that only the parent holds it. */
void member_after_fork(struct member *member);
/*
 * The same for the process; fork.c calls it. Endpoints that the child opens belong to a new process
 * identity.
 */
void member_forget_process(void);

/*
 * The region's file was truncated, and private memory has replaced it. Become a member of that
 * memory, in the same slot and epoch.
 */
void member_restore(struct member *member);

/* Is the slot still ours? False if we were paused for so long that we were taken for dead. */
bool member_is_joined(const struct member *member);

/* Is the member (slot, epoch, nonce) in this region, or was it until it left? */
bool member_confirm(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t nonce);

/* Is the member in `slot` reached only over the network? */
static inline bool member_is_alias(const struct region *region, uint32_t slot)
{
	return shared_load_u32(&section_header(region, slot)->alias) != 0;
}

/*
 * Identify the member that occupies `slot`, or that occupied it last and left. Returns false if
 * there is none, or if a member is just joining.
 */
bool member_identify(const struct region *region, uint32_t slot, uint32_t *epoch, uint64_t *nonce);

/*
 * Is the section in `slot` still as the member with `epoch` wrote it, living or gone? If so, what
 * was read from the section before is valid, because a successor claims the slot before it writes.
 */
static inline bool member_claim_is(const shared_u64 *claim, uint32_t epoch)
{
	shared_fence_loads();
	return (uint32_t)(shared_load_u64(claim) >> 32) == epoch;
}

static inline bool member_is_intact(const struct region *region, uint32_t slot, uint32_t epoch)
{
	return member_claim_is(&region_slot(region, slot)->claim, epoch);
}

/*
 * The state of the member (slot, epoch), by loads only. The caller keeps `last_heartbeat`, zeroed
 * at first. MEMBER_QUIET means that only the kernel can tell.
 */
enum member_state member_check_heartbeat(const struct member *self, uint32_t slot, uint32_t epoch,
					 struct last_heartbeat *last_heartbeat, uint64_t now,
					 uint64_t timeout);

/*
 * The same, but asks the kernel about a quiet member. For the answer, the kernel walks a list of
 * all locks of the file while other processes that ask wait. So do not call it for many members at
 * once.
 */
enum member_state member_observe(const struct member *self, uint32_t slot, uint32_t epoch,
				 struct last_heartbeat *last_heartbeat, uint64_t now, uint64_t timeout);

/* Increment our heartbeat, because we check our peers. Call only while the slot is ours. */
void member_beat(struct member *self);

/* Publish that the member (slot, epoch) was found dead. */
void member_publish_death(const struct member *self, uint32_t slot, uint32_t epoch);

/*
 * Read which member the member in `slot` found dead. Returns false if it published none. The word
 * may be false: ask the kernel.
 */
bool member_says_dead(const struct region *region, uint32_t slot, uint32_t *dead_slot, uint32_t *dead_epoch);

/*
 * How many times longer a copy through our own part of the region takes than a copy through private
 * memory: about 1 for memory that is mapped write-back, 20 and more for uncached or write-combining
 * mappings. Returns the first of several measurements that is below `enough`, or the lowest,
 * because a busy machine makes single measurements slow.
 */
double member_measure(const struct member *member, double enough);

/* A monotonic clock in nanoseconds. */
uint64_t monotonic_now(void);

/* Is the member in `slot` another endpoint of this process, according to its section? */
bool member_is_of_this_process(const struct region *region, uint32_t slot);

#endif
