/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * member.h - taking part in a region: joining, leaving, proving who is there, and
 * noticing who died.
 */
#ifndef VICINAL_REGION_MEMBER_H
#define VICINAL_REGION_MEMBER_H

#include <pthread.h>
#include <sys/types.h>

#include "region/region.h"

/* Our own membership. One for each endpoint and region. Everything here is private. */
struct member {
	struct region *region;
	uint64_t nonce;
	uint32_t slot;
	uint32_t epoch;
	/* as in section_header: the region that this endpoint joined first, if that is another */
	uint64_t home[2];
	uint32_t home_slot;
	uint32_t home_epoch;
	int lock_fd;    /* holds the lock on byte `slot`, and asks about others' */
	pid_t process;  /* a forked child must not leave in its parent's name */
	bool beating;   /* the heartbeat thread runs */
	uint64_t beats; /* of member_beat() */
	bool alias;     /* we came back to a region: see section_header.alias */
	bool ready;     /* to leave the region together with the others of its mapping: see leave.h */
	struct member *next_joined;
	atomic_bool stop;
	pthread_t heart;
};

/* What we saw of another member's heartbeat, timed by our own clock (nanoseconds). */
struct last_heartbeat {
	uint64_t heartbeat;
	uint64_t since; /* when it changed last; 0: never seen */
};

enum member_state {
	MEMBER_ALIVE,
	MEMBER_LEFT, /* it gave its slot back in good order */
	MEMBER_DIED,
	MEMBER_QUIET, /* of member_check_heartbeat() only: its heartbeat stands still, and its lock may be
			 free */
};

/*
 * Take a free slot, or one whose occupant died. `endpoint` counts this process's
 * endpoints. `timeout` (nanoseconds) is how long a heartbeat may be still before its
 * owner counts as dead; waited out only when no slot is free.
 * Returns 0 and a member, or a negative errno and a text.
 */
int member_join(struct region *region, uint32_t endpoint, uint64_t timeout, struct member **member,
		struct region_error *error);
/* The same with one more region, by an endpoint that is `first` in another: with the same nonce. */
int member_join_as(const struct member *first, struct region *region, uint32_t endpoint, uint64_t timeout,
		   struct member **member, struct region_error *error);
/*
 * The same as member_join(), for an alias: a process that has been a member of another region, or of this one
 * before, and whose application waits for other things meanwhile. Where no slot is free it is -ENOSPC at
 * once.
 */
int member_join_as_alias(struct region *region, uint32_t endpoint, struct member **member,
			 struct region_error *error);
void member_leave(struct member *member);

/*
 * Leave, but for the slot: peers see us gone, and nobody takes it or its section before
 * member_leave(), or the end of the process. For memory in the heap that is still used.
 */
void member_hold(struct member *member);

/* In a forked child: close what holds the lock, so that it is our parent's alone. */
void member_after_fork(struct member *member);
/* The same, of the process: fork.c calls it. Endpoints that the child opens are not its parent's. */
void member_forget_process(void);

/*
 * The region's file was cut, and the memory in its place is this process's alone: be a member of that, in
 * the slot and epoch that we had.
 */
void member_restore(struct member *member);

/* Is our slot still ours? Not if we were paused for so long that we were taken for dead. */
bool member_is_joined(const struct member *member);

/* Does the member (slot, epoch, nonce) take part in this very region, or did it until it left? */
bool member_confirm(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t nonce);

/* Is the member in `slot` met over the network only? */
static inline bool member_is_alias(const struct region *region, uint32_t slot)
{
	return shared_load_u32(&section_header(region, slot)->alias) != 0;
}

/* Who occupies `slot`, or did last and left? Returns false if nobody does, or somebody joins just now. */
bool member_identify(const struct region *region, uint32_t slot, uint32_t *epoch, uint64_t *nonce);

/*
 * Is the section in `slot` still as the member with `epoch` wrote it, living or gone? What
 * was read from it before is good if so: a successor claims the slot before it writes.
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
 * How is the member (slot, epoch)? `last_heartbeat` is kept by the caller, zeroed at first. By loads alone:
 * MEMBER_QUIET means that only the kernel can tell.
 */
enum member_state member_check_heartbeat(const struct member *self, uint32_t slot, uint32_t epoch,
					 struct last_heartbeat *last_heartbeat, uint64_t now,
					 uint64_t timeout);

/*
 * The same, but asks the kernel about a quiet member. The kernel walks a list of all locks of the file for
 * an answer, and other processes that ask wait meanwhile: so not for many members at once.
 */
enum member_state member_observe(const struct member *self, uint32_t slot, uint32_t epoch,
				 struct last_heartbeat *last_heartbeat, uint64_t now, uint64_t timeout);

/* Count our heartbeat up, since we check our peers. Only while the slot is ours. */
void member_beat(struct member *self);

/* Tell the others that we found the member (slot, epoch) dead. */
void member_publish_death(const struct member *self, uint32_t slot, uint32_t epoch);

/*
 * Reads the slot and epoch of the member that the one in `slot` says it found dead. False if it says nothing.
 * It may lie: ask the kernel.
 */
bool member_says_dead(const struct region *region, uint32_t slot, uint32_t *dead_slot, uint32_t *dead_epoch);

/*
 * How many times longer a copy through our own part of the region takes than one through
 * private memory. About 1 for memory mapped write-back; 20 and more for uncached or
 * write-combining mappings. The first of several measurements that is below `enough`, or the
 * lowest of them: a busy machine makes single ones slow.
 */
double member_measure(const struct member *member, double enough);

/* A monotonic clock in nanoseconds. */
uint64_t monotonic_now(void);

/* Is the member in `slot` an endpoint of this process too, as its section says? */
bool member_is_of_this_process(const struct region *region, uint32_t slot);

#endif
