/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matching.c - the time of a message in nanoseconds, with few and with many outstanding.
 *
 *   VICINAL_REGION=file:... FI_PROVIDER_PATH=... matching [short]
 *
 * An endpoint sends to itself, so the figures contain no other processor and no cache line on its way between
 * two processors. They contain libfabric, the provider and its matching. Each figure is the best of several
 * rounds. docs/decisions/0003 quotes them.
 *
 * Not a test: run it by hand, on a quiet machine.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 7
#define MESSAGES 20000U
#define OUTSTANDING_MAX 10000U
/* The number of messages that are sent at once. They fit into a ring. */
#define BATCH 32U
#define SENTINEL (UINT64_C(1) << 60)
/* As in Open MPI: a protocol bit of the tag is always ignored. */
#define PROTOCOL_BITS UINT64_C(0x100000000)

static struct fid_ep *endpoint;
static struct fid_cq *queue;
static fi_addr_t self;
static uint64_t words[OUTSTANDING_MAX];
static uint64_t sent_word;

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "matching: error: %s\n", what);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void open_endpoint(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_info *info = NULL;
	struct fid_fabric *fabric = NULL;
	struct fid_domain *domain = NULL;
	struct fid_av *av = NULL;
	struct fi_cq_attr queue_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	char name[64];
	size_t length = sizeof(name);

	require(hints != NULL, "no memory");
	hints->fabric_attr->prov_name = strdup("vicinal");
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = 0;
	hints->rx_attr->op_flags = FI_COMPLETION;
	require(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == 0,
		"no such provider: set FI_PROVIDER_PATH and VICINAL_REGION");
	require(fi_fabric(info->fabric_attr, &fabric, NULL) == 0 &&
			fi_domain(fabric, info, &domain, NULL) == 0 &&
			fi_endpoint(domain, info, &endpoint, NULL) == 0 &&
			fi_cq_open(domain, &queue_attr, &queue, NULL) == 0 &&
			fi_av_open(domain, &av_attr, &av, NULL) == 0 &&
			fi_ep_bind(endpoint, &queue->fid, FI_RECV | FI_TRANSMIT | FI_SELECTIVE_COMPLETION) ==
				0 &&
			fi_ep_bind(endpoint, &av->fid, 0) == 0 && fi_enable(endpoint) == 0 &&
			fi_getname(&endpoint->fid, name, &length) == 0 &&
			fi_av_insert(av, name, 1, &self, 0, NULL) == 1,
		"cannot open an endpoint");
	fi_freeinfo(hints);
	fi_freeinfo(info);
}

static void post(uint64_t tag, fi_addr_t from, uint64_t ignore)
{
	require(fi_trecv(endpoint, &words[tag % OUTSTANDING_MAX], 8, NULL, from, tag, ignore, NULL) == 0,
		"cannot post a receive");
}

static void send_one(uint64_t tag)
{
	ssize_t result = 0;

	while ((result = fi_tinject(endpoint, &sent_word, 8, self, tag)) == -FI_EAGAIN)
		(void)fi_cq_read(queue, NULL, 0);
	require(result == 0, "cannot send");
}

static void await_one(void)
{
	struct fi_cq_tagged_entry entry;
	ssize_t result = 0;

	while ((result = fi_cq_read(queue, &entry, 1)) == -FI_EAGAIN)
		;
	require(result == 1, "no completion");
}

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)((*state >> 11) % limit);
}

enum which { FIRST, LAST, ANY_OF_THEM };

/* The order in which the entries are used, repeated. */
static void choose(uint32_t *order, enum which which, uint32_t outstanding)
{
	uint64_t seed = 88172645463325252U;

	for (uint32_t i = 0; i < outstanding; i++)
		order[i] = which == LAST ? outstanding - 1 - i : i;
	for (uint32_t i = outstanding; which == ANY_OF_THEM && i > 1; i--) {
		uint32_t other = random_below(&seed, i);
		uint32_t kept = order[i - 1];
		order[i - 1] = order[other];
		order[other] = kept;
	}
}

