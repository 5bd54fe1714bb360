/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric.c - fabrics and event queues: there is nothing to configure and no event to report. */
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

/* ---- event queue ---- */

static int eq_close(struct fid *fid)
{
	atomic_fetch_sub(&((struct eq *)(void *)fid)->fabric->objects, 1);
	free(fid);
	return 0;
}

static ssize_t eq_read(struct fid_eq *eq, uint32_t *event, void *buffer, size_t length, uint64_t flags)
{
	(void)eq;
	(void)event;
	(void)buffer;
	(void)length;
	(void)flags;
	return -FI_EAGAIN;
}

static ssize_t eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buffer, uint64_t flags)
{
	(void)eq;
	(void)buffer;
	(void)flags;
	return -FI_EAGAIN;
}

static ssize_t eq_write(struct fid_eq *eq, uint32_t event, const void *buffer, size_t length, uint64_t flags)
{
	(void)eq;
	(void)event;
	(void)buffer;
	(void)length;
	(void)flags;
	return -FI_ENOSYS;
}

static ssize_t eq_sread(struct fid_eq *eq, uint32_t *event, void *buffer, size_t length, int timeout,
			uint64_t flags)
{
	(void)timeout;
	return eq_read(eq, event, buffer, length, flags);
}

static const char *eq_strerror(struct fid_eq *eq, int error, const void *data, char *buffer, size_t length)
{
	(void)eq;
	(void)data;
	(void)buffer;
	(void)length;
	return fi_strerror(error);
}

static struct fi_ops eq_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
	.bind = no_bind,
	.control = no_control,
	.ops_open = no_ops_open,
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
	struct eq *eq = calloc(1, sizeof(*eq));

	(void)attributes;
	if (eq == NULL)
		return -FI_ENOMEM;
	eq->fabric = (struct fabric *)(void *)fabric;
	atomic_fetch_add(&eq->fabric->objects, 1);
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fid_operations;
	eq->fid.ops = &eq_operations;
	*opened = &eq->fid;
	return 0;
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
