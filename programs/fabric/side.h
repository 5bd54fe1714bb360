/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * side.h - one end of messages that uses only libfabric, for the programs in this folder. The
 * including file must define PROGRAM as its name.
 */
#ifndef VICINAL_PROGRAMS_FABRIC_SIDE_H
#define VICINAL_PROGRAMS_FABRIC_SIDE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES 64

struct name {
	char bytes[NAME_BYTES];
	size_t length;
};

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *endpoint;
};

static inline void check(long result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, PROGRAM ": error: %s: %s: check FI_PROVIDER and FI_PROVIDER_PATH\n", what,
		fi_strerror((int)-result));
	exit(1);
}

/*
 * libfabric's entries for this provider, or for any provider if it is NULL. NULL if there are none.
 */
static inline struct fi_info *list_provider(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	if (hints == NULL)
		check(-FI_ENOMEM, "fi_allocinfo");
	hints->caps = FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	if (provider != NULL)
		hints->fabric_attr->prov_name = strdup(provider);
	if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) != 0)
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

static inline struct fi_info *find_provider(const char *provider)
{
	struct fi_info *info = list_provider(provider);

	if (info == NULL)
		check(-FI_ENODATA, "fi_getinfo");
	return info;
}

static inline void open_side_by(struct side *side, const char *provider)
{
	struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr vector = {.type = FI_AV_TABLE};

	side->info = find_provider(provider);
	check(fi_fabric(side->info->fabric_attr, &side->fabric, NULL), "fi_fabric");
	check(fi_domain(side->fabric, side->info, &side->domain, NULL), "fi_domain");
	check(fi_av_open(side->domain, &vector, &side->av, NULL), "fi_av_open");
	check(fi_cq_open(side->domain, &queue, &side->cq, NULL), "fi_cq_open");
	check(fi_endpoint(side->domain, side->info, &side->endpoint, NULL), "fi_endpoint");
	check(fi_ep_bind(side->endpoint, &side->av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(side->endpoint, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(side->endpoint), "fi_enable");
}

static inline void open_side(struct side *side)
{
	open_side_by(side, NULL);
}

/* In reverse order: an endpoint must be closed before the objects to which it is bound. */
static inline void close_side(struct side *side)
{
	fi_close(&side->endpoint->fid);
	fi_close(&side->cq->fid);
	fi_close(&side->av->fid);
	fi_close(&side->domain->fid);
	fi_close(&side->fabric->fid);
	fi_freeinfo(side->info);
}

/*
 * Pauses `pause` microseconds between two reads, because all processes need a core while
 * connections are established.
 */
static inline void wait_for_one(struct side *side, useconds_t pause)
{
	struct fi_cq_tagged_entry entry;
	ssize_t result;

	while ((result = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		if (pause > 0)
			usleep(pause);
	check(result, "fi_cq_read");
}

static inline void send_to(struct side *side, fi_addr_t address, uint64_t tag)
{
	long word = 0;
	ssize_t result;

	while ((result = fi_tinject(side->endpoint, &word, sizeof(word), address, tag)) == -FI_EAGAIN)
		(void)fi_cq_read(side->cq, NULL, 0);
	check(result, "fi_tinject");
}

static inline double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* The number in `text`, or -1 if it is not a number from 0 to `most`. */
static inline int number(const char *text, int most)
{
	char *end;
	long value = strtol(text, &end, 10);

	return end == text || *end != '\0' || value < 0 || value > most ? -1 : (int)value;
}

#endif
