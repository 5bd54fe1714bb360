/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * process.c - the domains of this process, and what a fork does to them.
 *
 * A forked child inherits its parent's mapping of the region, descriptors and locks, and must use none of
 * them: two writers would ruin the rings, and a lock that the child holds would make the parent look alive
 * after its death. So the child loses its parent's memberships before it runs. The descriptors that hold the
 * locks are closed, all peers count as gone, and the mapping becomes private. The child can close the
 * inherited objects, and open a domain of its own.
 */
#include "api/provider.h"

#include "api/wait_set.h"
#include "proto/atomic_operations.h"
#include "region/fork.h"

static struct domain *domains;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* No thread may be inside a call on objects that the child inherits. */
static void before_fork(void)
{
	wait_sets_lock();
	(void)pthread_mutex_lock(&mutex);
	for (struct domain *domain = domains; domain != NULL; domain = domain->next)
		domain_lock(domain);
	atomic_operations_lock();
}

static void in_parent(void)
{
	atomic_operations_unlock();
	for (struct domain *domain = domains; domain != NULL; domain = domain->next)
		domain_unlock(domain);
	(void)pthread_mutex_unlock(&mutex);
	wait_sets_unlock();
}

static void in_child(void)
{
	atomic_operations_unlock();
	for (struct domain *domain = domains; domain != NULL; domain = domain->next) {
		for (uint32_t i = 0; i < domain->region_count; i++)
			region_after_fork(domain->regions[i]);
		for (struct endpoint *endpoint = domain->endpoints; endpoint != NULL;
		     endpoint = endpoint->next)
			if (endpoint->messenger != NULL)
				transport_after_fork(endpoint->messenger->transport);
		/* The child has none of its parent's other threads: neither the domain's nor waiting ones. */
		domain->watched = false;
		domain->waiters = NULL;
		domain_unlock(domain);
	}
	(void)pthread_mutex_unlock(&mutex);
	wait_sets_unlock();
}

static void listen_to_forks(void)
{
	/*
	 * Register these handlers first, so that their locks are taken after those of the domains, as in a
	 * call.
	 */
	fork_watch();
	(void)pthread_atfork(before_fork, in_parent, in_child);
}

void process_add(struct domain *domain)
{
	(void)pthread_once(&once, listen_to_forks);
	(void)pthread_mutex_lock(&mutex);
	domain->next = domains;
	domains = domain;
	(void)pthread_mutex_unlock(&mutex);
}

void process_remove(struct domain *domain)
{
	(void)pthread_mutex_lock(&mutex);
	for (struct domain **link = &domains; *link != NULL; link = &(*link)->next)
		if (*link == domain) {
			*link = domain->next;
			break;
		}
	(void)pthread_mutex_unlock(&mutex);
}

uint32_t process_finds(void)
{
	uint32_t finds = 0;

	(void)pthread_mutex_lock(&mutex);
	for (const struct domain *domain = domains; domain != NULL; domain = domain->next)
		finds += atomic_load_explicit(&domain->finds, memory_order_relaxed);
	(void)pthread_mutex_unlock(&mutex);
	return finds;
}
