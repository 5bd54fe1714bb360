/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - binding, options, names and closing of endpoints. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>
#include <time.h>

/* A close that takes longer than this prints what it waits for. */
#define CLOSING_NANOSECONDS UINT64_C(1000000000)

/* ---- binding ---- */

int endpoint_list_add(struct endpoint_list *list, struct endpoint *endpoint)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i] == endpoint)
			return 0;
	struct endpoint **grown = realloc(list->items, (list->count + 1) * sizeof(*grown));
	if (grown == NULL)
		return -FI_ENOMEM;
	list->items = grown;
	list->items[list->count++] = endpoint;
	return 0;
}

void endpoint_list_remove(struct endpoint_list *list, const struct endpoint *endpoint)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i] == endpoint) {
			list->items[i] = list->items[--list->count];
			return;
		}
}

/*
 * A binding is final. A counter that was replaced would keep an endpoint in its list that does not know the
 * counter.
 */
static int bind_av(struct endpoint *endpoint, struct av *av)
{
	if (av->domain != endpoint->domain || (endpoint->av != NULL && endpoint->av != av))
		return -FI_EINVAL;
	endpoint->av = av;
	return 0;
}

static int bind_cq(struct endpoint *endpoint, struct cq *cq, uint64_t flags)
{
	bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
	bool sends = (flags & FI_TRANSMIT) != 0;
	bool receives = (flags & FI_RECV) != 0;

	if (cq->domain != endpoint->domain || (!sends && !receives) ||
	    (sends && endpoint->send_cq != NULL && endpoint->send_cq != cq) ||
	    (receives && endpoint->receive_cq != NULL && endpoint->receive_cq != cq))
		return -FI_EINVAL;
	if (sends) {
		endpoint->send_cq = cq;
		endpoint->send_selective = selective;
	}
	if (receives) {
		endpoint->receive_cq = cq;
		endpoint->receive_selective = selective;
	}
	return 0;
}

static int bind_cntr(struct endpoint *endpoint, struct cntr *cntr, uint64_t flags)
{
	const struct {
		uint64_t flag;
		struct cntr **cntr;
	} counted[] = {
		{FI_SEND, &endpoint->send_cntr},
		{FI_RECV, &endpoint->receive_cntr},
		{FI_READ, &endpoint->read_cntr},
		{FI_WRITE, &endpoint->write_cntr},
		{FI_REMOTE_READ, &endpoint->remote_read_cntr},
		{FI_REMOTE_WRITE, &endpoint->remote_write_cntr},
	};
	const size_t kinds = sizeof(counted) / sizeof(counted[0]);
	bool any = false;

	for (size_t i = 0; i < kinds; i++) {
		if ((flags & counted[i].flag) == 0)
			continue;
		any = true;
		if (*counted[i].cntr != NULL && *counted[i].cntr != cntr)
			return -FI_EINVAL;
	}
	if (cntr->domain != endpoint->domain || !any)
		return -FI_EINVAL;
	if (endpoint_list_add(&cntr->endpoints, endpoint) != 0)
		return -FI_ENOMEM;
	for (size_t i = 0; i < kinds; i++)
		if ((flags & counted[i].flag) != 0)
			*counted[i].cntr = cntr;
	return 0;
}

static int bind_to(struct endpoint *endpoint, struct fid *other, uint64_t flags)
{
	if (endpoint->messenger != NULL)
		return -FI_EOPBADSTATE;
	switch (other->fclass) {
	case FI_CLASS_AV:
		return bind_av(endpoint, (struct av *)(void *)other);
	case FI_CLASS_CQ:
		return bind_cq(endpoint, (struct cq *)(void *)other, flags);
	case FI_CLASS_CNTR:
		return bind_cntr(endpoint, (struct cntr *)(void *)other, flags);
	case FI_CLASS_EQ:
		return 0;
	default:
		return -FI_EINVAL;
	}
}

/* The lock is needed because another thread may read or close the queue or counter. */
static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;

	domain_lock(endpoint->domain);
	int result = bind_to(endpoint, other, flags);
	domain_unlock(endpoint->domain);
	return result;
}

/* Sets the default flags of calls without a flags argument, for the direction that `flags` contains. */
static int set_operation_flags(struct endpoint *endpoint, uint64_t flags)
{
	bool transmit = (flags & FI_TRANSMIT) != 0;
	uint64_t wanted = flags & ~(FI_TRANSMIT | FI_RECV);

	if ((wanted & ~(transmit ? TRANSMIT_FLAGS : RECEIVE_FLAGS)) != 0)
		return -FI_EBADFLAGS;
	if (transmit)
		endpoint->transmit_operation_flags = wanted;
	else
		endpoint->receive_operation_flags = wanted;
	endpoint_settle_flags(endpoint);
	return 0;
}

