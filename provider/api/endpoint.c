/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - endpoints: bound, told what to do otherwise, named, closed. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

/* ---- binding ---- */

static int bind_cntr(struct endpoint *endpoint, struct cntr *cntr, uint64_t flags)
{
	const uint64_t counted = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

	if ((flags & counted) == 0)
		return -FI_EINVAL;
	struct endpoint **grown = realloc(cntr->endpoints, (cntr->endpoint_count + 1) * sizeof(*grown));
	if (grown == NULL)
		return -FI_ENOMEM;
	cntr->endpoints = grown;
	cntr->endpoints[cntr->endpoint_count++] = endpoint;
	if (flags & FI_SEND)
		endpoint->send_cntr = cntr;
	if (flags & FI_RECV)
		endpoint->receive_cntr = cntr;
	if (flags & FI_READ)
		endpoint->read_cntr = cntr;
	if (flags & FI_WRITE)
		endpoint->write_cntr = cntr;
	if (flags & FI_REMOTE_READ)
		endpoint->remote_read_cntr = cntr;
	if (flags & FI_REMOTE_WRITE)
		endpoint->remote_write_cntr = cntr;
	return 0;
}

static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;

	if (endpoint->messenger != NULL)
		return -FI_EOPBADSTATE;
	switch (other->fclass) {
	case FI_CLASS_AV:
		endpoint->av = (struct av *)(void *)other;
		return 0;
	case FI_CLASS_CQ:
		if ((flags & FI_TRANSMIT) != 0) {
			endpoint->send_cq = (struct cq *)(void *)other;
			endpoint->send_selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
		}
		if ((flags & FI_RECV) != 0) {
			endpoint->receive_cq = (struct cq *)(void *)other;
			endpoint->receive_selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
		}
		return (flags & (FI_TRANSMIT | FI_RECV)) != 0 ? 0 : -FI_EINVAL;
	case FI_CLASS_CNTR:
		return bind_cntr(endpoint, (struct cntr *)(void *)other, flags);
	case FI_CLASS_EQ:
		return 0;
	default:
		return -FI_EINVAL;
	}
}

static int endpoint_control(struct fid *fid, int command, void *argument)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	uint64_t *flags = argument;
	int result = -FI_ENOSYS;

	/* The flags of one direction, that the argument names. */
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
		if ((*flags & FI_TRANSMIT) != 0)
			endpoint->transmit_operation_flags = *flags & ~FI_TRANSMIT;
		else
			endpoint->receive_operation_flags = *flags & ~FI_RECV;
		endpoint_settle_flags(endpoint);
		result = 0;
		break;
	default:
		break;
	}
	domain_unlock(endpoint->domain);
	return result;
}

/* ---- closing ---- */

static void forget(struct endpoint **endpoints, size_t *count, const struct endpoint *endpoint)
{
	size_t kept = 0;

	for (size_t i = 0; i < *count; i++)
		if (endpoints[i] != endpoint)
			endpoints[kept++] = endpoints[i];
	*count = kept;
}

static void forget_cntr(struct cntr *cntr, const struct endpoint *endpoint)
{
	if (cntr != NULL)
		forget(cntr->endpoints, &cntr->endpoint_count, endpoint);
}

static int endpoint_close(struct fid *fid)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	struct domain *domain = endpoint->domain;

	domain_lock(domain);
	for (struct endpoint **link = &domain->endpoints; *link != NULL; link = &(*link)->next)
		if (*link == endpoint) {
			*link = endpoint->next;
			break;
		}
	if (endpoint->messenger != NULL)
		messenger_close(endpoint->messenger);
	if (endpoint->send_cq != NULL)
		forget(endpoint->send_cq->endpoints, &endpoint->send_cq->endpoint_count, endpoint);
	if (endpoint->receive_cq != NULL)
		forget(endpoint->receive_cq->endpoints, &endpoint->receive_cq->endpoint_count, endpoint);
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
	/* A name is a place in the region, and that is taken when the endpoint is enabled. */
	if (endpoint->messenger == NULL)
		return -FI_EOPBADSTATE;
	const struct member *member = endpoint->messenger->path->member;
	struct address address = {
		.version = ADDRESS_FORMAT_VERSION,
		.slot = (uint16_t)member->slot,
		.epoch = member->epoch,
		.nonce = member->nonce,
		.region = {member->region->id[0], member->region->id[1]},
	};
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
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
	if (endpoint == NULL)
		return -FI_ENOMEM;
	endpoint->domain = domain;
	endpoint->capabilities = info->caps;
	endpoint->transmit_operation_flags = info->tx_attr != NULL ? info->tx_attr->op_flags : 0;
	endpoint->receive_operation_flags = info->rx_attr != NULL ? info->rx_attr->op_flags : 0;
	endpoint->multi_receive_minimum = 64;
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
