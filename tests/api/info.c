/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.c - the results of fi_getinfo(): only what the provider keeps, and the same again for the same hints.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>

/* The provider's whole offer. Another bit here needs scenarios that use it. */
#define OFFERED \
	(FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE | \
	 FI_LOCAL_COMM | FI_REMOTE_COMM | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | \
	 FI_REMOTE_WRITE | FI_RMA_EVENT | FI_FENCE)
#define DIRECTIONS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

static void offer(int rank)
{
	struct fi_info *hints = vicinal_hints();
	struct fi_info *info = ask(API, hints, NULL);

	(void)rank;
	CHECK(info != NULL);
	CHECK(info->next == NULL);
	CHECK(strcmp(info->fabric_attr->prov_name, "vicinal") == 0);
	SAME(info->caps, OFFERED);
	SAME(info->mode, 0);
	SAME(info->tx_attr->mode | info->rx_attr->mode | info->domain_attr->mode, 0);
	SAME(info->ep_attr->type, FI_EP_RDM);
	SAME(info->ep_attr->tx_ctx_cnt, 1);
	SAME(info->ep_attr->rx_ctx_cnt, 1);
	SAME(info->domain_attr->mr_mode, 0);
	SAME(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
	CHECK(info->domain_attr->cq_data_size >= 8);
	CHECK((info->tx_attr->msg_order & info->rx_attr->msg_order & FI_ORDER_SAS) != 0);
	CHECK(info->tx_attr->iov_limit >= 4 && info->rx_attr->iov_limit >= 4);
	CHECK(info->tx_attr->inject_size >= 16);
	CHECK(info->tx_attr->rma_iov_limit >= 4);
	CHECK(info->domain_attr->mr_iov_limit >= 1);
	CHECK(info->ep_attr->max_order_raw_size >= 4096 && info->ep_attr->max_order_war_size >= 4096 &&
	      info->ep_attr->max_order_waw_size >= 4096);
	CHECK(info->src_addr != NULL && info->src_addrlen > 0 && info->dest_addr == NULL);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* An application of any age finds the provider. */
static void versions(int rank)
{
	(void)rank;
	for (uint32_t minor = 0; minor <= FI_MINOR(fi_version()); minor++)
		for (uint32_t major = 1; major <= FI_MAJOR(fi_version()); major++) {
			/* 1.x ended with 1.22; after it came 2.0. */
			uint32_t version = FI_VERSION(major, minor);
			if (FI_VERSION_LT(fi_version(), version))
				continue;
			struct fi_info *hints = vicinal_hints();
			hints->caps = FI_TAGGED;
			int result = 0;
			struct fi_info *info = ask(version, hints, &result);
			SAME(result, 0);
			SAME(info->fabric_attr->api_version, version);
			struct fid_fabric *fabric = NULL;
			struct fid_domain *domain = NULL;
			SAME(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
			SAME(fi_domain(fabric, info, &domain, NULL), 0);
			SAME(fi_close(&domain->fid), 0);
			SAME(fi_close(&fabric->fid), 0);
			fi_freeinfo(info);
			fi_freeinfo(hints);
		}
}

/* ---- what is refused ---- */

static void refuse(struct fi_info *hints, const char *what)
{
	int result = 0;
	struct fi_info *info = ask(API, hints, &result);

	if (result != -FI_ENODATA) {
		char text[128];
		(void)snprintf(text, sizeof(text), "hints with %s are answered with %d", what, result);
		check_failed(__FILE__, __LINE__, text);
	}
	CHECK(info == NULL);
	fi_freeinfo(hints);
}

#define REFUSE(field, value) \
	do { \
		struct fi_info *refused = vicinal_hints(); \
		refused->field = (value); \
		refuse(refused, #field " = " #value); \
	} while (0)

static void refused_capabilities(int rank)
{
	(void)rank;
	for (int bit = 0; bit < 64; bit++) {
		uint64_t capability = UINT64_C(1) << bit;
		char text[32];
		if ((capability & OFFERED) != 0)
			continue;
		struct fi_info *hints = vicinal_hints();
		hints->caps = FI_MSG | capability;
		(void)snprintf(text, sizeof(text), "capability bit %d", bit);
		refuse(hints, text);
	}
}

static void refused_attributes(int rank)
{
	(void)rank;
	REFUSE(ep_attr->type, FI_EP_MSG);
	REFUSE(ep_attr->type, FI_EP_DGRAM);
	REFUSE(ep_attr->protocol, FI_PROTO_RXM);
	REFUSE(ep_attr->protocol, FI_PROTO_SHM);
	REFUSE(ep_attr->max_msg_size, SIZE_MAX);
	REFUSE(ep_attr->tx_ctx_cnt, 2);
	REFUSE(ep_attr->rx_ctx_cnt, 2);
	REFUSE(ep_attr->tx_ctx_cnt, FI_SHARED_CONTEXT);
	REFUSE(ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
	REFUSE(addr_format, FI_SOCKADDR_IN);
	REFUSE(addr_format, FI_ADDR_STR);
	REFUSE(tx_attr->comp_order, FI_ORDER_STRICT);
	REFUSE(rx_attr->comp_order, FI_ORDER_STRICT);
	REFUSE(rx_attr->comp_order, FI_ORDER_STRICT | FI_ORDER_DATA);
	REFUSE(tx_attr->caps, FI_REMOTE_READ);
	REFUSE(rx_attr->caps, FI_WRITE);
	REFUSE(tx_attr->msg_order, FI_ORDER_SAW);
	REFUSE(rx_attr->msg_order, FI_ORDER_SAR);
	REFUSE(ep_attr->max_order_waw_size, SIZE_MAX);
	REFUSE(domain_attr->caps, FI_SHARED_AV);
	REFUSE(tx_attr->op_flags, FI_COMMIT_COMPLETE);
	REFUSE(tx_attr->op_flags, FI_FENCE);
	REFUSE(tx_attr->op_flags, FI_MULTICAST);
	REFUSE(rx_attr->op_flags, FI_INJECT);
	REFUSE(tx_attr->size, 8193);
	REFUSE(tx_attr->rma_iov_limit, 5);
	REFUSE(rx_attr->total_buffered_recv, 1);
	REFUSE(domain_attr->cq_data_size, 9);
	REFUSE(domain_attr->mr_key_size, 9);
	REFUSE(domain_attr->max_ep_tx_ctx, 2);
	REFUSE(domain_attr->max_ep_rx_ctx, 2);
	REFUSE(domain_attr->max_ep_stx_ctx, 1);
	REFUSE(domain_attr->max_ep_srx_ctx, 1);
	REFUSE(domain_attr->name, strdup("another"));
	REFUSE(fabric_attr->name, strdup("another"));

	/* Directions that contradict the capabilities. */
	struct fi_info *hints = vicinal_hints();
	hints->caps = FI_TAGGED | FI_SEND;
	hints->tx_attr->caps = FI_MSG | FI_SEND;
	refuse(hints, "transmit capabilities beyond the endpoint's");
	hints = vicinal_hints();
	hints->caps = FI_TAGGED;
	hints->rx_attr->caps = FI_TAGGED | FI_RECV | FI_MULTI_RECV;
	refuse(hints, "receive capabilities beyond the endpoint's");
}

static void refused_keys(int rank)
{
	unsigned char key[8] = {1};

	(void)rank;
	for (int index = 0; index < 2; index++) {
		struct fi_info *hints = vicinal_hints();
		uint8_t *copy = malloc(sizeof(key));
		CHECK(copy != NULL);
		memcpy(copy, key, sizeof(key));
		if (index == 0) {
			hints->ep_attr->auth_key = copy;
			hints->ep_attr->auth_key_size = sizeof(key);
		} else {
			hints->domain_attr->auth_key = copy;
			hints->domain_attr->auth_key_size = sizeof(key);
		}
		refuse(hints, "an authorization key");
	}
}

/* Providers that layer themselves over others search for messages or datagrams below them. */
static void refused_to_layers(int rank)
{
	static const enum fi_ep_type types[] = {FI_EP_MSG, FI_EP_DGRAM};
	const uint64_t core_only = UINT64_C(1) << 59;

	(void)rank;
	for (size_t i = 0; i < 2; i++) {
		struct fi_info *hints = vicinal_hints();
		struct fi_info *info = NULL;
		hints->ep_attr->type = types[i];
		hints->caps = FI_MSG;
		SAME(fi_getinfo(API, NULL, NULL, core_only, hints, &info), -FI_ENODATA);
		fi_freeinfo(hints);
	}
	static const char *const layered[] = {"vicinal;ofi_rxm", "vicinal;ofi_rxd"};
	for (size_t i = 0; i < 2; i++) {
		struct fi_info *hints = fi_allocinfo();
		hints->fabric_attr->prov_name = strdup(layered[i]);
		refuse(hints, layered[i]);
	}
}

/* ---- what is granted ---- */

static void check_subset(const struct fi_info *info)
{
	SAME(info->caps & ~OFFERED, 0);
	SAME(info->tx_attr->caps & ~info->caps, 0);
	SAME(info->rx_attr->caps & ~info->caps, 0);
}

/* A result, given back as hints, returns the same. */
static void round_trip(int rank)
{
	static const uint64_t optional[] = {FI_MSG,         FI_TAGGED,        FI_SEND,   FI_RECV,
					    FI_MULTI_RECV,  FI_DIRECTED_RECV, FI_SOURCE, FI_LOCAL_COMM,
					    FI_REMOTE_COMM, FI_RMA,           FI_ATOMIC, FI_RMA_EVENT};

	(void)rank;
	for (unsigned set = 0; set < 1U << 12; set++) {
		struct fi_info *hints = vicinal_hints();
		for (unsigned i = 0; i < 12; i++)
			hints->caps |= set >> i & 1 ? optional[i] : 0;
		int result = 0;
		struct fi_info *info = ask(API, hints, &result);
		SAME(result, 0);
		SAME(info->caps & hints->caps, hints->caps);
		check_subset(info);
		if ((hints->caps & (FI_MSG | FI_TAGGED)) != 0 && (hints->caps & (FI_SEND | FI_RECV)) == 0)
			SAME(info->caps & (FI_SEND | FI_RECV), FI_SEND | FI_RECV);
		bool one_sided = hints->caps == 0 || (hints->caps & (FI_RMA | FI_ATOMIC)) != 0;
		SAME(info->caps & DIRECTIONS, one_sided ? DIRECTIONS : 0);
		struct fi_info *again = ask(API, info, &result);
		SAME(result, 0);
		CHECK(again->next == NULL);
		char *text = strdup(fi_tostr(info, FI_TYPE_INFO));
		CHECK(strcmp(text, fi_tostr(again, FI_TYPE_INFO)) == 0);
		free(text);
		SAME(again->caps, info->caps);
		fi_freeinfo(again);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

/* A requested number is returned at least, or refused. */
#define AT_LEAST(field) \
	do { \
		static const uint64_t values[] = { \
			1, 2, 4, 5, 8, 64, 424, 425, 512, 65536, 65537, UINT32_MAX}; \
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) { \
			struct fi_info *hints = vicinal_hints(); \
			int result = 0; \
			hints->field = (__typeof__(hints->field))values[i]; \
			struct fi_info *info = ask(API, hints, &result); \
			CHECK(result == -FI_ENODATA || (result == 0 && info->field >= hints->field)); \
			if (info != NULL) \
				fi_freeinfo(info); \
			fi_freeinfo(hints); \
		} \
	} while (0)

static void numbers(int rank)
{
	(void)rank;
	AT_LEAST(tx_attr->inject_size);
	AT_LEAST(tx_attr->size);
	AT_LEAST(tx_attr->iov_limit);
	AT_LEAST(tx_attr->rma_iov_limit);
	AT_LEAST(rx_attr->size);
	AT_LEAST(rx_attr->iov_limit);
	AT_LEAST(rx_attr->total_buffered_recv);
	AT_LEAST(ep_attr->max_msg_size);
	AT_LEAST(ep_attr->max_order_raw_size);
	AT_LEAST(ep_attr->max_order_war_size);
	AT_LEAST(ep_attr->max_order_waw_size);
	AT_LEAST(ep_attr->tx_ctx_cnt);
	AT_LEAST(ep_attr->rx_ctx_cnt);
	AT_LEAST(domain_attr->cq_data_size);
	AT_LEAST(domain_attr->mr_key_size);
	AT_LEAST(domain_attr->cq_cnt);
	AT_LEAST(domain_attr->ep_cnt);
	AT_LEAST(domain_attr->cntr_cnt);
	AT_LEAST(domain_attr->tx_ctx_cnt);
	AT_LEAST(domain_attr->rx_ctx_cnt);
	AT_LEAST(domain_attr->max_ep_tx_ctx);
	AT_LEAST(domain_attr->max_ep_rx_ctx);
	AT_LEAST(domain_attr->max_ep_stx_ctx);
	AT_LEAST(domain_attr->max_ep_srx_ctx);
	AT_LEAST(domain_attr->mr_iov_limit);
	AT_LEAST(domain_attr->mr_cnt);
}

#define ECHOED(field, value) \
	do { \
		struct fi_info *hints = vicinal_hints(); \
		int result = 0; \
		hints->field = (value); \
		struct fi_info *info = ask(API, hints, &result); \
		SAME(result, 0); \
		SAME(info->field, value); \
		fi_freeinfo(info); \
		fi_freeinfo(hints); \
	} while (0)

static void choices(int rank)
{
	(void)rank;
	ECHOED(domain_attr->threading, FI_THREAD_SAFE);
	ECHOED(domain_attr->threading, FI_THREAD_FID);
	ECHOED(domain_attr->threading, FI_THREAD_ENDPOINT);
	ECHOED(domain_attr->threading, FI_THREAD_COMPLETION);
	ECHOED(domain_attr->threading, FI_THREAD_DOMAIN);
	ECHOED(domain_attr->data_progress, FI_PROGRESS_AUTO);
	ECHOED(domain_attr->data_progress, FI_PROGRESS_MANUAL);
	ECHOED(domain_attr->control_progress, FI_PROGRESS_AUTO);
	ECHOED(domain_attr->control_progress, FI_PROGRESS_MANUAL);
	ECHOED(domain_attr->av_type, FI_AV_TABLE);
	ECHOED(domain_attr->av_type, FI_AV_MAP);
	ECHOED(tx_attr->msg_order, FI_ORDER_SAS);
	ECHOED(rx_attr->msg_order, FI_ORDER_SAS);
	ECHOED(tx_attr->op_flags, FI_DELIVERY_COMPLETE);
	ECHOED(tx_attr->op_flags, FI_COMPLETION | FI_INJECT_COMPLETE);
	ECHOED(rx_attr->op_flags, FI_COMPLETION | FI_MULTI_RECV);
}

/* Registration modes that are not needed are cleared. The two old modes are as the application wants. */
static void modes(int rank)
{
	static const struct {
		uint32_t version;
		int asked;
		int given;
	} cases[] = {
		{API, 0, 0},
		{API, FI_MR_ENDPOINT, 0},
		{API, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 0},
		{API, FI_MR_LOCAL | FI_MR_RAW | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_HMEM, 0},
		{API, FI_MR_BASIC, FI_MR_BASIC},
		{API, FI_MR_SCALABLE, FI_MR_SCALABLE},
		{FI_VERSION(1, 4), FI_MR_UNSPEC, FI_MR_SCALABLE},
		{FI_VERSION(1, 4), FI_MR_BASIC, FI_MR_BASIC},
		{FI_VERSION(1, 4), FI_MR_SCALABLE, FI_MR_SCALABLE},
	};

	(void)rank;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fi_info *hints = vicinal_hints();
		hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
		hints->domain_attr->mr_mode = cases[i].asked;
		struct fi_info *info = ask(cases[i].version, hints, NULL);
		CHECK(info != NULL);
		SAME(info->mode, 0);
		SAME(info->domain_attr->mr_mode, cases[i].given);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

static void nodes(int rank)
{
	struct fi_info *hints = vicinal_hints();
	struct fi_info *info = NULL;
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	size_t length = sizeof(name);
	char text[128];
	size_t text_length = sizeof(text);

	side_open(&side, rank, NULL);
	SAME(fi_getname(&side.endpoint->fid, name, &length), 0);
	CHECK(fi_av_straddr(side.av, name, text, &text_length) == text);
	SAME(text_length, strlen(text) + 1);

	/* An address as text is a node, and comes back as it was. */
	SAME(fi_getinfo(API, text, NULL, 0, hints, &info), 0);
	SAME(info->dest_addrlen, length);
	CHECK(memcmp(info->dest_addr, name, length) == 0);
	/* The same in dest_addr of hints. */
	struct fi_info *again = ask(API, info, NULL);
	CHECK(again != NULL && again->dest_addrlen == length);
	CHECK(memcmp(again->dest_addr, name, length) == 0);
	fi_freeinfo(again);
	fi_freeinfo(info);

	/* A host, or an address of ours as the source, is not for this provider. */
	SAME(fi_getinfo(API, "localhost", NULL, 0, hints, &info), -FI_ENODATA);
	SAME(fi_getinfo(API, "127.0.0.1", "4711", FI_NUMERICHOST, hints, &info), -FI_ENODATA);
	SAME(fi_getinfo(API, "vicinal://1/2/3", NULL, 0, hints, &info), -FI_ENODATA);
	SAME(fi_getinfo(API, text, NULL, FI_SOURCE, hints, &info), -FI_ENODATA);

	/* No service is a destination. For a source it changes nothing, because none can be chosen. */
	SAME(fi_getinfo(API, NULL, "4711", 0, hints, &info), -FI_ENODATA);
	SAME(fi_getinfo(API, NULL, "4711", FI_SOURCE, hints, &info), 0);
	CHECK(info->src_addr != NULL && info->src_addrlen == length && info->dest_addr == NULL);
	/* The returned source is accepted as a hint and as a node. */
	again = ask(API, info, NULL);
	CHECK(again != NULL && again->src_addrlen == length);
	CHECK(memcmp(again->src_addr, info->src_addr, length) == 0);
	fi_freeinfo(again);
	text_length = sizeof(text);
	CHECK(fi_av_straddr(side.av, info->src_addr, text, &text_length) == text);
	SAME(fi_getinfo(API, text, NULL, FI_SOURCE, hints, &again), 0);
	fi_freeinfo(again);
	/* Another source is refused, as a hint and as a node, and so are addresses of another kind. */
	memcpy(info->src_addr, name, length);
	CHECK(ask(API, info, NULL) == NULL);
	info->src_addrlen = 16;
	CHECK(ask(API, info, NULL) == NULL);
	fi_freeinfo(info);
	hints->dest_addr = calloc(1, 16);
	hints->dest_addrlen = 16;
	CHECK(ask(API, hints, NULL) == NULL);
	fi_freeinfo(hints);
	side_close(&side);
}

/* If asked for its attributes only, the provider answers even without a region. */
static void without_region(int rank)
{
	struct fi_info *hints = vicinal_hints();
	struct fi_info *info = NULL;
	int vicinals = 0;

	(void)rank;
	(void)setenv("VICINAL_REGION", "file:/nonexistent/region", 1);
	SAME(fi_getinfo(API, NULL, NULL, 0, hints, &info), -FI_ENODATA);
	SAME(fi_getinfo(API, NULL, NULL, FI_PROV_ATTR_ONLY, hints, &info), 0);
	for (const struct fi_info *each = info; each != NULL; each = each->next)
		if (strcmp(each->fabric_attr->prov_name, "vicinal") == 0) {
			vicinals++;
			CHECK(each->fabric_attr->prov_version != 0);
		}
	SAME(vicinals, 1);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* `fi_info -e` shows what fi_getparams() lists. */
static void parameters(int rank)
{
	static const char *const names[] = {"FI_VICINAL_REGION",      "FI_VICINAL_PEER_TIMEOUT",
					    "FI_VICINAL_ALLOW_SLOW",  "FI_VICINAL_RANK",
					    "FI_VICINAL_SINGLE_COPY", "FI_VICINAL_SEND_QUEUE",
					    "FI_VICINAL_JOB",         "FI_VICINAL_UNEXPECTED"};
	struct fi_param *listed = NULL;
	int count = 0;

	(void)rank;
	SAME(fi_getparams(&listed, &count), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int found = 0;
		for (int j = 0; j < count; j++)
			if (strcmp(listed[j].name, names[i]) == 0) {
				found++;
				CHECK(listed[j].help_string != NULL);
				CHECK(strstr(listed[j].help_string, "VICINAL_") != NULL);
			}
		SAME(found, 1);
	}
	fi_freeparams(listed);
}

const struct scenario info_scenarios[] = {
	{"offer", 1, offer},
	{"versions", 1, versions},
	{"refused_capabilities", 1, refused_capabilities},
	{"refused_attributes", 1, refused_attributes},
	{"refused_keys", 1, refused_keys},
	{"refused_to_layers", 1, refused_to_layers},
	{"round_trip", 1, round_trip},
	{"numbers", 1, numbers},
	{"choices", 1, choices},
	{"modes", 1, modes},
	{"nodes", 1, nodes},
	{"without_region", 1, without_region},
	{"parameters", 1, parameters},
	{0},
};
