/* SPDX-License-Identifier: BSD-3-Clause */
/* network_core.c - chooses the core among the providers of this libfabric, and opens it. */
#include "transport/network_core.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>

/* With this flag, libfabric also lists providers that FI_PROVIDER hides. */
#define LIST_HIDDEN (UINT64_C(1) << 60)
#define API_VERSION FI_VERSION(1, 17)
/* Frames in flight, and unread completions. */
#define QUEUE_ENTRIES 1024U

/*
 * Providers in the order of the attempts: hardware first, if it has an active port. libfabric 1.17
 * calls the tcp of later versions "net". The empty name stands for any other suitable provider.
 */
static const char *const order[] = {"verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm", ""};
/*
 * Providers that are never used: they reach only this host, lose datagrams, or are Vicinal itself.
 */
static const char *const unfit[] = {"vicinal", "shm",     "sm2",       "lnx",
				    "sockets", "ofi_rxd", "ofi_mrail", "hook"};

uint16_t core_provider_number(const char *name)
{
	uint32_t hash = 2166136261U; /* FNV-1a */

	for (; *name != '\0'; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619U;
	return (uint16_t)(hash ^ hash >> 16);
}

static bool is_unfit(const char *name)
{
	for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++)
		if (strstr(name, unfit[i]) != NULL)
			return true;
	return false;
}

static struct fi_info *ask(const char *provider, uint64_t capabilities)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_info *info = NULL;

	if (hints == NULL)
		return NULL;
	hints->caps = capabilities;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->iov_limit = 2;
	if (*provider != '\0')
		hints->fabric_attr->prov_name = strdup(provider);
	if (fi_getinfo(API_VERSION, NULL, NULL, LIST_HIDDEN, hints, &info) != 0)
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

enum fitness { UNUSABLE, LOOPBACK, USABLE };

/* How well other hosts can reach an address. Unknown address formats count as usable. */
static enum fitness rate_address(const struct fi_info *info)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	if (info->src_addr == NULL)
		return USABLE;
	if (info->addr_format == FI_SOCKADDR_IN && info->src_addrlen >= sizeof(v4)) {
		memcpy(&v4, info->src_addr, sizeof(v4));
		return ntohl(v4.sin_addr.s_addr) >> 24 == 127 ? LOOPBACK : USABLE;
	}
	if (info->addr_format == FI_SOCKADDR_IN6 && info->src_addrlen >= sizeof(v6)) {
		memcpy(&v6, info->src_addr, sizeof(v6));
		if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
			return UNUSABLE; /* lacks the interface index, which differs between hosts */
		return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ? LOOPBACK : USABLE;
	}
	return USABLE;
}

/*
 * The best entry of a list. The provider has sorted the list, but loopback addresses are used last.
 */
static struct fi_info *choose(struct fi_info *list, const char *provider, const char *interface)
{
	struct fi_info *best = NULL;
	enum fitness fitness = UNUSABLE;

	for (struct fi_info *info = list; info != NULL; info = info->next) {
		const char *name = info->fabric_attr->prov_name;
		enum fitness rating = rate_address(info);
		/* If asked for "tcp", libfabric also offers "tcp;ofi_rxm". */
		if (name == NULL || (*provider != '\0' && strcmp(name, provider) != 0) ||
		    (*provider == '\0' && is_unfit(name)) || info->tx_attr->iov_limit < 2)
			continue;
		if (interface != NULL && strcmp(info->domain_attr->name, interface) != 0)
			continue;
		if (rating > fitness) {
			best = info;
			fitness = rating;
		}
	}
	return best;
}

static int open_objects(struct core *core)
{
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_MSG, .size = QUEUE_ENTRIES};
	size_t length = CORE_NAME_MAX;
	int result = fi_fabric(core->info->fabric_attr, &core->fabric, NULL);

	if (result == 0)
		result = fi_domain(core->fabric, core->info, &core->domain, NULL);
	if (result == 0)
		result = fi_av_open(core->domain, &av, &core->av, NULL);
	if (result == 0)
		result = fi_cq_open(core->domain, &cq, &core->cq, NULL);
	if (result == 0)
		result = fi_endpoint(core->domain, core->info, &core->endpoint, NULL);
	if (result == 0)
		result = fi_ep_bind(core->endpoint, &core->av->fid, 0);
	if (result == 0)
		result = fi_ep_bind(core->endpoint, &core->cq->fid, FI_TRANSMIT | FI_RECV);
	if (result == 0)
		result = fi_enable(core->endpoint);
	if (result == 0)
		result = fi_getname(&core->endpoint->fid, core->name.bytes, &length);
	core->name.length = (uint8_t)length;
	return result;
}

