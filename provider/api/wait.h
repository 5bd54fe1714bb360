/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait.h - waiting for completions without using processor time.
 *
 * A domain sleeps as a whole, over the rings of all its endpoints, so that events of every endpoint are
 * handled. There are three kinds of sleepers:
 *
 *   wait.c   a call that waits (fi_cq_sread, fi_cntr_wait), until its object is ready
 *   idle.c   an application that reads in a loop and finds nothing, for short times
 *   watch.c  the domain's thread, for automatic progress and for descriptors
 *
 * A call that makes an object ready wakes that object's waiters when it releases the domain's lock.
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

/* VICINAL_PROGRESS: what a process does while it waits. */
enum progress_mode {
	PROGRESS_POLL,     /* always poll */
	PROGRESS_ADAPTIVE, /* poll for a while, then offer the core, then sleep */
	PROGRESS_BLOCK,    /* sleep after some microseconds */
};

/* A call or object that waits, in domain.waiters meanwhile. The domain's lock guards it. */
struct waiter {
	struct waiter *next;
	bool (*ready)(const struct waiter *waiter);
	atomic_uint *word; /* changed to wake the waiter, or NULL */
	int descriptor;    /* made readable to wake the waiter, or -1 */
};

/* The wait object of a queue or counter. */
struct wait_object {
	struct waiter waiter; /* must be first: in domain.waiters while armed */
	struct domain *domain;
	enum fi_wait_obj kind;
	struct wait_set *set; /* the wait set that contains it, or NULL */
	struct wait_object *next_in_set;
	atomic_uint word; /* calls that wait for the object sleep on it */
	bool armed;
};

/* How long repeated sleeps last. */
struct wait_pace {
	uint32_t uncertain; /* sleeps in a row that might miss an event */
	uint32_t fruitless; /* wakes in a row without an event */
};

/* ---- a domain's endpoints, with the domain's lock held ---- */

/* Polls the hot rings of all endpoints. Returns the sum of messenger_progress(). */
uint32_t domain_progress(struct domain *domain);
/* Polls everything, as before and after a sleep. Returns the same sum. */
uint32_t domain_progress_full(struct domain *domain);
/* From here on, senders must ring. Pairs with domain_sleep_end(). */
void domain_sleep_begin(struct domain *domain);
void domain_sleep_end(struct domain *domain);
/* Adds the words whose change ends a sleep. Returns whether every event changes one of them. */
bool domain_watch(struct domain *domain, struct sleep_watch *watch);
/* Begin and end a sleep on behalf of later calls: see idle.c and wait_arm(). */
void domain_sleep_arm(struct domain *domain);
void domain_sleep_disarm(struct domain *domain);
/* An endpoint was enabled: sleepers must add its doorbells to their watch. */
void domain_joined(struct domain *domain, struct transport *transport);
/* Wakes waiters whose objects are ready. */
void domain_wake_waiters(struct domain *domain);
/* Removes a waiter from the list. Returns whether it was there. */
bool domain_forget_waiter(struct domain *domain, const struct waiter *waiter);

/* ---- without the domain's lock ---- */

/*
 * The latest end of the next sleep. `certain` is the result of domain_watch(). If too many wakes in a row
 * brought no event, the sleeper ignores doorbells for a while: `watch` is emptied.
 */
uint64_t wait_deadline(struct wait_pace *pace, struct sleep_watch *watch, bool certain, uint64_t until);
/* Called after each sleep; `found` is what the poll after it found. */
void wait_slept(struct wait_pace *pace, enum sleep_end end, uint32_t found);

/*
 * Waits until the waiter is ready, or until `until` (monotonic_now(), in nanoseconds; UINT64_MAX for ever).
 * Polls for some microseconds, then sleeps, unless VICINAL_PROGRESS=poll. Returns whether the waiter is
 * ready.
 */
bool wait_until_ready(struct domain *domain, struct waiter *waiter, uint64_t until);
/* The end of a timeout in milliseconds; -1 means none. */
uint64_t wait_end(int timeout);

/* ---- wait objects ---- */

/*
 * Initialises the wait object of a queue or counter, as its attributes ask. `ready` says whether the object
 * is worth reading. Returns 0, -FI_ENOSYS, -FI_EINVAL or -FI_EAGAIN.
 */
int wait_open(struct wait_object *object, struct domain *domain, enum fi_wait_obj kind, struct fid_wait *set,
	      bool (*ready)(const struct waiter *waiter));
void wait_close(struct wait_object *object);
/* FI_GETWAIT and FI_GETWAITOBJ. */
int wait_control(const struct wait_object *object, int command, void *argument);
/* Wakes threads that wait for the object, whether it is ready or not. */
void wait_signal(struct wait_object *object);
/*
 * For fi_trywait(). Returns 0 if the descriptor becomes readable once the object is ready, else -FI_EAGAIN.
 */
int wait_arm(struct wait_object *object);

/* wait_set.c */
int wait_set_open(struct fid_fabric *fabric, struct fi_wait_attr *attributes, struct fid_wait **set);
/* wait_object.c: fi_trywait() */
int wait_try(struct fid_fabric *fabric, struct fid **fids, int count);
/* poll.c */
int poll_open(struct fid_domain *domain, struct fi_poll_attr *attributes, struct fid_poll **poll);

/*
 * watch.c: the domain's thread. watch_start() returns true if it runs already, and false if the system cannot
 * create a thread.
 */
bool watch_start(struct domain *domain);
void watch_stop(struct domain *domain);

#endif
