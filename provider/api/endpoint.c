/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - endpoints: bound, enabled (that is when one joins the region), named, closed. */
#include "api/extension.h"
#include "api/provider.h"
#include "api/refused.h"

#include <stdio.h>
#include <stdlib.h>

/* A region this many times slower than private memory is mapped uncached or write-combining. */
#define SLOW_MEMORY 20.0

static atomic_uint endpoints_opened;

/* ---- addresses to peers ---- */

struct correspondent *endpoint_resolve_slowly(struct endpoint *endpoint, fi_addr_t address)
{
	struct av *av = endpoint->av;

	if (av == NULL || address >= av->count || av->entries[address].slot >= av->domain->region->members)
		return NULL;
	if (address >= endpoint->resolved_count) {
		size_t count = av->capacity;
		struct resolved *grown = realloc(endpoint->resolved, count * sizeof(*grown));
		if (grown == NULL)
			return NULL;
		memset(grown + endpoint->resolved_count, 0,
		       (count - endpoint->resolved_count) * sizeof(*grown));
		endpoint->resolved = grown;
		endpoint->resolved_count = count;
	}
	const struct av_entry *entry = &av->entries[address];
	struct peer *peer = path_meet(endpoint->messenger->path, entry->slot, entry->epoch, entry->nonce);
	if (peer == NULL) {
		/* It may have left: what it sent before stays reachable as long as nobody took its slot. */
		peer = endpoint->messenger->path->peers[entry->slot];
		if (peer == NULL || peer->epoch != entry->epoch)
			return NULL;
	}
	endpoint->resolved[address] = (struct resolved){(struct correspondent *)(void *)peer, peer->epoch};
	return endpoint->resolved[address].peer;
}

/* ---- enabling ---- */

/*
 * What the messenger needs to know of a call. A call without a flags argument takes the
 * endpoint's default flags; one with flags takes those alone. Where completions are
 * not selective, every operation has one.
 */
static void settle_flags(struct endpoint *endpoint)
{
	const uint64_t kept = FI_DELIVERY_COMPLETE | FI_INJECT;
	uint64_t send_always = endpoint->send_selective ? 0 : FI_COMPLETION;
	uint64_t receive_always = endpoint->receive_selective ? 0 : FI_COMPLETION;

	endpoint->send_flags = send_always | (endpoint->transmit_operation_flags & (kept | FI_COMPLETION));
	endpoint->send_message_flags = send_always;
	const uint64_t levels = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
	endpoint->remote_flags =
		send_always | (endpoint->transmit_operation_flags & (levels | FI_INJECT | FI_COMPLETION));
	/* Injected ones have no completion; but counters count them when the endpoint says they are done. */
	endpoint->remote_inject_flags = FI_INJECT | (endpoint->transmit_operation_flags &
						     (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE));
	endpoint->receive_flags =
		receive_always | (endpoint->receive_operation_flags & (FI_COMPLETION | FI_MULTI_RECV));
	endpoint->receive_message_flags = receive_always;
}

/* An uncached mapping is reported with its remedy, not silently used. */
static int check_memory(const struct messenger *messenger)
{
	double slower = member_measure(messenger->path->member);
	char text[512];

	FI_INFO(&provider, FI_LOG_EP_CTRL,
		"a copy through the region takes %.1f times one through private memory\n", slower);
	if (slower < SLOW_MEMORY) {
		extension_offer_heap(messenger);
		return 0;
	}
	(void)snprintf(
		text, sizeof(text),
		"the region's memory is %.0f times slower than private memory, so it is mapped uncached or "
		"write-combining: give the guest the region as an nvdimm (/dev/dax) or use a host whose KVM "
		"maps the BAR write-back, or set VICINAL_ALLOW_SLOW=1 to use it all the same",
		slower);
	if (parameter_allow_slow()) {
		provider_warn(FI_LOG_EP_CTRL, "%s\n", text);
		return 0;
	}
	provider_say(text);
	return -FI_EIO;
}

static struct completion_counter *counter_of(struct cntr *cntr)
{
	return cntr != NULL ? &cntr->counter : NULL;
}

static int enable(struct endpoint *endpoint)
{
	struct region_error error;
	uint64_t receives = endpoint->capabilities & FI_RECV;
	uint64_t sends = endpoint->capabilities & FI_SEND;
	uint64_t reaches = endpoint->capabilities & (FI_READ | FI_WRITE);

	if (endpoint->messenger != NULL)
		return 0;
	if (endpoint->av == NULL)
		return -FI_ENOAV;
	if ((sends != 0 && endpoint->send_cq == NULL && endpoint->send_cntr == NULL) ||
	    (receives != 0 && endpoint->receive_cq == NULL && endpoint->receive_cntr == NULL) ||
	    (sends == 0 && reaches != 0 && endpoint->send_cq == NULL && endpoint->read_cntr == NULL &&
	     endpoint->write_cntr == NULL))
		return -FI_ENOCQ;
	int result = messenger_open(&endpoint->messenger, endpoint->domain->region,
				    atomic_fetch_add_explicit(&endpoints_opened, 1, memory_order_relaxed),
				    parameter_peer_timeout(), &error);
	if (result != 0) {
		provider_say(error.text);
		return result;
	}
	struct messenger *messenger = endpoint->messenger;
	result = check_memory(messenger);
	if (result == 0)
		result = single_copy_open(messenger, parameter_single_copy());
	if (result != 0) {
		messenger_close(messenger);
		endpoint->messenger = NULL;
		return result;
	}
	messenger->send_completions = endpoint->send_cq != NULL ? &endpoint->send_cq->queue : NULL;
	messenger->receive_completions = endpoint->receive_cq != NULL ? &endpoint->receive_cq->queue : NULL;
	messenger->send_counter = counter_of(endpoint->send_cntr);
	messenger->receive_counter = counter_of(endpoint->receive_cntr);
	messenger->read_counter = counter_of(endpoint->read_cntr);
	messenger->write_counter = counter_of(endpoint->write_cntr);
	messenger->remote_read_counter = counter_of(endpoint->remote_read_cntr);
	messenger->remote_write_counter = counter_of(endpoint->remote_write_cntr);
	messenger->owner = endpoint;
	messenger->registrations = &endpoint->domain->registrations;
	messenger->multi_receive_minimum = endpoint->multi_receive_minimum;
	settle_flags(endpoint);
	domain_joined(endpoint->domain, messenger->path);
	if (endpoint->send_cq != NULL)
		result = endpoint_attach_cq(endpoint->send_cq, endpoint);
	if (result == 0 && endpoint->receive_cq != NULL)
		result = endpoint_attach_cq(endpoint->receive_cq, endpoint);
	return result;
}

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
		result = enable(endpoint);
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
		settle_flags(endpoint);
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
