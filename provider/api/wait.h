/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait.h - waiting for completions without taking processor time.
 *
 * A domain sleeps as a whole: over the rings of all its endpoints, so that whatever comes
 * for one of them is dealt with. There are three who sleep:
 *
 * wait.c   a call that waits (fi_cq_sread, fi_cntr_wait), until its object is ready
 * idle.c   an application that reads in a loop and finds nothing, for short whiles
 * watch.c  the domain's thread, for automatic progress and for descriptors to wait on
 *
 * Who makes an object ready in a call of its own tells those that wait for it when it gives
 * the domain's lock back.
 */
#ifndef VICINAL_API_WAIT_H
#define VICINAL_API_WAIT_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "region/sleep.h"

struct domain;
struct transport;
struct wait_set;

/* VICINAL_PROGRESS: what one does who finds nothing. */
enum progress_mode {
	PROGRESS_POLL,     /* keep polling, whatever it costs */
	PROGRESS_ADAPTIVE, /* keep polling for a while, then offer the core, then sleep */
	PROGRESS_BLOCK,    /* sleep after some microseconds */
};

/* One that waits for an object, in domain.waiters while it does. The domain's lock guards it. */
struct waiter {
	struct waiter *next;
	bool (*ready)(const struct waiter *waiter);
	atomic_uint *word; /* changed to wake it, or NULL */
	int descriptor;    /* made readable to wake it, or -1 */
};

/* The wait object of a queue or counter. */
struct wait_object {
	struct waiter waiter; /* must be first: in domain.waiters while armed */
	struct domain *domain;
	enum fi_wait_obj kind;
	struct wait_set *set; /* that it belongs to, or NULL */
	struct wait_object *next_in_set;
	atomic_uint word; /* of those that wait for it in calls */
	bool armed;
};

/* How one goes on who sleeps again and again. */
struct wait_pace {
	uint32_t uncertain; /* sleeps in a row that might miss what comes */
	uint32_t fruitless; /* wakes in a row for nothing */
};

/* ---- a domain's endpoints, with the domain's lock held ---- */

/* Poll each endpoint's hot rings. Returns what messenger_progress() does, of all. */
uint32_t domain_progress(struct domain *domain);
/* Poll everything, as before and after a sleep. Returns the same. */
uint32_t domain_progress_full(struct domain *domain);
/* Each endpoint's senders must ring from here on. Pairs with domain_sleep_end(). */
void domain_sleep_begin(struct domain *domain);
void domain_sleep_end(struct domain *domain);
/* Add what ends a sleep. Returns whether everything that can come does. */
bool domain_watch(struct domain *domain, struct sleep_watch *watch);
/* Begin to sleep, or end it, on behalf of calls that come later: see idle.c, wait_arm(). */
void domain_sleep_arm(struct domain *domain);
void domain_sleep_disarm(struct domain *domain);
/* An endpoint was enabled: those who sleep must hear of its doorbells. */
void domain_joined(struct domain *domain, struct transport *transport);
/* Wake those waiters whose objects are ready. */
void domain_wake_waiters(struct domain *domain);
/* Take a waiter out of the list. Returns whether it was there. */
bool domain_forget_waiter(struct domain *domain, const struct waiter *waiter);

/* ---- without it ---- */

/*
 * When the next sleep ends at the latest: `certain` is domain_watch()'s answer. A sleeper that is
 * rung and rung for nothing stops listening to it for a while: `watch` is emptied.
 */
uint64_t wait_deadline(struct wait_pace *pace, struct sleep_watch *watch, bool certain, uint64_t until);
/* Call it after each sleep; `found` is what there was after it. */
void wait_slept(struct wait_pace *pace, enum sleep_end end, uint32_t found);

/*
 * Wait until the waiter is ready or `until` (monotonic_now(), nanoseconds; UINT64_MAX for
 * ever) has come. Polls for some microseconds, then sleeps, unless VICINAL_PROGRESS=poll.
 * Returns whether it is ready.
 */
bool wait_until_ready(struct domain *domain, struct waiter *waiter, uint64_t until);
/* The end of a time limit in milliseconds; -1 is none. */
uint64_t wait_end(int timeout);

/* ---- wait objects ---- */

/*
 * Make the wait object of a queue or counter, as its attributes ask. `ready` says whether the
 * object is worth reading. Returns 0 or -FI_ENOSYS, -FI_EINVAL, -FI_EAGAIN.
 */
int wait_open(struct wait_object *object, struct domain *domain, enum fi_wait_obj kind, struct fid_wait *set,
	      bool (*ready)(const struct waiter *waiter));
void wait_close(struct wait_object *object);
/* FI_GETWAIT and FI_GETWAITOBJ. */
int wait_control(const struct wait_object *object, int command, void *argument);
/* Wake the threads that wait for the object, whether or not it is ready. */
void wait_signal(struct wait_object *object);
/* For fi_trywait(): 0 if its descriptor becomes readable once the object is ready, else -FI_EAGAIN. */
int wait_arm(struct wait_object *object);

/* wait_set.c */
int wait_set_open(struct fid_fabric *fabric, struct fi_wait_attr *attributes, struct fid_wait **set);
/* wait_object.c: fi_trywait() */
int wait_try(struct fid_fabric *fabric, struct fid **fids, int count);
/* poll.c */
int poll_open(struct fid_domain *domain, struct fi_poll_attr *attributes, struct fid_poll **poll);

/* watch.c: the domain's thread. Start it if it does not run; false if the system has none to give. */
bool watch_start(struct domain *domain);
void watch_stop(struct domain *domain);

#endif
