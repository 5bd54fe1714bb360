/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * watch.c - the domain's thread. It makes progress if the application asked for FI_PROGRESS_AUTO, and while
 * the application waits on a descriptor (FI_WAIT_FD).
 *
 * The thread sleeps until a peer rings. Senders ring only while nobody polls, and a ring costs them a system
 * call. So while the application polls by itself, the thread does not ask for rings, and only checks now and
 * then whether the application still polls.
 */
#include "api/provider.h"

#include <signal.h>

/*
 * How often the thread checks while the application makes calls. An event just after the last call waits that
 * long. 5000 checks a second take 2 % of a core.
 */
#define VISIT_NANOSECONDS 200000U

/* The polls of the domain's rings so far, by all threads. */
static uint64_t count_polls(const struct domain *domain)
{
	uint64_t polls = 0;

	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			polls += endpoint->messenger->transport->polls;
	return polls;
}

/*
 * Makes progress, and sleeps if there is none to make. `polls` is the number of polls before. While no
 * descriptor is armed, the thread sleeps on the same words, so arming one need not wake it.
 */
static void go_round(struct domain *domain, struct wait_pace *pace, uint64_t *polls)
{
	uint32_t seen = atomic_load_explicit(&domain->thread_word, memory_order_acquire);
	struct sleep_watch watch;
	bool certain = true;
	uint64_t longest = LIVENESS_INTERVAL;

	sleep_watch_open(&watch);
	domain_lock(domain);
	bool application_polls = domain->automatic && count_polls(domain) != *polls;
	bool guard = domain->automatic ? !application_polls : domain->armed > 0;
	if (guard)
		domain_sleep_begin(domain);
	uint32_t found = domain_progress_full(domain);
	*polls = count_polls(domain);
	if (application_polls)
		longest = VISIT_NANOSECONDS;
	else if (found == 0)
		certain = domain_watch(domain, &watch) || !guard;
	sleep_on_private(&watch, &domain->thread_word, seen);
	domain_unlock(domain); /* wakes waiters whose objects are ready */

	if (found == 0) {
		uint64_t until = monotonic_now() + longest;
		wait_slept(pace, sleep_until(&watch, wait_deadline(pace, &watch, certain, until)), 0);
	} else {
		*pace = (struct wait_pace){0};
	}
	if (guard) {
		domain_lock(domain);
		domain_sleep_end(domain);
		domain_unlock(domain);
	}
}

static void *watch(void *argument)
{
	struct domain *domain = argument;
	struct wait_pace pace = {0};
	uint64_t polls = 0;

	while (!atomic_load_explicit(&domain->stop, memory_order_relaxed))
		go_round(domain, &pace, &polls);
	return NULL;
}

/* The thread blocks signals: they are for the application's threads. */
bool watch_start(struct domain *domain)
{
	sigset_t all;
	sigset_t before;

	if (domain->watched)
		return true;
	(void)sigfillset(&all);
	(void)sigdelset(&all, SIGBUS); /* for faults in the thread itself: see region/guard.h */
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	domain->watched = pthread_create(&domain->thread, NULL, watch, domain) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return domain->watched;
}

void watch_stop(struct domain *domain)
{
	if (!domain->watched)
		return;
	atomic_store_explicit(&domain->stop, true, memory_order_relaxed);
	sleep_wake_private(&domain->thread_word);
	(void)pthread_join(domain->thread, NULL);
	domain->watched = false;
}
