/* SPDX-License-Identifier: BSD-3-Clause */
/* provider.c - the entry point that libfabric looks up in libvicinal-fi.so. */
#include "api/provider.h"

static void provider_cleanup(void)
{
}

/* Looked up by name: the only symbol that is seen from outside. */
__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider provider = {
	.version = PROVIDER_VERSION,
	.name = PROVIDER_NAME,
	.getinfo = provider_getinfo,
	.fabric = fabric_open,
	.cleanup = provider_cleanup,
};

struct fi_provider *fi_prov_ini(void)
{
	/*
	 * The core skips a provider whose fi_version is below what the application asks
	 * for. One build serves every core from 1.17 on: it is as new as the core is.
	 */
	provider.fi_version = fi_version();
	parameters_define();
	return &provider;
}
