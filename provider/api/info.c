/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.c - fi_getinfo(): what the provider offers, and whether it satisfies the hints.
 *
 * A check that fails gives -FI_ENODATA. The rest of the provider must keep every promise made here.
 */
#include "api/deprecated.h"
#include "api/provider.h"

#include <stdlib.h>

/*
 * All operations to one peer go through one ring, and the peer matches or executes them in the ring's order.
 * The exception is reads, writes and atomics of memory in the region. They execute at once, and only if no
 * request waits in the ring before them. So they keep their order among themselves, and overtake messages.
 * RAS and WAS are promised only to applications that ask for them, and then all operations use the ring:
 * proto/direct.h.
 *
 * Reads and writes of more than REMOTE_WHOLE_BYTES are split into pieces, and other operations pass between
 * the pieces. So a send may overtake an earlier write or read (no SAW, no SAR), and reads and writes keep
 * their order only up to that length, which max_order_*_size gives.
 */
#define USUAL_ORDER \
	(FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_RMA_RAR | \
	 FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | \
	 FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define MESSAGE_ORDER (USUAL_ORDER | ORDER_AFTER_SENDS)

/* Alternating bits mean that applications may use all 64 bits: see fi_getinfo(3). */
#define TAG_FORMAT UINT64_C(0xaaaaaaaaaaaaaaaa)

static bool within(uint64_t asked, uint64_t offered)
{
	return (asked & ~offered) == 0;
}

static bool transmit_agrees(const struct fi_tx_attr *asked)
{
	return asked == NULL ||
	       (within(asked->caps, CAPABILITIES_TRANSMIT | CAPABILITIES_DOMAIN) &&
		within(asked->op_flags, TRANSMIT_FLAGS) && within(asked->msg_order, MESSAGE_ORDER) &&
		asked->comp_order == FI_ORDER_NONE && asked->inject_size <= MESSENGER_INJECT_BYTES &&
		asked->size <= LIMIT_TRANSMIT && asked->iov_limit <= LIMIT_PIECES &&
		asked->rma_iov_limit <= REMOTE_RANGES);
}

static bool receive_agrees(const struct fi_rx_attr *asked)
{
	return asked == NULL ||
	       (within(asked->caps, CAPABILITIES_RECEIVE | CAPABILITIES_DOMAIN) &&
		within(asked->op_flags, RECEIVE_FLAGS) && within(asked->msg_order, MESSAGE_ORDER) &&
		asked->comp_order == FI_ORDER_NONE && asked->size <= LIMIT_QUEUE &&
		asked->iov_limit <= LIMIT_PIECES && asked->total_buffered_recv == 0);
}

static bool endpoint_agrees(const struct fi_ep_attr *asked)
{
	return asked == NULL ||
	       ((asked->type == FI_EP_UNSPEC || asked->type == FI_EP_RDM) &&
		(asked->protocol == FI_PROTO_UNSPEC || asked->protocol == PROTOCOL_ID) &&
		asked->max_msg_size <= SSIZE_MAX && asked->tx_ctx_cnt <= 1 && asked->rx_ctx_cnt <= 1 &&
		asked->auth_key_size == 0 && asked->max_order_raw_size <= REMOTE_WHOLE_BYTES &&
		asked->max_order_war_size <= REMOTE_WHOLE_BYTES &&
		asked->max_order_waw_size <= REMOTE_WHOLE_BYTES);
}

static bool domain_agrees(const struct fi_domain_attr *asked)
{
	return asked == NULL ||
	       ((asked->name == NULL || strcmp(asked->name, PROVIDER_NAME) == 0) &&
		within(asked->caps, CAPABILITIES_DOMAIN) && asked->cq_data_size <= sizeof(uint64_t) &&
		asked->mr_key_size <= sizeof(uint64_t) && asked->auth_key_size == 0 &&
		asked->max_ep_tx_ctx <= 1 && asked->max_ep_rx_ctx <= 1 && asked->max_ep_stx_ctx == 0 &&
		asked->max_ep_srx_ctx == 0 && asked->tx_ctx_cnt <= REGION_MEMBERS_MAX &&
		asked->rx_ctx_cnt <= REGION_MEMBERS_MAX && asked->cntr_cnt <= LIMIT_QUEUE &&
		asked->mr_cnt <= LIMIT_QUEUE && asked->mr_iov_limit <= 1 && asked->cq_cnt <= LIMIT_QUEUE &&
		asked->ep_cnt <= REGION_MEMBERS_MAX);
}

#define ONE_SIDED_DIRECTIONS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Hints without a direction mean all directions. */
static uint64_t offered_capabilities(const struct fi_info *hints)
{
	if (hints == NULL || hints->caps == 0)
		return CAPABILITIES;
	uint64_t capabilities = hints->caps | CAPABILITIES_DOMAIN;
	if ((capabilities & (FI_MSG | FI_TAGGED)) != 0 && (capabilities & (FI_SEND | FI_RECV)) == 0)
		capabilities |= FI_SEND | FI_RECV;
	if ((capabilities & (FI_RMA | FI_ATOMIC)) != 0 && (capabilities & ONE_SIDED_DIRECTIONS) == 0)
		capabilities |= ONE_SIDED_DIRECTIONS;
	return capabilities;
}

/* The capabilities of one direction must be among those of the endpoint. */
static bool directions_agree(const struct fi_info *hints)
{
	uint64_t capabilities = offered_capabilities(hints);

	return (hints->tx_attr == NULL || within(hints->tx_attr->caps, capabilities)) &&
	       (hints->rx_attr == NULL || within(hints->rx_attr->caps, capabilities));
}

static bool agrees(const struct fi_info *hints)
{
	if (hints == NULL)
		return true;
	return within(hints->caps, CAPABILITIES) && directions_agree(hints) &&
	       (hints->addr_format == FI_FORMAT_UNSPEC || hints->addr_format == ADDRESS_FORMAT_ID) &&
	       (hints->fabric_attr == NULL || hints->fabric_attr->name == NULL ||
		strcmp(hints->fabric_attr->name, PROVIDER_NAME) == 0) &&
	       transmit_agrees(hints->tx_attr) && receive_agrees(hints->rx_attr) &&
	       endpoint_agrees(hints->ep_attr) && domain_agrees(hints->domain_attr);
}

static void fill_transmit(struct fi_tx_attr *offered, const struct fi_tx_attr *asked, uint64_t capabilities)
{
	offered->caps =
		asked != NULL && asked->caps != 0 ? asked->caps : capabilities & CAPABILITIES_TRANSMIT;
	offered->op_flags = asked != NULL ? asked->op_flags : 0;
	offered->msg_order = asked != NULL && asked->msg_order != 0 ? asked->msg_order : USUAL_ORDER;
	offered->comp_order = FI_ORDER_NONE;
	offered->inject_size = MESSENGER_INJECT_BYTES;
	offered->size = asked != NULL && asked->size != 0 ? asked->size : SEND_QUEUE_FREE;
	offered->iov_limit = LIMIT_PIECES;
	offered->rma_iov_limit = REMOTE_RANGES;
}

static void fill_receive(struct fi_rx_attr *offered, const struct fi_rx_attr *asked, uint64_t capabilities)
{
	offered->caps = asked != NULL && asked->caps != 0 ? asked->caps : capabilities & CAPABILITIES_RECEIVE;
	offered->op_flags = asked != NULL ? asked->op_flags : 0;
	offered->msg_order = asked != NULL && asked->msg_order != 0 ? asked->msg_order : USUAL_ORDER;
	offered->comp_order = FI_ORDER_NONE;
	offered->size = asked != NULL && asked->size != 0 ? asked->size : 1024;
	offered->iov_limit = LIMIT_PIECES;
}

static void fill_endpoint(struct fi_ep_attr *offered)
{
	offered->type = FI_EP_RDM;
	offered->protocol = PROTOCOL_ID;
	offered->protocol_version = REGION_VERSION;
	offered->max_msg_size = SSIZE_MAX;
	offered->max_order_raw_size = REMOTE_WHOLE_BYTES;
	offered->max_order_war_size = REMOTE_WHOLE_BYTES;
	offered->max_order_waw_size = REMOTE_WHOLE_BYTES;
	offered->mem_tag_format = TAG_FORMAT;
	offered->tx_ctx_cnt = 1;
	offered->rx_ctx_cnt = 1;
}

/*
 * The provider needs no mode bit, so fi_getinfo() clears them. The application chooses between the two old
 * modes.
 */
static int offered_mr_mode(uint32_t version, const struct fi_domain_attr *asked)
{
	int modes = asked != NULL ? asked->mr_mode : 0;

	if (modes == FI_MR_BASIC || modes == FI_MR_SCALABLE)
		return modes;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
		return FI_MR_SCALABLE; /* older versions have only the two old modes */
	return 0;
}

static void fill_domain(struct fi_domain_attr *offered, const struct fi_domain_attr *asked, uint32_t version)
{
	offered->threading =
		asked != NULL && asked->threading != FI_THREAD_UNSPEC ? asked->threading : FI_THREAD_SAFE;
	offered->control_progress = asked != NULL && asked->control_progress != FI_PROGRESS_UNSPEC
					    ? asked->control_progress
					    : FI_PROGRESS_MANUAL;
	offered->data_progress = asked != NULL && asked->data_progress != FI_PROGRESS_UNSPEC
					 ? asked->data_progress
					 : FI_PROGRESS_MANUAL;
	offered->resource_mgmt =
		asked != NULL && asked->resource_mgmt != FI_RM_UNSPEC ? asked->resource_mgmt : FI_RM_ENABLED;
	offered->av_type = asked != NULL && asked->av_type != FI_AV_UNSPEC ? asked->av_type : FI_AV_TABLE;
	offered->mr_mode = offered_mr_mode(version, asked);
	offered->mr_key_size = sizeof(uint64_t);
	offered->cq_data_size = sizeof(uint64_t);
	offered->cq_cnt = LIMIT_QUEUE;
	offered->ep_cnt = REGION_MEMBERS_MAX;
	offered->tx_ctx_cnt = REGION_MEMBERS_MAX;
	offered->rx_ctx_cnt = REGION_MEMBERS_MAX;
	offered->max_ep_tx_ctx = 1;
	offered->max_ep_rx_ctx = 1;
	offered->cntr_cnt = LIMIT_QUEUE;
	offered->mr_iov_limit = 1;
	offered->caps = CAPABILITIES_DOMAIN;
	offered->mr_cnt = LIMIT_QUEUE;
}

static void *copy_of(const struct address *address)
{
	void *copy = malloc(sizeof(*address));

	if (copy != NULL)
		memcpy(copy, address, sizeof(*address));
	return copy;
}

/* Reads a hint that is an address. Returns false if it has another format. */
static bool read_hint(const void *bytes, size_t length, struct address *address)
{
	if (length != sizeof(*address))
		return false;
	memcpy(address, bytes, sizeof(*address));
	return address->version == ADDRESS_FORMAT_VERSION;
}

/*
 * An endpoint gets its address when it joins its region, and the application cannot choose the address. So
 * the offered source is a wildcard address, whose other fields are 0. Hints with another source do not match.
 */
static int fill_source(struct fi_info *info, const char *node, uint64_t flags, const struct fi_info *hints)
{
	const struct address any = {.version = ADDRESS_FORMAT_VERSION};
	struct address asked = any;

	if ((flags & FI_SOURCE) != 0) {
		if (node != NULL && !address_from_text(node, &asked))
			return -FI_ENODATA;
	} else if (hints != NULL && hints->src_addr != NULL &&
		   !read_hint(hints->src_addr, hints->src_addrlen, &asked)) {
		return -FI_ENODATA;
	}
	if (memcmp(&asked, &any, sizeof(any)) != 0)
		return -FI_ENODATA;
	info->src_addr = copy_of(&any);
	if (info->src_addr == NULL)
		return -FI_ENOMEM;
	info->src_addrlen = sizeof(any);
	return 0;
}

/* A node is an address of this provider in text, which is complete: a service cannot add to it. */
static int fill_destination(struct fi_info *info, const char *node, const char *service, uint64_t flags,
			    const struct fi_info *hints)
{
	bool named = (flags & FI_SOURCE) == 0 && (node != NULL || service != NULL);
	struct address address;

	if (named) {
		if (node == NULL || !address_from_text(node, &address))
			return -FI_ENODATA;
	} else if (hints != NULL && hints->dest_addr != NULL) {
		if (!read_hint(hints->dest_addr, hints->dest_addrlen, &address))
			return -FI_ENODATA;
	} else {
		return 0;
	}
	info->dest_addr = copy_of(&address);
	if (info->dest_addr == NULL)
		return -FI_ENOMEM;
	info->dest_addrlen = sizeof(address);
	return 0;
}

int provider_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		     const struct fi_info *hints, struct fi_info **offered)
{
	const char *const *regions = NULL;
	uint32_t count = 0;

	if (!agrees(hints))
		return -FI_ENODATA;
	if ((flags & FI_PROV_ATTR_ONLY) == 0 && parameter_regions(&regions, &count) != 0)
		return -FI_ENODATA;

	struct fi_info *info = fi_allocinfo();
	if (info == NULL)
		return -FI_ENOMEM;
	info->caps = offered_capabilities(hints);
	info->addr_format = ADDRESS_FORMAT_ID;
	fill_transmit(info->tx_attr, hints != NULL ? hints->tx_attr : NULL, info->caps);
	fill_receive(info->rx_attr, hints != NULL ? hints->rx_attr : NULL, info->caps);
	fill_endpoint(info->ep_attr);
	fill_domain(info->domain_attr, hints != NULL ? hints->domain_attr : NULL, version);
	info->domain_attr->name = strdup(PROVIDER_NAME);
	/* prov_name stays NULL: libfabric fills it in. */
	info->fabric_attr->name = strdup(PROVIDER_NAME);
	info->fabric_attr->prov_version = PROVIDER_VERSION;
	int result = info->domain_attr->name == NULL || info->fabric_attr->name == NULL
			     ? -FI_ENOMEM
			     : fill_source(info, node, flags, hints);
	if (result == 0)
		result = fill_destination(info, node, service, flags, hints);
	if (result != 0) {
		fi_freeinfo(info);
		return result;
	}
	*offered = info;
	return 0;
}
