/* SPDX-License-Identifier: BSD-3-Clause */
/* cntr.c - counters of completed operations, and of peers' accesses to registered memory. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

static void progress(struct cntr *cntr)
{
	if (!domain_poll_while_armed(cntr->domain))
		return;
	/* Peers may reach a memory region through any endpoint. */
	if (cntr->region_count > 0) {
		(void)domain_progress(cntr->domain);
		return;
	}
	for (size_t i = 0; i < cntr->endpoints.count; i++)
		if (cntr->endpoints.items[i]->messenger != NULL)
			(void)messenger_progress(cntr->endpoints.items[i]->messenger);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct cntr *cntr = (struct cntr *)(void *)fid;

	domain_lock(cntr->domain);
	progress(cntr);
	uint64_t value = cntr->counter.value;
	/* New values make an armed sleep unnecessary. */
	if (cntr_is_news(cntr))
		domain_found(cntr->domain);
	cntr_note_seen(cntr);
	domain_unlock(cntr->domain);
	return value;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct cntr *cntr = (struct cntr *)(void *)fid;

	domain_lock(cntr->domain);
	uint64_t errors = cntr->counter.errors;
	domain_unlock(cntr->domain);
	return errors;
}

/* Sets a number, or adds to it. */
static int change(struct fid_cntr *fid, bool errors, bool add, uint64_t by)
{
	struct cntr *cntr = (struct cntr *)(void *)fid;
	uint64_t *number = errors ? &cntr->counter.errors : &cntr->counter.value;

	domain_lock(cntr->domain);
	*number = add ? *number + by : by;
	domain_unlock(cntr->domain); /* wakes threads that wait for the counter */
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, false, true, value);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, true, true, value);
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, false, false, value);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t errors)
{
	return change(fid, true, false, errors);
}

/* A call that waits until the counter reaches a value or counts an error. */
struct cntr_waiter {
	struct waiter waiter; /* must be first */
	struct cntr *cntr;
	uint64_t threshold;
	uint64_t errors;
};

static bool has_reached(const struct waiter *waiter)
{
	const struct cntr_waiter *self = (const struct cntr_waiter *)(const void *)waiter;

	return self->cntr->counter.value >= self->threshold || self->cntr->counter.errors != self->errors;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct cntr *cntr = (struct cntr *)(void *)fid;
	struct cntr_waiter self = {
		.waiter = {.ready = has_reached, .word = &cntr->wait.word, .descriptor = -1},
		.cntr = cntr,
		.threshold = threshold,
		.errors = cntr_readerr(fid),
	};

	if (!wait_until_ready(cntr->domain, &self.waiter, wait_end(timeout)))
		return -FI_ETIMEDOUT;
	return cntr_read(fid) >= threshold ? 0 : -FI_EAVAIL;
}

static int cntr_close(struct fid *fid)
{
	struct cntr *cntr = (struct cntr *)(void *)fid;

	if (cntr->endpoints.count > 0 || cntr->region_count > 0 || atomic_load(&cntr->users) != 0)
		return -FI_EBUSY;
	wait_close(&cntr->wait);
	atomic_fetch_sub(&cntr->domain->objects, 1);
	free(cntr->endpoints.items);
	free(cntr);
	return 0;
}

static int cntr_control(struct fid *fid, int command, void *argument)
{
	return wait_control(&((struct cntr *)(void *)fid)->wait, command, argument);
}

static struct fi_ops cntr_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = refuse_bind,
	.control = cntr_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_cntr cntr_operations = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
	.wait = cntr_wait,
	.adderr = cntr_adderr,
	.seterr = cntr_seterr,
};

/* For the wait object: whether the counter changed since the last read. */
static bool has_changed(const struct waiter *waiter)
{
	const struct cntr *cntr =
		(const struct cntr *)(const void *)((const char *)waiter - offsetof(struct cntr, wait));

	return cntr_is_news(cntr);
}

int cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attributes, struct fid_cntr **opened,
	      void *context)
{
	if (attributes != NULL && attributes->events != FI_CNTR_EVENTS_COMP)
		return -FI_ENOSYS;
	struct cntr *cntr = calloc(1, sizeof(*cntr));
	if (cntr == NULL)
		return -FI_ENOMEM;
	cntr->domain = (struct domain *)(void *)domain;
	int result = wait_open(&cntr->wait, cntr->domain,
			       attributes != NULL ? attributes->wait_obj : FI_WAIT_UNSPEC,
			       attributes != NULL ? attributes->wait_set : NULL, has_changed);
	if (result != 0) {
		free(cntr);
		return result;
	}
	atomic_fetch_add(&cntr->domain->objects, 1);
	cntr->fid.fid.fclass = FI_CLASS_CNTR;
	cntr->fid.fid.context = context;
	cntr->fid.fid.ops = &cntr_fid_operations;
	cntr->fid.ops = &cntr_operations;
	*opened = &cntr->fid;
	return 0;
}