static int endpoint_control(struct fid *fid, int command, void *argument)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	uint64_t *flags = argument;
	int result = -FI_ENOSYS;

	/* The argument must name exactly one direction. */
	if ((command == FI_GETOPSFLAG || command == FI_SETOPSFLAG) &&
	    ((*flags & FI_TRANSMIT) != 0) == ((*flags & FI_RECV) != 0))
		return -FI_EINVAL;
	domain_lock(endpoint->domain);
	switch (command) {
	case FI_ENABLE:
		result = endpoint_enable(endpoint);
		break;
	case FI_GETOPSFLAG:
		*flags = (*flags & FI_TRANSMIT) != 0 ? endpoint->transmit_operation_flags
						     : endpoint->receive_operation_flags;
		result = 0;
		break;
	case FI_SETOPSFLAG:
		result = set_operation_flags(endpoint, *flags);
		break;
	default:
		break;
	}
	domain_unlock(endpoint->domain);
	return result;
}

/* ---- closing ---- */

static void forget_cq(struct cq *cq, const struct endpoint *endpoint)
{
	if (cq != NULL)
		endpoint_list_remove(&cq->endpoints, endpoint);
}

static void forget_cntr(struct cntr *cntr, const struct endpoint *endpoint)
{
	if (cntr != NULL)
		endpoint_list_remove(&cntr->endpoints, endpoint);
}

/*
 * Waits until busy peers have taken the messages that wait for them, because this endpoint's queue ends with
 * the endpoint. A living peer may compute for long before it receives, and gets all the time that it needs:
 * nothing tells it from a peer that never receives (docs/decisions/0022). A peer that fails ends the wait.
 * All endpoints of the domain make progress meanwhile, and the domain's lock is free most of the time.
 */
static void deliver_what_waits(struct endpoint *endpoint)
{
	struct domain *domain = endpoint->domain;
	uint64_t until = monotonic_now() + CLOSING_NANOSECONDS;
	bool told = false;

	for (;;) {
		domain_lock(domain);
		bool owes = endpoint->messenger != NULL && messenger_owes(endpoint->messenger);
		if (owes) {
			(void)domain_progress_full(domain);
			if (!told && monotonic_now() > until) {
				send_queues_tell(&endpoint->messenger->send_queues,
						 "this process ends when they have taken them");
				told = true;
			}
		}
		domain_unlock(domain);
		if (!owes)
			return;
		(void)nanosleep(&(struct timespec){.tv_nsec = told ? 1000000 : 50000}, NULL);
	}
}

/*
 * Gives peers a moment to read the last messages. Other threads and other endpoints of the domain continue
 * meanwhile.
 */
static void linger(struct endpoint *endpoint)
{
	for (bool done = endpoint->messenger == NULL; !done;) {
		domain_lock(endpoint->domain);
		done = messenger_may_close(endpoint->messenger);
		domain_unlock(endpoint->domain);
		if (!done)
			(void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
}

static int endpoint_close(struct fid *fid)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	struct domain *domain = endpoint->domain;

	deliver_what_waits(endpoint);
	linger(endpoint);
	domain_lock(domain);
	for (struct endpoint **link = &domain->endpoints; *link != NULL; link = &(*link)->next)
		if (*link == endpoint) {
			*link = endpoint->next;
			break;
		}
	if (endpoint->messenger != NULL)
		messenger_close(endpoint->messenger);
	forget_cq(endpoint->send_cq, endpoint);
	forget_cq(endpoint->receive_cq, endpoint);
	forget_cntr(endpoint->send_cntr, endpoint);
	forget_cntr(endpoint->receive_cntr, endpoint);
	forget_cntr(endpoint->read_cntr, endpoint);
	forget_cntr(endpoint->write_cntr, endpoint);
	forget_cntr(endpoint->remote_read_cntr, endpoint);
	forget_cntr(endpoint->remote_write_cntr, endpoint);
	registrations_disown(&domain->registrations, endpoint);
	domain_unlock(domain);
	free(endpoint->resolved);
	free(endpoint);
	return 0;
}

/* ---- options ---- */

static ssize_t cancel(fid_t fid, void *context)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	int result = -FI_EOPBADSTATE;

	domain_lock(endpoint->domain);
	if (endpoint->messenger != NULL)
		result = messenger_cancel(endpoint->messenger, context);
	domain_unlock(endpoint->domain);
	return result;
}

