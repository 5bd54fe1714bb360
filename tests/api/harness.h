/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * harness.h - scenarios of one to four processes that use only libfabric.
 *
 * A scenario is a function that every rank runs in a process of its own, forked before any call of libfabric.
 * A failed check ends the rank at once, with one line, and the other ranks with it. VICINAL_REGION,
 * FI_PROVIDER_PATH and other variables come from outside.
 */
#ifndef VICINAL_TESTS_API_HARNESS_H
#define VICINAL_TESTS_API_HARNESS_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/deprecated.h"

#define RANKS_MAX 4
#define ENDPOINTS_MAX 4
#define NAME_MAX_BYTES 64
/* The version that most scenarios request: the oldest that has everything they use. */
#define API FI_VERSION(1, 17)

struct scenario {
	const char *name;
	int ranks;
	void (*run)(int rank);
};

/* A group is a file of scenarios. The last entry of its array has no name. */
extern const struct scenario address_scenarios[], atomic_scenarios[], atomic_refused_scenarios[],
	beyond_scenarios[], complete_scenarios[], counter_scenarios[], crowd_scenarios[],
	descriptor_scenarios[], direct_scenarios[], ended_scenarios[], fork_scenarios[], heap_scenarios[],
	info_scenarios[], late_scenarios[], leaks_scenarios[], input_scenarios[], event_scenarios[],
	match_scenarios[], misuse_scenarios[], mr_scenarios[], multiple_scenarios[], order_scenarios[],
	rma_scenarios[], rma_refused_scenarios[], send_scenarios[], several_scenarios[], thread_scenarios[],
	wait_scenarios[];

/* ---- checks ---- */

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
/* Both values are shown if they differ. */
#define SAME(actual, expected) \
	check_same((long long)(actual), (long long)(expected), __FILE__, __LINE__, #actual)

_Noreturn void check_failed(const char *file, int line, const char *text);
void check_same(long long actual, long long expected, const char *file, int line, const char *text);

/* ---- one rank's side ---- */

/* The options of a scenario. Zeroes are the defaults. */
struct side_options {
	uint64_t caps;               /* by default all that are offered */
	enum fi_av_type av_type;     /* by default a table */
	enum fi_cq_format format;    /* by default tagged */
	enum fi_threading threading; /* by default safe */
	enum fi_progress progress;   /* by default manual */
	uint64_t send_bind;          /* beside FI_TRANSMIT */
	uint64_t receive_bind;       /* beside FI_RECV */
	uint64_t transmit_flags;     /* tx_attr->op_flags */
	uint64_t receive_flags;      /* rx_attr->op_flags */
	uint64_t order;              /* msg_order of both; by default what is offered */
	size_t queue_size;
	size_t transmit_size; /* tx_attr->size; by default what is offered */
	enum fi_wait_obj wait;
	bool counters;
	int mr_mode;      /* by default 0 */
	uint32_t version; /* by default API */
	int endpoints;    /* by default one; they share queues and address vector */
};

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *sent;     /* of transmissions */
	struct fid_cq *received; /* of receives */
	struct fid_cntr *sent_count;
	struct fid_cntr *received_count;
	struct fid_ep *endpoint; /* the first of them */
	struct fid_ep *endpoints[ENDPOINTS_MAX];
	int count;
	int rank;
	fi_addr_t peer[RANKS_MAX];                 /* the first endpoint of each rank */
	fi_addr_t peers[RANKS_MAX][ENDPOINTS_MAX]; /* all of them */
};

/* Hints that ask for Vicinal, to be freed with fi_freeinfo(). */
struct fi_info *vicinal_hints(void);
/* The result of fi_getinfo() for hints; frees neither. NULL, with the error in `result`. */
struct fi_info *ask(uint32_t version, const struct fi_info *hints, int *result);

/* What counters of one-sided operations count: our own operations, and those of other ranks. */
enum counted { COUNT_READ, COUNT_WRITE, COUNT_REMOTE_READ, COUNT_REMOTE_WRITE, COUNTED };