void core_close(struct core *core)
{
	struct fid *const objects[] = {
		core->endpoint != NULL ? &core->endpoint->fid : NULL,
		core->cq != NULL ? &core->cq->fid : NULL,
		core->av != NULL ? &core->av->fid : NULL,
		core->domain != NULL ? &core->domain->fid : NULL,
		core->fabric != NULL ? &core->fabric->fid : NULL,
	};

	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		if (objects[i] != NULL)
			(void)fi_close(objects[i]);
	if (core->info != NULL)
		fi_freeinfo(core->info);
	free(core);
}

/*
 * A core that registers memory caches the registrations (libfabric's cache), and must learn when
 * the application frees memory. Otherwise later reads go to pages that are no longer in use. The
 * memhooks monitor learns this by patched functions, and can miss that the heap shrinks, because
 * UCX, which comes with MPICH's wheel, patches the same functions: messages arrived with the former
 * contents of the buffer (2 of 14 jobs, MPICH 5.0.2 over verbs in guests). libfabric chooses
 * memhooks by itself wherever only root may use userfaultfd.
 */
static bool registers_safely(const struct fi_info *info)
{
	const char *monitor = getenv("FI_MR_CACHE_MONITOR");
	const char *most = getenv("FI_MR_CACHE_MAX_COUNT");

	if ((info->domain_attr->mr_mode & (FI_MR_ALLOCATED | FI_MR_PROV_KEY)) == 0)
		return true; /* the core registers no memory */
	return (monitor != NULL && *monitor != '\0' && strcmp(monitor, "memhooks") != 0) ||
	       (most != NULL && strcmp(most, "0") == 0);
}

/* Returns 0, -ENODEV if the provider offers nothing suitable, or the error of opening it. */
static int try_provider(struct core **opened, const char *provider, const char *interface)
{
	/* Prefer an entry with reads of remote memory. */
	const uint64_t capabilities[] = {FI_MSG | FI_RMA, FI_MSG};
	int result = -ENODEV;

	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]) && result == -ENODEV; i++) {
		struct fi_info *list = ask(provider, capabilities[i]);
		const struct fi_info *chosen = choose(list, provider, interface);
		struct core *core = chosen != NULL ? calloc(1, sizeof(*core)) : NULL;
		if (core != NULL) {
			core->close = core_close;
			core->inject = chosen->tx_attr->inject_size;
			core->stale = !registers_safely(chosen);
			core->reads = i == 0 && !core->stale &&
				      chosen->domain_attr->mr_key_size <= sizeof(uint64_t);
			core->by_tcp = strstr(chosen->fabric_attr->prov_name, "tcp") != NULL ||
				       strcmp(chosen->fabric_attr->prov_name, "net") == 0;
			core->reads_pieces = core->reads && chosen->tx_attr->rma_iov_limit >= 2;
			core->name.provider = core_provider_number(chosen->fabric_attr->prov_name);
			core->info = fi_dupinfo(chosen);
			result = core->info != NULL ? open_objects(core) : -ENOMEM;
			if (result == 0)
				*opened = core;
			else
				core_close(core);
		}
		fi_freeinfo(list);
	}
	return result;
}

int core_open(struct core **core, const char *wanted, const char *interface, struct region_error *error)
{
	int result = -ENODEV;

	if (wanted != NULL) {
		result = try_provider(core, wanted, interface);
		if (result == 0)
			return 0;
		if (result == -ENODEV)
			return region_fail(error, -ENODEV,
					   "VICINAL_NET=%.64s: libfabric has no such provider with reliable "
					   "messages%s%.64s. fi_info -l lists its providers",
					   wanted, interface != NULL ? " on interface " : "",
					   interface != NULL ? interface : "");
		return region_fail(error, result, "VICINAL_NET=%.64s: the provider cannot be opened (%s)%s",
				   wanted, fi_strerror(-result),
				   strchr(wanted, ';') != NULL
					   ? ": if FI_PROVIDER is set, it must name this provider besides "
					     "vicinal; FI_LOG_LEVEL=warn says more"
					   : "; FI_LOG_LEVEL=warn says more");
	}
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (try_provider(core, order[i], interface) == 0)
			return 0;
	return region_fail(error, -ENODEV,
			   "no provider of this libfabric reaches other hosts%s%.64s: peers that are not in "
			   "the region cannot be reached",
			   interface != NULL ? " by interface " : "", interface != NULL ? interface : "");
}
