/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network.c - opens the core provider of an endpoint, and resolves addresses of peers that the network
 * reaches.
 */
#include "api/provider.h"

#include <string.h>

static bool has_no_region(const struct domain *domain)
{
	return strcmp(domain->regions[0]->name, REGION_PRIVATE) == 0;
}

/* Prints what endpoints find out later, once for the process. */
static void say_once(const char *text)
{
	static atomic_bool said;

	provider_notice_once(&said, "%s", text);
}

int network_enable(struct endpoint *endpoint)
{
	static atomic_bool said;
	struct domain *domain = endpoint->domain;
	const char *wanted = NULL;
	const char *interface = NULL;
	struct core *core = NULL;
	struct region_error error = {""};
	int result = 0;

	domain->network = domain->network == NETWORK_OPEN ? NETWORK_OPEN : NETWORK_NONE;
	if (!parameter_network(&wanted, &interface))
		return 0;
	result = core_open(&core, wanted, interface, &error);
	if (result == 0) {
		result = network_open(endpoint->messenger->transport, core, &domain->directory);
		if (result != 0) {
			core_close(core);
			return result;
		}
		network_set_notice(endpoint->messenger->transport, say_once);
		if (has_no_region(domain))
			network_listen(endpoint->messenger->transport);
		FI_INFO(&provider, FI_LOG_EP_CTRL, "peers beyond the region are reached by %s on %s\n",
			core->info->fabric_attr->prov_name, core->info->domain_attr->name);
		if (core->stale)
			FI_INFO(&provider, FI_LOG_EP_CTRL,
				"large messages to peers outside the region are copied: set "
				"FI_MR_CACHE_MONITOR=disabled to let peers read them in place\n");
		domain->network = NETWORK_OPEN;
		domain->network_core = core->name.provider;
		return 0;
	}
	/*
	 * An error matters to a user who asked for the network, and to a process without a region, which has
	 * no other transport. A process with a region continues without the network.
	 */
	if (wanted != NULL || interface != NULL || has_no_region(domain))
		provider_notice_once(&said, "%s", error.text);
	else
		FI_INFO(&provider, FI_LOG_EP_CTRL, "%s\n", error.text);
	return has_no_region(domain) ? result : 0;
}

uint32_t network_resolve(struct domain *domain, const struct address *address)
{
	static atomic_bool said;
	const char *wanted = NULL;
	const char *interface = NULL;
	struct core_name name;

	if (!address_core_name(address, &name) || domain_has(domain, address->nonce)) {
		provider_warn(FI_LOG_AV,
			      "an address is of another region, and has no address in a network\n");
		return RESOLVE_NONE;
	}
	if (!parameter_network(&wanted, &interface) || domain->network == NETWORK_NONE) {
		provider_warn(FI_LOG_AV,
			      "an address is of another region, and this process has no network\n");
		return RESOLVE_NONE;
	}
	if (domain->network == NETWORK_OPEN && domain->network_core != address->core) {
		provider_notice_once(
			&said, "a peer in another region is unreachable: its network provider is not the one "
			       "of this process. Set VICINAL_NET to the same value on all hosts");
		return RESOLVE_NONE;
	}
	uint32_t index = directory_add(&domain->directory, address->nonce, &name);
	if (index == DIRECTORY_NONE) {
		provider_warn(FI_LOG_AV, "an address is not usable: the same endpoint has another address in "
					 "the network already, or there are too many addresses\n");
		return RESOLVE_NONE;
	}
	return domain->members + index;
}
