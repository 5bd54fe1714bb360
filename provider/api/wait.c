/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c - calls that wait, and how a domain goes to sleep and is woken. */
#include "api/provider.h"

#include <unistd.h>

/*
 * How long a call polls before it sleeps. To fall asleep and be woken takes 5 us or more, so an event that
 * arrives soon is not worth a sleep. With VICINAL_PROGRESS=block the user accepts that cost.
 */
#define POLL_NANOSECONDS_ADAPTIVE 20000U
#define POLL_NANOSECONDS_BLOCK 2000U
/* Polls for each reading of the clock. */
#define POLLS_PER_CLOCK 16U
/* After this many wakes in a row without an event, a peer rings only to keep this process awake. */
#define FRUITLESS_MAX 64U

/* ---- a domain's endpoints ---- */

uint32_t domain_progress(struct domain *domain)
{
	uint32_t found = 0;

	for (struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			found += messenger_progress(endpoint->messenger);
	return found;
}

uint32_t domain_progress_full(struct domain *domain)
{
	uint32_t found = 0;

	for (struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next) {
		if (endpoint->messenger == NULL)
			continue;
		/* Waiting messages may have room by now: no doorbell announces that. */
		endpoint->messenger->send_queues.polls_to_skip = 0;
		found += transport_progress_full(endpoint->messenger->transport);
	}
	return found + domain_progress(domain);
}

void domain_sleep_begin(struct domain *domain)
{
	if (domain->sleepers++ > 0)
		return;
	for (struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			transport_sleep_begin(endpoint->messenger->transport);
}

void domain_sleep_end(struct domain *domain)
{
	if (--domain->sleepers > 0)
		return;
	for (struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			transport_sleep_end(endpoint->messenger->transport);
}

bool domain_watch(struct domain *domain, struct sleep_watch *watch)
{
	bool certain = true;

	for (struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			certain = transport_sleep_watch(endpoint->messenger->transport, watch) && certain;
	return certain;
}

void domain_sleep_arm(struct domain *domain)
{
	if (domain->sleep_armed)
		return;
	domain->sleep_armed = true;
	domain_sleep_begin(domain);
}

void domain_sleep_disarm(struct domain *domain)
{
	if (!domain->sleep_armed)
		return;
	domain->sleep_armed = false;
	domain_sleep_end(domain);
}

void domain_joined(struct domain *domain, struct transport *transport)
{
	if (domain->sleepers == 0)
		return;
	transport_sleep_begin(transport);
	for (const struct waiter *waiter = domain->waiters; waiter != NULL; waiter = waiter->next)
		if (waiter->word != NULL)
			sleep_wake_private(waiter->word);
	sleep_wake_private(&domain->thread_word);
}

/* A waiter that was woken leaves the list, so it is woken once. */
__attribute__((cold, noinline)) void domain_wake_waiters(struct domain *domain)
{
	for (struct waiter **link = &domain->waiters; *link != NULL;) {
		struct waiter *waiter = *link;
		if (!waiter->ready(waiter)) {
			link = &waiter->next;
			continue;
		}
		*link = waiter->next;
		if (waiter->descriptor < 0) {
			sleep_wake_private(waiter->word);
			continue;
		}
		((struct wait_object *)(void *)waiter)->armed = false;
		domain->armed--;
		/* An eventfd blocks only near 2^64, which unread wakes never reach. */
		(void)!write(waiter->descriptor, &(uint64_t){1}, sizeof(uint64_t));
	}
}

bool domain_forget_waiter(struct domain *domain, const struct waiter *waiter)
{
	for (struct waiter **link = &domain->waiters; *link != NULL; link = &(*link)->next)
		if (*link == waiter) {
			*link = waiter->next;
			return true;
		}
	return false;
}

/* ---- pace ---- */

uint64_t wait_deadline(struct wait_pace *pace, struct sleep_watch *watch, bool certain, uint64_t until)
{
	uint64_t now = monotonic_now();
	uint64_t longest = LIVENESS_INTERVAL;

	if (pace->fruitless > FRUITLESS_MAX) {
		sleep_watch_open(watch);
		longest = sleep_pause(pace->fruitless - FRUITLESS_MAX);
	} else if (!certain) {
		longest = sleep_pause(pace->uncertain++);
	}
	return until < now + longest ? until : now + longest;
}

void wait_slept(struct wait_pace *pace, enum sleep_end end, uint32_t found)
{
	if (found > 0)
		*pace = (struct wait_pace){0};
	else if (end == SLEEP_RUNG)
		pace->fruitless++;
	else if (pace->fruitless <= FRUITLESS_MAX)
		pace->fruitless = 0;
}

/* ---- calls that wait ---- */

/* Sleeps once, if there is nothing to do. Returns what was found before the sleep. */
static uint32_t sleep_once(struct domain *domain, struct waiter *waiter, uint64_t until,
			   struct wait_pace *pace)
{
	struct sleep_watch watch;
	uint32_t seen = atomic_load_explicit(waiter->word, memory_order_acquire);

	domain_lock(domain);
	domain_sleep_begin(domain);
	uint32_t found = domain_progress_full(domain);
	if (found > 0 || waiter->ready(waiter)) {
		domain_sleep_end(domain);
		domain_unlock(domain);
		*pace = (struct wait_pace){0};
		return found;
	}
	sleep_watch_open(&watch);
	bool certain = domain_watch(domain, &watch);
	sleep_on_private(&watch, waiter->word, seen);
	waiter->next = domain->waiters;
	domain->waiters = waiter;
	domain_unlock(domain);

	enum sleep_end end = sleep_until(&watch, wait_deadline(pace, &watch, certain, until));

	domain_lock(domain);
	(void)domain_forget_waiter(domain, waiter);
	domain_sleep_end(domain);
	domain_unlock(domain);
	wait_slept(pace, end, 0);
	return 0;
}

uint64_t wait_end(int timeout)
{
	return timeout < 0 ? UINT64_MAX : monotonic_now() + (uint64_t)timeout * 1000000U;
}

bool wait_until_ready(struct domain *domain, struct waiter *waiter, uint64_t until)
{
	enum progress_mode mode = domain->mode;
	uint64_t patience = mode == PROGRESS_BLOCK ? POLL_NANOSECONDS_BLOCK : POLL_NANOSECONDS_ADAPTIVE;
	uint64_t poll_until = monotonic_now() + patience;
	struct wait_pace pace = {0};

	for (uint32_t polls = 1;; polls++) {
		domain_lock(domain);
		uint32_t found = domain_progress(domain);
		bool ready = waiter->ready(waiter);
		domain_unlock(domain);
		if (ready)
			return true;
		if (found == 0 && polls % POLLS_PER_CLOCK != 0) {
			cpu_pause();
			continue;
		}
		uint64_t now = monotonic_now();
		if (now >= until)
			return false;
		if (found > 0) {
			poll_until = now + patience;
			pace = (struct wait_pace){0};
		}
		if (mode == PROGRESS_POLL || now < poll_until)
			continue;
		if (sleep_once(domain, waiter, until, &pace) > 0)
			poll_until = monotonic_now() + patience;
		/* After one more poll, for the event that woke this thread, the clock is read. */
		polls = POLLS_PER_CLOCK - 2;
	}
}