static int getopt_(fid_t fid, int level, int name, void *value, size_t *length)
{
	const struct endpoint *endpoint = (struct endpoint *)(void *)fid;

	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*length < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = endpoint->multi_receive_minimum;
	*length = sizeof(size_t);
	return 0;
}

static int setopt_(fid_t fid, int level, int name, const void *value, size_t length)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;

	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (length != sizeof(size_t))
		return -FI_EINVAL;
	domain_lock(endpoint->domain);
	endpoint->multi_receive_minimum = *(const size_t *)value;
	if (endpoint->messenger != NULL)
		endpoint->messenger->multi_receive_minimum = endpoint->multi_receive_minimum;
	domain_unlock(endpoint->domain);
	return 0;
}

/* ---- names ---- */

static int getname(fid_t fid, void *buffer, size_t *length)
{
	const struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	size_t room = *length;

	*length = sizeof(struct address);
	/* A name contains a member slot, which the endpoint gets when it is enabled. */
	if (endpoint->messenger == NULL)
		return -FI_EOPBADSTATE;
	const struct member *member = endpoint->messenger->transport->attachments[0].member;
	struct address address = {
		.version = ADDRESS_FORMAT_VERSION,
		.slot = (uint16_t)member->slot,
		.epoch = member->epoch,
		.nonce = member->nonce,
		.region = {member->region->id[0], member->region->id[1]},
	};
	const struct network *network = endpoint->messenger->transport->network;
	if (network != NULL) {
		const struct core_name *name = network_name(network);
		address.core = name->provider;
		address.core_length = name->length;
		address.core_flags = name->flags;
		memcpy(address.core_name, name->bytes, name->length);
	}
	memcpy(buffer, &address, room < sizeof(address) ? room : sizeof(address));
	return room < sizeof(address) ? -FI_ETOOSMALL : 0;
}

static struct fi_ops endpoint_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = endpoint_close,
	.bind = endpoint_bind,
	.control = endpoint_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_ep endpoint_operations = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = cancel,
	.getopt = getopt_,
	.setopt = setopt_,
	.tx_ctx = refuse_transmit_context,
	.rx_ctx = refuse_receive_context,
	.rx_size_left = refuse_size_left,
	.tx_size_left = refuse_size_left,
};

static struct fi_ops_cm name_operations = {
	.size = sizeof(struct fi_ops_cm),
	.setname = refuse_setname,
	.getname = getname,
	.getpeer = refuse_getpeer,
	.connect = refuse_connect,
	.listen = refuse_listen,
	.accept = refuse_accept,
	.reject = refuse_reject,
	.shutdown = refuse_shutdown,
	.join = refuse_join,
};

int endpoint_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **opened, void *context)
{
	struct domain *domain = (struct domain *)(void *)fid;

	if (info == NULL || (info->ep_attr != NULL && info->ep_attr->type != FI_EP_RDM &&
			     info->ep_attr->type != FI_EP_UNSPEC))
		return -FI_EINVAL;
	size_t size = info->tx_attr != NULL ? info->tx_attr->size : 0;
	if (size > LIMIT_TRANSMIT)
		return -FI_EINVAL;
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
	if (endpoint == NULL)
		return -FI_ENOMEM;
	endpoint->domain = domain;
	endpoint->capabilities = info->caps;
	endpoint->transmit_operation_flags = info->tx_attr != NULL ? info->tx_attr->op_flags : 0;
	endpoint->receive_operation_flags = info->rx_attr != NULL ? info->rx_attr->op_flags : 0;
	endpoint->transmit_order = info->tx_attr != NULL ? info->tx_attr->msg_order : 0;
	endpoint->receive_order = info->rx_attr != NULL ? info->rx_attr->msg_order : 0;
	endpoint->multi_receive_minimum = 64;
	endpoint->transmit_size = size > SEND_QUEUE_FREE ? (uint32_t)size : SEND_QUEUE_FREE;
	endpoint->fid.fid.fclass = FI_CLASS_EP;
	endpoint->fid.fid.context = context;
	endpoint->fid.fid.ops = &endpoint_fid_operations;
	endpoint->fid.ops = &endpoint_operations;
	endpoint->fid.cm = &name_operations;
	endpoint->fid.msg = &message_operations;
	endpoint->fid.tagged = &tagged_operations;
	endpoint->fid.rma = &rma_operations;
	endpoint->fid.atomic = &atomic_operations;
	endpoint->fid.collective = &refused_collectives;
	domain_lock(domain);
	endpoint->next = domain->endpoints;
	domain->endpoints = endpoint;
	domain_unlock(domain);
	*opened = &endpoint->fid;
	return 0;
}
