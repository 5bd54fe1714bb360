/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait_object.c - wait objects of queues and counters, and fi_trywait().
 *
 * A descriptor is an eventfd. fi_trywait() empties and arms it. From then on, the call that makes the object
 * ready makes the descriptor readable, until the next fi_trywait(). Objects that are not armed cost nothing,
 * so a program that reads in a loop does not pay for its descriptor.
 */
#include "api/provider.h"

#include "api/wait_set.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* If every poll finds something, the application may as well continue reading: see wait_arm(). */
#define POLLS_MAX 64U

int wait_descriptor_open(void)
{
	return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

void wait_descriptor_empty(int descriptor)
{
	uint64_t count = 0;

	(void)!read(descriptor, &count, sizeof(count));
}

/*
 * The domain's thread serves descriptors. So the domain needs its lock even if the application promised to
 * serialise its calls. The application serialises this call too, so the lock is free.
 */
static int serve(struct domain *domain)
{
	if (!domain->locking)
		domain->locking = true;
	domain_lock(domain);
	bool started = watch_start(domain);
	domain_unlock(domain);
	return started ? 0 : -FI_EAGAIN;
}

int wait_open(struct wait_object *object, struct domain *domain, enum fi_wait_obj kind, struct fid_wait *set,
	      bool (*ready)(const struct waiter *waiter))
{
	object->domain = domain;
	object->kind = kind;
	object->waiter = (struct waiter){.ready = ready, .descriptor = -1};
	switch (kind) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_YIELD:
		return 0;
	case FI_WAIT_FD:
		object->waiter.descriptor = wait_descriptor_open();
		if (object->waiter.descriptor < 0)
			return -FI_EMFILE;
		break;
	case FI_WAIT_SET:
		if (set == NULL)
			return -FI_EINVAL;
		wait_set_add((struct wait_set *)(void *)set, object);
		break;
	default:
		return -FI_ENOSYS;
	}
	int result = serve(domain);
	if (result != 0)
		wait_close(object);
	return result;
}

void wait_close(struct wait_object *object)
{
	struct domain *domain = object->domain;

	if (object->waiter.descriptor < 0)
		return;
	domain_lock(domain);
	if (domain_forget_waiter(domain, &object->waiter))
		domain->armed--;
	domain_unlock(domain);
	if (object->set != NULL)
		wait_set_remove(object->set, object);
	else
		(void)close(object->waiter.descriptor);
	object->waiter.descriptor = -1;
}

int wait_describe(enum fi_wait_obj kind, int descriptor, int command, void *argument)
{
	switch (command) {
	case FI_GETWAIT:
		if (kind != FI_WAIT_FD)
			return -FI_ENODATA;
		*(int *)argument = descriptor;
		return 0;
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)argument = kind;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

int wait_control(const struct wait_object *object, int command, void *argument)
{
	return wait_describe(object->kind, object->waiter.descriptor, command, argument);
}

void wait_signal(struct wait_object *object)
{
	sleep_wake_private(&object->word);
	if (object->waiter.descriptor >= 0)
		(void)!write(object->waiter.descriptor, &(uint64_t){1}, sizeof(uint64_t));
}

static void arm(struct wait_object *object)
{
	struct domain *domain = object->domain;

	if (object->armed)
		return;
	object->armed = true;
	object->waiter.next = domain->waiters;
	domain->waiters = &object->waiter;
	domain->armed++;
	/*
	 * The thread sleeps on doorbells. A message that waits for room has no doorbell, and needs the thread
	 * sooner.
	 */
	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL && endpoint->messenger->transport->short_of_room) {
			sleep_wake_private(&domain->thread_word);
			break;
		}
}

int wait_arm(struct wait_object *object)
{
	struct domain *domain = object->domain;

	if (object->waiter.descriptor < 0)
		return -FI_EINVAL;
	domain_lock(domain);
	/* Only later events make it readable again. */
	if (object->kind == FI_WAIT_FD)
		wait_descriptor_empty(object->waiter.descriptor);
	domain_sleep_arm(domain);
	bool quiet = false;
	for (uint32_t polls = 0; polls < POLLS_MAX && !quiet && !object->waiter.ready(&object->waiter);
	     polls++)
		quiet = domain_progress_full(domain) == 0;
	bool may_wait = quiet && !object->waiter.ready(&object->waiter);
	if (may_wait)
		arm(object);
	else
		domain_sleep_disarm(domain);
	domain_unlock(domain);
	return may_wait ? 0 : -FI_EAGAIN;
}

static int try_one(struct fid *fid)
{
	switch (fid->fclass) {
	case FI_CLASS_CQ:
		return wait_arm(&((struct cq *)(void *)fid)->wait);
	case FI_CLASS_CNTR:
		return wait_arm(&((struct cntr *)(void *)fid)->wait);
	case FI_CLASS_WAIT:
		return wait_set_arm((struct wait_set *)(void *)fid);
	case FI_CLASS_EQ:
		/*
		 * An event queue has no descriptor. Only the application itself causes its events, so none
		 * comes unnoticed.
		 */
		return eq_has_any((struct eq *)(void *)fid) ? -FI_EAGAIN : 0;
	default:
		return -FI_EINVAL;
	}
}

int wait_try(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int result = 0;

	(void)fabric;
	for (int i = 0; i < count && result == 0; i++)
		result = try_one(fids[i]);
	return result;
}
