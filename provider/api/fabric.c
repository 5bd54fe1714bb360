/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric.c - fabrics: there is nothing to configure. */
#include "api/provider.h"

#include <stdlib.h>

static int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid;
	(void)other;
	(void)flags;
	return -FI_ENOSYS;
}

static int no_control(struct fid *fid, int command, void *argument)
{
	(void)fid;
	(void)command;
	(void)argument;
	return -FI_ENOSYS;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **operations, void *context)
{
	(void)fid;
	(void)name;
	(void)flags;
	(void)operations;
	(void)context;
	return -FI_ENOSYS;
}

/* ---- fabric ---- */

static int fabric_close(struct fid *fid)
{
	if (atomic_load(&((struct fabric *)(void *)fid)->objects) != 0)
		return -FI_EBUSY;
	free(fid);
	return 0;
}

static int no_passive_endpoint(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **endpoint,
			       void *context)
{
	(void)fabric;
	(void)info;
	(void)endpoint;
	(void)context;
	return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = no_bind,
	.control = no_control,
	.ops_open = no_ops_open,
};

static struct fi_ops_fabric fabric_operations = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = domain_open,
	.passive_ep = no_passive_endpoint,
	.eq_open = eq_open,
	.wait_open = wait_set_open,
	.trywait = wait_try,
};

int fabric_open(struct fi_fabric_attr *attributes, struct fid_fabric **opened, void *context)
{
	struct fabric *fabric = calloc(1, sizeof(*fabric));

	(void)attributes;
	if (fabric == NULL)
		return -FI_ENOMEM;
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = &fabric_fid_operations;
	fabric->fid.ops = &fabric_operations;
	*opened = &fabric->fid;
	return 0;
}
