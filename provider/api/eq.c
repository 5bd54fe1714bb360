/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * eq.c - event queues: insertions into address vectors that asked for events, and events that the application
 * writes. Peers cause no events, so only the application's threads contend for the lock, and no fast path
 * takes it.
 */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

struct eq_event {
	struct eq_event *next;
	uint32_t event;
	bool failed;
	struct fi_eq_err_entry error; /* only if `failed`; other events have `bytes` */
	size_t length;
	unsigned char bytes[];
};

static int add(struct eq *eq, const struct eq_event *event, const void *bytes)
{
	struct eq_event *added = malloc(sizeof(*added) + event->length);

	if (added == NULL)
		return -FI_ENOMEM;
	*added = *event;
	if (bytes != NULL)
		memcpy(added->bytes, bytes, event->length);
	(void)pthread_mutex_lock(&eq->mutex);
	*eq->end = added;
	eq->end = &added->next;
	sleep_wake_private(&eq->added);
	(void)pthread_mutex_unlock(&eq->mutex);
	return 0;
}

int eq_add(struct eq *eq, uint32_t event, const void *bytes, size_t length)
{
	return add(eq, &(struct eq_event){.event = event, .length = length}, bytes);
}

int eq_add_error(struct eq *eq, const struct fi_eq_err_entry *error)
{
	return add(eq, &(struct eq_event){.failed = true, .error = *error}, NULL);
}

bool eq_has_any(struct eq *eq)
{
	(void)pthread_mutex_lock(&eq->mutex);
	bool any = eq->first != NULL;
	(void)pthread_mutex_unlock(&eq->mutex);
	return any;
}

static void drop_first(struct eq *eq)
{
	struct eq_event *first = eq->first;

	eq->first = first->next;
	if (eq->first == NULL)
		eq->end = &eq->first;
	free(first);
}

/* Called with the lock held. */
static ssize_t take(struct eq *eq, uint32_t *event, void *buffer, size_t length, uint64_t flags)
{
	const struct eq_event *first = eq->first;

	if (first == NULL)
		return -FI_EAGAIN;
	if (first->failed)
		return -FI_EAVAIL;
	if (length < first->length)
		return -FI_ETOOSMALL;
	ssize_t result = (ssize_t)first->length;
	*event = first->event;
	if (result > 0)
		memcpy(buffer, first->bytes, first->length);
	if ((flags & FI_PEEK) == 0)
		drop_first(eq);
	return result;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buffer, size_t length, uint64_t flags)
{
	struct eq *eq = (struct eq *)(void *)fid;

	(void)pthread_mutex_lock(&eq->mutex);
	ssize_t result = take(eq, event, buffer, length, flags);
	(void)pthread_mutex_unlock(&eq->mutex);
	return result;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buffer, uint64_t flags)
{
	struct eq *eq = (struct eq *)(void *)fid;
	size_t length =
		eq->fabric->short_errors ? offsetof(struct fi_eq_err_entry, err_data_size) : sizeof(*buffer);
	ssize_t result = -FI_EAGAIN;

	(void)pthread_mutex_lock(&eq->mutex);
	if (eq->first != NULL && eq->first->failed) {
		memcpy(buffer, &eq->first->error, length);
		if ((flags & FI_PEEK) == 0)
			drop_first(eq);
		result = (ssize_t)length;
	}
	(void)pthread_mutex_unlock(&eq->mutex);
	return result;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t event, const void *buffer, size_t length, uint64_t flags)
{
	struct eq *eq = (struct eq *)(void *)fid;

	(void)flags;
	if (!eq->writable)
		return -FI_EINVAL;
	if (length > SSIZE_MAX - sizeof(struct eq_event))
		return -FI_EMSGSIZE;
	int result = eq_add(eq, event, buffer, length);
	return result == 0 ? (ssize_t)length : result;
}

/* `timeout` is in milliseconds; a negative one never ends. */
static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buffer, size_t length, int timeout,
			uint64_t flags)
{
	struct eq *eq = (struct eq *)(void *)fid;
	uint64_t until = wait_end(timeout);

	for (;;) {
		uint32_t seen = atomic_load_explicit(&eq->added, memory_order_acquire);
		ssize_t result = eq_read(fid, event, buffer, length, flags);
		if (result != -FI_EAGAIN || monotonic_now() >= until)
			return result;
		struct sleep_watch watch;
		sleep_watch_open(&watch);
		sleep_on_private(&watch, &eq->added, seen);
		(void)sleep_until(&watch, until);
	}
}

static const char *eq_strerror(struct fid_eq *fid, int error, const void *data, char *buffer, size_t length)
{
	const char *text = fi_strerror(error < 0 ? -error : error);

	(void)fid;
	(void)data;
	if (buffer == NULL || length == 0)
		return text;
	size_t copied = strlen(text) < length ? strlen(text) : length - 1;
	memcpy(buffer, text, copied);
	buffer[copied] = '\0';
	return buffer;
}

static int eq_close(struct fid *fid)
{
	struct eq *eq = (struct eq *)(void *)fid;

	if (atomic_load(&eq->bound) != 0)
		return -FI_EBUSY;
	while (eq->first != NULL)
		drop_first(eq);
	(void)pthread_mutex_destroy(&eq->mutex);
	atomic_fetch_sub(&eq->fabric->objects, 1);
	free(eq);
	return 0;
}

static struct fi_ops eq_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
	.bind = refuse_bind,
	.control = refuse_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_eq eq_operations = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
	.strerror = eq_strerror,
};

int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attributes, struct fid_eq **opened, void *context)
{
	/*
	 * The queue has no descriptor or other object to wait on: it can only be read, or waited for with
	 * fi_eq_sread().
	 */
	if (attributes != NULL && attributes->wait_obj != FI_WAIT_NONE &&
	    attributes->wait_obj != FI_WAIT_UNSPEC && attributes->wait_obj != FI_WAIT_YIELD)
		return -FI_ENOSYS;
	struct eq *eq = calloc(1, sizeof(*eq));
	if (eq == NULL)
		return -FI_ENOMEM;
	(void)pthread_mutex_init(&eq->mutex, NULL);
	eq->end = &eq->first;
	eq->writable = attributes != NULL && (attributes->flags & FI_WRITE) != 0;
	eq->fabric = (struct fabric *)(void *)fabric;
	atomic_fetch_add(&eq->fabric->objects, 1);
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fid_operations;
	eq->fid.ops = &eq_operations;
	*opened = &eq->fid;
	return 0;
}
