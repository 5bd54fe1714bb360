/* SPDX-License-Identifier: BSD-3-Clause */
/* wait_set.c - wait sets: one descriptor for queues and counters, also of several domains. */
#include "api/wait_set.h"

#include "api/provider.h"
#include "api/refused.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct wait_set {
	struct fid_wait fid;
	struct fabric *fabric;
	enum fi_wait_obj kind;
	int descriptor;
	struct wait_object *objects;
};

/*
 * Guards the lists of all sets; taken before a domain's lock. One lock serves all sets, so that a forking
 * thread can take it, and the child can close what it inherits: process.c.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void wait_sets_lock(void)
{
	(void)pthread_mutex_lock(&mutex);
}

void wait_sets_unlock(void)
{
	(void)pthread_mutex_unlock(&mutex);
}

void wait_set_add(struct wait_set *set, struct wait_object *object)
{
	wait_sets_lock();
	object->set = set;
	object->waiter.descriptor = set->descriptor;
	object->next_in_set = set->objects;
	set->objects = object;
	wait_sets_unlock();
}

void wait_set_remove(struct wait_set *set, struct wait_object *object)
{
	wait_sets_lock();
	for (struct wait_object **link = &set->objects; *link != NULL; link = &(*link)->next_in_set)
		if (*link == object) {
			*link = object->next_in_set;
			break;
		}
	wait_sets_unlock();
}

int wait_set_arm(struct wait_set *set)
{
	int result = 0;

	wait_descriptor_empty(set->descriptor);
	wait_sets_lock();
	for (struct wait_object *object = set->objects; object != NULL && result == 0;
	     object = object->next_in_set)
		result = wait_arm(object);
	wait_sets_unlock();
	return result;
}

static int set_wait(struct fid_wait *fid, int timeout)
{
	struct wait_set *set = (struct wait_set *)(void *)fid;
	struct pollfd polled = {.fd = set->descriptor, .events = POLLIN};

	if (wait_set_arm(set) != 0)
		return 0;
	int result = poll(&polled, 1, timeout);
	if (result < 0)
		return -errno;
	return result > 0 ? 0 : -FI_ETIMEDOUT;
}

static int set_close(struct fid *fid)
{
	struct wait_set *set = (struct wait_set *)(void *)fid;

	if (set->objects != NULL)
		return -FI_EBUSY;
	(void)close(set->descriptor);
	atomic_fetch_sub(&set->fabric->objects, 1);
	free(set);
	return 0;
}

static int set_control(struct fid *fid, int command, void *argument)
{
	const struct wait_set *set = (const struct wait_set *)(const void *)fid;

	return wait_describe(set->kind, set->descriptor, command, argument);
}

static struct fi_ops set_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = set_close,
	.bind = refuse_bind,
	.control = set_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_wait set_operations = {
	.size = sizeof(struct fi_ops_wait),
	.wait = set_wait,
};

int wait_set_open(struct fid_fabric *fabric, struct fi_wait_attr *attributes, struct fid_wait **opened)
{
	enum fi_wait_obj kind = attributes->wait_obj;

	if (kind != FI_WAIT_UNSPEC && kind != FI_WAIT_FD)
		return -FI_ENOSYS;
	struct wait_set *set = calloc(1, sizeof(*set));
	if (set == NULL)
		return -FI_ENOMEM;
	set->descriptor = wait_descriptor_open();
	if (set->descriptor < 0) {
		free(set);
		return -FI_EMFILE;
	}
	set->kind = kind;
	set->fabric = (struct fabric *)(void *)fabric;
	atomic_fetch_add(&set->fabric->objects, 1);
	set->fid.fid.fclass = FI_CLASS_WAIT;
	set->fid.fid.ops = &set_fid_operations;
	set->fid.ops = &set_operations;
	*opened = &set->fid;
	return 0;
}