/* Receives are posted, and messages come. A receive that was used is posted again. */
static double run_posted(uint32_t outstanding, enum which which, fi_addr_t from)
{
	static uint32_t order[OUTSTANDING_MAX];
	uint32_t next = 0;

	choose(order, which, outstanding);
	for (uint32_t i = 0; i < outstanding; i++)
		post(i, from, PROTOCOL_BITS);
	double begin = now();
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint64_t tag = order[next];
		/* The receive that was posted last is the next again. */
		if (which != LAST)
			next = next + 1 == outstanding ? 0 : next + 1;
		send_one(tag);
		await_one();
		post(tag, from, PROTOCOL_BITS);
	}
	double took = (now() - begin) / MESSAGES;
	for (uint32_t i = 0; i < outstanding; i++) {
		send_one(i);
		await_one();
	}
	return took;
}

/* Receive all sent messages: an expected message comes after them. */
static void take_in(void)
{
	post(SENTINEL, self, 0);
	send_one(SENTINEL);
	await_one();
}

/* Messages wait, and receives are posted. A message that was received is sent again. */
static double run_unexpected(uint32_t outstanding, enum which which, fi_addr_t from)
{
	require(outstanding > 0, "there is nothing to measure");
	static uint32_t order[OUTSTANDING_MAX];
	uint32_t batch = outstanding < BATCH ? outstanding : BATCH;
	uint32_t batches = MESSAGES / batch;
	uint32_t next = 0;

	choose(order, which, outstanding);
	for (uint32_t i = 0; i < outstanding; i++) {
		send_one(i);
		if (i % BATCH == 0)
			take_in();
	}
	take_in();
	double begin = now();
	for (uint32_t i = 0; i < batches; i++) {
		for (uint32_t k = 0; k < batch; k++) {
			post(order[(next + k) % outstanding], from, PROTOCOL_BITS);
			await_one();
		}
		for (uint32_t k = 0; k < batch; k++)
			send_one(order[(next + (which == LAST ? batch - 1 - k : k)) % outstanding]);
		take_in();
		if (which != LAST)
			next = (next + batch) % outstanding;
	}
	double took = (now() - begin) / (batches * batch);
	for (uint32_t i = 0; i < outstanding; i++) {
		post(i, from, PROTOCOL_BITS);
		await_one();
	}
	return took;
}

typedef double measured(uint32_t outstanding, enum which which, fi_addr_t from);

static double best(measured *run, uint32_t outstanding, enum which which, fi_addr_t from)
{
	double least = run(outstanding, which, from);

	for (int round = 1; round < ROUNDS; round++) {
		double took = run(outstanding, which, from);
		least = took < least ? took : least;
		if (took > 2000)
			break; /* long enough for a reliable figure */
	}
	return least;
}

/* Post, send to oneself, read the completion, with nothing else outstanding. */
static double short_path(void)
{
	double least = 0;

	for (int round = 0; round < ROUNDS * 5; round++) {
		double begin = now();
		for (uint32_t i = 0; i < MESSAGES; i++) {
			post(1, self, PROTOCOL_BITS);
			send_one(1);
			await_one();
		}
		double took = (now() - begin) / MESSAGES;
		least = round == 0 || took < least ? took : least;
	}
	return least;
}

int main(int argc, char **argv)
{
	static const uint32_t outstanding[] = {1, 4, 10, 16, 20, 40, 100, 1000, 10000};
	static const char *const which_names[] = {"first", "last", "random"};

	open_endpoint();
	(void)printf("post, send to oneself, read the completion: %.1f ns\n", short_path());
	if (argc > 1 && strcmp(argv[1], "short") == 0)
		return 0;
	(void)printf("%-12s %-7s %-7s", "outstanding", "taken", "from");
	for (size_t i = 0; i < sizeof(outstanding) / sizeof(outstanding[0]); i++)
		(void)printf(" %8u", outstanding[i]);
	(void)printf("\n");
	for (int unexpected = 0; unexpected < 2; unexpected++)
		for (enum which which = FIRST; which <= ANY_OF_THEM; which++)
			for (int any = 0; any < 2; any++) {
				(void)printf("%-12s %-7s %-7s", unexpected ? "messages" : "receives",
					     which_names[which], any ? "any" : "one");
				for (size_t i = 0; i < sizeof(outstanding) / sizeof(outstanding[0]); i++) {
					double took =
						best(unexpected ? run_unexpected : run_posted, outstanding[i],
						     which, any ? FI_ADDR_UNSPEC : self);
					(void)printf(" %8.0f", took);
					(void)fflush(stdout);
				}
				(void)printf("\n");
			}
	return 0;
}
