/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.c - memory registration: which memory peers may access, under which key, and how they address its bytes.
 *
 * The provider needs none of the modes of fi_mr(3), and supports each mode that the application asks for.
 * fi_getinfo() returns these modes, and the domain is opened with them.
 *
 *   FI_MR_VIRT_ADDR  peers use virtual addresses, without it offsets from 0
 *   FI_MR_PROV_KEY   the provider chooses the keys, without it the application
 *   FI_MR_ENDPOINT   one endpoint gives access, once it is bound and enabled
 *   FI_MR_BASIC      the first two, as before libfabric 1.5
 */
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "api/deprecated.h"
#include "api/provider.h"
#include "api/refused.h"

static bool has_virtual_addresses(const struct domain *domain)
{
	return domain->mr_mode == FI_MR_BASIC || (domain->mr_mode & FI_MR_VIRT_ADDR) != 0;
}

static bool chooses_keys(const struct domain *domain)
{
	return domain->mr_mode == FI_MR_BASIC || (domain->mr_mode & FI_MR_PROV_KEY) != 0;
}

/* Keys start at a random number, so that a stale key of an application is not valid by chance. */
static uint64_t choose_key(struct domain *domain)
{
	if (domain->mr_key == 0 &&
	    getrandom(&domain->mr_key, sizeof(domain->mr_key), 0) != (ssize_t)sizeof(domain->mr_key))
		domain->mr_key = monotonic_now();
	return ++domain->mr_key;
}

/*
 * Publishes the registration through each endpoint that gives access, so that peers which map the memory
 * access it directly.
 */