/* Open everything up to the domain, queues and address vector, but no endpoint. */
void side_prepare(struct side *side, int rank, const struct side_options *options);
/* Another endpoint, bound but not enabled. */
struct fid_ep *side_endpoint(const struct side *side, const struct side_options *options);
/* Open everything, and exchange the addresses of all ranks. `options` may be NULL. */
void side_open(struct side *side, int rank, const struct side_options *options);
void side_close(struct side *side);
/* Like side_open(), with these counters bound to the endpoint. */
void side_open_counting(struct side *side, int rank, const struct side_options *options,
			struct fid_cntr *counters[COUNTED]);
void side_close_counting(struct side *side, struct fid_cntr *counters[COUNTED]);
/* Close only the endpoints. */
void side_close_endpoints(struct side *side);
/* Call into the provider, as an application does that waits for something else. */
void side_progress(const struct side *side);

/* ---- exposed memory ---- */

#define REMOTE_BOTH (FI_REMOTE_READ | FI_REMOTE_WRITE)
/* The flags of completions of reads, writes and atomics. A fetching atomic is a read. */
#define WRITTEN (FI_RMA | FI_WRITE)
#define READ (FI_RMA | FI_READ)
#define CHANGED (FI_ATOMIC | FI_WRITE)
#define FETCHED (FI_ATOMIC | FI_READ)

/* Register memory, only for side->endpoint if the mode requires that, and publish it to the other ranks. */
struct fid_mr *side_expose(struct side *side, void *buffer, size_t length, uint64_t access, uint64_t key);
/* The last exposure of a rank. There must have been a barrier since then. */
uint64_t exposed_address(int rank);
uint64_t exposed_key(int rank);

/* ---- ranks ---- */

/* The number of ranks of the running scenario. */
int ranks(void);
/* Wait for all ranks. With a side, make progress meanwhile. */
void barrier(const struct side *side);
/* A few words that all ranks share, zero at first. */
_Atomic uint64_t *shared_word(int index);
/* Publish the endpoints' names, and insert the names of all ranks. Collective, with barriers. */
void exchange_names(struct side *side);

/* ---- completions ---- */

/* The next completion; fails on an error. */
struct fi_cq_tagged_entry next_completion(struct fid_cq *cq);
struct fi_cq_tagged_entry next_completion_from(struct fid_cq *cq, fi_addr_t *source);
/* The next completion, which must be an error. */
struct fi_cq_err_entry next_error(struct fid_cq *cq);
/* The next completion of an operation of `side` has this context and these flags. */
void expect_completion(const struct side *side, const void *context, uint64_t flags);
/* The same for an operation that failed. */
void expect_error(const struct side *side, const void *context, int error);
/* Check that many reads find nothing. */
void expect_nothing(const struct side *side, struct fid_cq *cq);

/*
 * Flags that every send, read and write call refuses, and flags that every one accepts. Only sends accept
 * FI_MATCH_COMPLETE.
 */
#define REFUSED_FLAGS FI_MULTICAST, FI_COMMIT_COMPLETE, FI_TRIGGER, FI_PEEK, FI_CLAIM, FI_DISCARD
#define TAKEN_FLAGS \
	0, FI_MORE, FI_FENCE, FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, \
		FI_DELIVERY_COMPLETE, FI_MORE | FI_INJECT | FI_DELIVERY_COMPLETE | FI_FENCE

/* Retry a call that returns -FI_EAGAIN, with progress in between. Any other result must be 0. */
#define POST(side, call) \
	do { \
		ssize_t post_result; \
		while ((post_result = (call)) == -FI_EAGAIN) \
			side_progress(side); \
		SAME(post_result, 0); \
	} while (0)

/* ---- content ---- */

/* Bytes that identify their message. */
void fill(void *buffer, size_t length, uint64_t seed);
void check_filled(const void *buffer, size_t length, uint64_t seed, const char *file, int line);
#define CHECK_FILLED(buffer, length, seed) check_filled(buffer, length, seed, __FILE__, __LINE__)

/* A small generator of numbers, the same everywhere. */
uint64_t next_random(uint64_t *state);

/* Sizes at and around every limit between protocols: inline, short, eager, pipelined. */
extern const size_t edge_sizes[];
extern const size_t edge_size_count;
#define EDGE_SIZE_MAX ((size_t)1 << 20)

#endif
