/* SPDX-License-Identifier: BSD-3-Clause */
/* domain.c - a domain maps the regions, and its lock serialises threads. */
#include "api/deprecated.h"
#include "api/extension.h"
#include "api/provider.h"
#include "api/refused.h"
#include "region/doorbell.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- domain ---- */

static void detach_all(struct domain *domain)
{
	for (uint32_t i = 0; i < domain->region_count; i++)
		region_detach(domain->regions[i]);
}

/* Attaches all regions, or none. Reports an error to stderr. */
static int attach_all(struct domain *domain)
{
	const char *const *names = NULL;
	uint32_t count = 0;
	struct region_error error;
	int result = parameter_regions(&names, &count);

	for (uint32_t i = 0; i < count && result == 0; i++) {
		result = region_attach(names[i], &domain->regions[i], &error);
		if (result != 0) {
			provider_notice(error.text);
			break;
		}
		domain->regions[i]->notice = provider_caution;
		domain->regions[i]->discovered = parameter_region_is_discovered();
		domain->regions[i]->slow_allowed = parameter_allow_slow();
		domain->members += domain->regions[i]->members;
		domain->region_count++;
		if (doorbell_attach(domain->regions[i], NULL, &error) != -ENOENT &&
		    domain->regions[i]->doorbell == NULL)
			provider_caution(error.text);
	}
	if (result != 0)
		detach_all(domain);
	return result;
}

static int domain_close(struct fid *fid)
{
	struct domain *domain = (struct domain *)(void *)fid;

	if (domain->endpoints != NULL || atomic_load(&domain->objects) != 0)
		return -FI_EBUSY;
	watch_stop(domain);
	process_remove(domain);
	(void)pthread_mutex_destroy(&domain->mutex);
	registrations_close(&domain->registrations);
	directory_close(&domain->directory);
	detach_all(domain);
	atomic_fetch_sub(&domain->fabric->objects, 1);
	free(domain);
	return 0;
}

static int domain_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid;
	/* Registrations are never asynchronous: the caller would wait for an event that never comes. */
	if ((flags & FI_REG_MR) != 0)
		return -FI_EBADFLAGS;
	/* The domain reports no events, so the queue stays empty. */
	return other->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL;
}

static int domain_control(struct fid *fid, int command, void *argument)
{
	(void)fid;
	switch (command) {
	case FI_MAP_RAW_MR:
		return mr_map_raw(argument);
	case FI_UNMAP_KEY:
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static int domain_ops_open(struct fid *fid, const char *name, uint64_t flags, void **operations,
			   void *context)
{
	(void)fid;
	(void)context;
	return extension_open(name, flags, operations);
}

static int no_query_collective(struct fid_domain *domain, enum fi_collective_op collective,
			       struct fi_collective_attr *attributes, uint64_t flags)
{
	(void)domain;
	(void)collective;
	(void)attributes;
	(void)flags;
	return -FI_EOPNOTSUPP;
}

static struct fi_ops domain_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = domain_bind,
	.control = domain_control,
	.ops_open = domain_ops_open,
};

static struct fi_ops_domain domain_operations = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = av_open,
	.cq_open = cq_open,
	.endpoint = endpoint_open,
	.scalable_ep = refuse_scalable_endpoint,
	.cntr_open = cntr_open,
	.poll_open = poll_open,
	.stx_ctx = refuse_shared_transmit,
	.srx_ctx = refuse_shared_receive,
	.query_atomic = atomic_query,
	.query_collective = no_query_collective,
};

int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **opened, void *context)
{
	struct domain *domain = calloc(1, sizeof(*domain));
	const struct fi_domain_attr *asked = info->domain_attr;

	if (domain == NULL)
		return -FI_ENOMEM;
	domain->fabric = (struct fabric *)(void *)fabric;
	int result = attach_all(domain);
	if (result != 0) {
		free(domain);
		return result;
	}
	atomic_fetch_add(&domain->fabric->objects, 1);
	domain->automatic = asked != NULL && asked->data_progress == FI_PROGRESS_AUTO;
	domain->locking = asked == NULL || asked->threading != FI_THREAD_DOMAIN || domain->automatic;
	(void)pthread_mutex_init(&domain->mutex, NULL);
	registrations_open(&domain->registrations);
	domain->mr_mode = asked != NULL ? (uint64_t)asked->mr_mode : 0;
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = &domain_fid_operations;
	domain->fid.ops = &domain_operations;
	domain->fid.mr = &mr_operations;
	domain->mode = parameter_progress();
	domain->thresholds = *tuning();
	process_add(domain);
	if (domain->automatic && !watch_start(domain)) {
		(void)domain_close(&domain->fid.fid);
		return -FI_EAGAIN;
	}
	*opened = &domain->fid;
	return 0;
}