static void expose(const struct mr *mr)
{
	if (!mr->reachable)
		return;
	for (struct endpoint *endpoint = mr->domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			direct_expose(endpoint->messenger, &mr->registration);
}

static void conceal(const struct mr *mr)
{
	for (struct endpoint *endpoint = mr->domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			direct_conceal(endpoint->messenger, &mr->registration);
}

/* Deregistration waits this long for the core provider to end its accesses to the memory, */
#define GRANTS_NANOSECONDS UINT64_C(1000000000)
/* and then this long to tell peers that their connection ends for it. */
#define RECALLS_NANOSECONDS UINT64_C(100000000)

static void progress(const struct domain *domain)
{
	for (const struct endpoint *endpoint = domain->endpoints; endpoint != NULL; endpoint = endpoint->next)
		if (endpoint->messenger != NULL) {
			(void)messenger_progress(endpoint->messenger);
			(void)transport_progress_full(endpoint->messenger->transport);
		}
}

static void recall(const struct mr *mr)
{
	for (const struct endpoint *endpoint = mr->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next)
		if (endpoint->messenger != NULL)
			messenger_recall(endpoint->messenger, &mr->registration);
}

/*
 * Returns whether the core provider no longer accesses the memory. A read of the core from a peer into this
 * memory cannot be stopped, so the memory must stay until the read ends.
 */
static bool is_released(struct mr *mr)
{
	const struct timespec pause = {.tv_nsec = 50000};
	bool enabled = mr->registration.enabled;
	bool recalled = false;
	uint64_t until = monotonic_now() + GRANTS_NANOSECONDS;

	mr->registration.enabled = false; /* no new access begins */
	for (;;) {
		progress(mr->domain);
		if (mr->registration.grants == 0)
			return true;
		if (monotonic_now() > until) {
			if (recalled)
				break;
			recall(mr);
			recalled = true;
			until = monotonic_now() + RECALLS_NANOSECONDS;
		}
		(void)nanosleep(&pause, NULL);
	}
	mr->registration.enabled = enabled;
	return false;
}

static int mr_close(struct fid *fid)
{
	struct mr *mr = (struct mr *)(void *)fid;
	struct domain *domain = mr->domain;

	domain_lock(domain);
	if (mr->registration.grants > 0 && !is_released(mr)) {
		domain_unlock(domain);
		provider_notice(
			"memory stays registered: a peer's long write into it over the network has "
			"not ended within 1 s, and cannot be stopped. Close the registration again after the "
			"peer's operation has ended or the peer is gone, or close the endpoint first");
		return -FI_EBUSY;
	}
	conceal(mr);
	if (mr->reachable)
		registrations_remove(&domain->registrations, &mr->registration);
	if (mr->cntr != NULL)
		mr->cntr->region_count--;
	domain_unlock(domain);
	atomic_fetch_sub(&domain->objects, 1);
	free(mr);
	return 0;
}

static int bind_endpoint(struct mr *mr, const struct endpoint *endpoint)
{
	if (endpoint->domain != mr->domain ||
	    (mr->registration.owner != NULL && mr->registration.owner != endpoint))
		return -FI_EINVAL;
	mr->registration.owner = endpoint;
	/* From now on only this endpoint gives access. */
	conceal(mr);
	expose(mr);
	return 0;
}

static int bind_counter(struct mr *mr, struct cntr *cntr, uint64_t flags)
{
	if (cntr->domain != mr->domain || mr->cntr != NULL || (flags & ~FI_REMOTE_WRITE) != 0)
		return -FI_EINVAL;
	mr->cntr = cntr;
	cntr->region_count++;
	mr->registration.counter = &cntr->counter;
	/* From now on the provider must notice peers' writes, so they cannot be direct. */
	conceal(mr);
	expose(mr);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct mr *mr = (struct mr *)(void *)fid;
	int result = -FI_EINVAL;

	domain_lock(mr->domain);
	switch (other->fclass) {
	case FI_CLASS_EP:
		result = bind_endpoint(mr, (struct endpoint *)(void *)other);
		break;
	case FI_CLASS_CNTR:
		result = bind_counter(mr, (struct cntr *)(void *)other, flags);
		break;
	default:
		break;
	}
	domain_unlock(mr->domain);
	return result;
}

static int enable(struct mr *mr)
{
	if ((mr->domain->mr_mode & FI_MR_ENDPOINT) != 0 && mr->registration.owner == NULL)
		return -FI_EINVAL;
	if (!mr->registration.enabled) {
		mr->registration.enabled = true;
		expose(mr);
	}
	return 0;
}

/* A key is its own raw key. */
static int give_raw(const struct mr *mr, struct fi_mr_raw_attr *raw)
{
	size_t room = *raw->key_size;

	*raw->key_size = sizeof(mr->fid.key);
	if (room < sizeof(mr->fid.key))
		return -FI_ETOOSMALL;
	memcpy(raw->raw_key, &mr->fid.key, sizeof(mr->fid.key));
	*raw->base_addr = mr->registration.address;
	return 0;
}

int mr_map_raw(struct fi_mr_map_raw *map)
{
	if (map->key_size != sizeof(*map->key))
		return -FI_EINVAL;
	memcpy(map->key, map->raw_key, sizeof(*map->key));
	return 0;
}

static int mr_control(struct fid *fid, int command, void *argument)
{
	struct mr *mr = (struct mr *)(void *)fid;
	int result = -FI_ENOSYS;

	domain_lock(mr->domain);
	switch (command) {
	case FI_ENABLE:
		result = enable(mr);
		break;
	case FI_REFRESH: /* the pages of the memory changed; the provider keeps no translation */
		result = 0;
		break;
	case FI_GET_RAW_MR:
		result = give_raw(mr, argument);
		break;
	default:
		break;
	}
	domain_unlock(mr->domain);
	return result;
}

static struct fi_ops mr_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
	.ops_open = refuse_ops_open,
};

static int publish(struct mr *mr, uint64_t requested_key)
{
	struct domain *domain = mr->domain;
	int result = 0;

	mr->registration.key = requested_key;
	domain_lock(domain);
	if (chooses_keys(domain))
		mr->registration.key = choose_key(domain);
	/* Memory that peers cannot access needs no key. Its key may equal another's. */
	if (mr->reachable)
		result = registrations_add(&domain->registrations, &mr->registration);
	if (result == 0)
		expose(mr);
	domain_unlock(domain);
	return result;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attributes, uint64_t flags,
		      struct fid_mr **registered)
{
	struct domain *domain = (struct domain *)(void *)fid;
	const struct iovec *memory = attributes->mr_iov;

	/* FI_RMA_EVENT is always possible. Persistent memory and device memory are not supported. */
	if ((flags & ~FI_RMA_EVENT) != 0)
		return -FI_EBADFLAGS;
	if (fid->fclass != FI_CLASS_DOMAIN || attributes->iov_count != 1 || memory == NULL ||
	    attributes->offset != 0 || memory->iov_len > UINTPTR_MAX - (uintptr_t)memory->iov_base)
		return -FI_EINVAL;
	struct mr *mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return -FI_ENOMEM;
	mr->domain = domain;
	mr->reachable = (attributes->access & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
	mr->registration = (struct registration){
		.base = memory->iov_base,
		.length = memory->iov_len,
		.address = has_virtual_addresses(domain) ? (uintptr_t)memory->iov_base : 0,
		.access = attributes->access,
		.enabled = (domain->mr_mode & FI_MR_ENDPOINT) == 0,
	};
	int result = publish(mr, attributes->requested_key);
	if (result != 0) {
		free(mr);
		return result;
	}
	atomic_fetch_add(&domain->objects, 1);
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attributes->context;
	mr->fid.fid.ops = &mr_fid_operations;
	mr->fid.key = mr->registration.key;
	mr->fid.mem_desc = mr;
	*registered = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *pieces, size_t count, uint64_t access,
		   uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	return mr_regattr(fid,
			  &(struct fi_mr_attr){
				  .mr_iov = pieces,
				  .iov_count = count,
				  .access = access,
				  .offset = offset,
				  .requested_key = requested_key,
				  .context = context,
			  },
			  flags, mr);
}

static int mr_reg(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset,
		  uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	const struct iovec piece = {(void *)(uintptr_t)buffer, length};

	return mr_regv(fid, &piece, 1, access, offset, requested_key, flags, mr, context);
}

struct fi_ops_mr mr_operations = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
