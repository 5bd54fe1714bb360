/* SPDX-License-Identifier: BSD-3-Clause */
/* provider.c - the entry point that libfabric looks up in libvicinal-fi.so. */
#include "api/provider.h"

static void provider_cleanup(void)
{
}

/* The only exported symbol: libfabric looks it up by name. */
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
	 * libfabric skips a provider whose fi_version is below the version that the application asks for. One
	 * build works with every libfabric from 1.17 on, so it reports libfabric's own version.
	 */
	provider.fi_version = fi_version();
	parameters_define();
	return &provider;
}
