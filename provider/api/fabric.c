/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric.c - fabrics, which have no settings. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

static int fabric_close(struct fid *fid)
{
	if (atomic_load(&((struct fabric *)(void *)fid)->objects) != 0)
		return -FI_EBUSY;
	free(fid);
	return 0;
}

static struct fi_ops fabric_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = refuse_bind,
	.control = refuse_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_fabric fabric_operations = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = domain_open,
	.passive_ep = refuse_passive_endpoint,
	.eq_open = eq_open,
	.wait_open = wait_set_open,
	.trywait = wait_try,
};

int fabric_open(struct fi_fabric_attr *attributes, struct fid_fabric **opened, void *context)
{
	struct fabric *fabric = calloc(1, sizeof(*fabric));

	if (fabric == NULL)
		return -FI_ENOMEM;
	if (attributes != NULL && attributes->api_version != 0)
		fabric->short_errors = FI_VERSION_LT(attributes->api_version, FI_VERSION(1, 5));
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = &fabric_fid_operations;
	fabric->fid.ops = &fabric_operations;
	*opened = &fabric->fid;
	return 0;
}
