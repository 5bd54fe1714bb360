/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * provider.h - the objects that libfabric knows, and their private parts.
 *
 * Everything in api/ is thin: it checks arguments, takes the domain's lock where needed, and calls the
 * messenger.
 */
#ifndef VICINAL_API_PROVIDER_H
#define VICINAL_API_PROVIDER_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "api/av_table.h"
#include "api/wait.h"
#include "proto/messenger.h"
#include "transport/network.h"

#define PROVIDER_NAME "vicinal"
/* Of two providers of a name, libfabric takes the one whose version is higher. */
#define PROVIDER_VERSION FI_VERSION(VICINAL_MAJOR, VICINAL_MINOR)

/*
 * The provider's libfabric address: region, slot and epoch, a nonce as proof, and the address in the network.
 * docs/reference/region-format.md
 */
#define ADDRESS_FORMAT_VERSION 1U
struct address {
	uint16_t version;
	uint16_t slot;
	uint32_t epoch;
	uint64_t nonce;
	uint64_t region[2];
	uint16_t core;       /* number of the core provider: core_provider_number() */
	uint8_t core_length; /* of `core_name`; 0: the network does not reach it */
	uint8_t core_flags;
	uint8_t core_name[CORE_NAME_MAX];
};
_Static_assert(sizeof(struct address) == 64, "MPICH allows no more");

/* Identify the provider's addresses and protocol; from libfabric's provider-specific ranges. */
#define ADDRESS_FORMAT_ID (0x80000000U | 0x7669U)
#define PROTOCOL_ID (0x80000000U | 0x7669U)

/* Limits that info.c promises. */
#define LIMIT_PIECES BUFFER_PIECES
#define LIMIT_QUEUE 65536U
#define LIMIT_TRANSMIT SEND_QUEUE_FREE_MAX
/*
 * Flags of calls that ask for unsupported features. The calls fail, because ignoring the flags would break a
 * promise.
 */
#define FLAGS_REFUSED \
	(FI_COMMIT_COMPLETE | FI_MATCH_COMPLETE | FI_MULTICAST | FI_TRIGGER | FI_PEEK | FI_CLAIM | FI_DISCARD)
#define SEND_FLAGS_REFUSED (FLAGS_REFUSED & ~FI_MATCH_COMPLETE)
#define RECEIVE_FLAGS_REFUSED (FLAGS_REFUSED & ~(FI_PEEK | FI_CLAIM | FI_DISCARD))
#define CAPABILITIES_TRANSMIT \
	(FI_MSG | FI_TAGGED | FI_SEND | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_FENCE)
#define CAPABILITIES_RECEIVE \
	(FI_MSG | FI_TAGGED | FI_RECV | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE | FI_RMA | FI_ATOMIC | \
	 FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT)
#define CAPABILITIES_DOMAIN (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define CAPABILITIES (CAPABILITIES_TRANSMIT | CAPABILITIES_RECEIVE | CAPABILITIES_DOMAIN)

/* Flags that an endpoint may have as defaults of its calls. */
#define TRANSMIT_FLAGS \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | \
	 FI_MATCH_COMPLETE)
#define RECEIVE_FLAGS (FI_COMPLETION | FI_MULTI_RECV)

/* A message that is in its receive's buffer has been matched, so both completion levels are one. */
static inline uint64_t send_level(uint64_t flags)
{
	return (flags & FI_MATCH_COMPLETE) != 0 ? flags | FI_DELIVERY_COMPLETE : flags;
}

/* Reads and writes execute after earlier messages: see info.c. */
#define ORDER_AFTER_SENDS (FI_ORDER_RAS | FI_ORDER_WAS)

struct fabric {
	struct fid_fabric fid;
	atomic_uint objects; /* open domains and event queues */
	bool short_errors; /* the application's error entries end before err_data_size, which came with 1.5 */
};

struct endpoint;

/* Whether the network reaches peers outside the regions. */
enum network_state {
	NETWORK_UNKNOWN, /* no endpoint was enabled yet */
	NETWORK_OPEN,
	NETWORK_NONE,
};

/* Endpoints that are bound to a queue or counter, without duplicates. */
struct endpoint_list {
	struct endpoint **items;
	size_t count;
};

struct domain {
	struct fid_domain fid;
	struct fabric *fabric;
	struct region *regions[ATTACHMENTS_MAX]; /* each endpoint joins all of them, in this order */
	uint32_t region_count;
	uint32_t members; /* of all regions */
	/* Taken in every call unless the application serialises its calls (FI_THREAD_DOMAIN). */
	pthread_mutex_t mutex;
	bool locking;
	enum progress_mode mode;
	struct thresholds thresholds;
	struct endpoint *endpoints; /* of this domain */
	atomic_uint finds;          /* reads of its queues that found something: see idle.c */
	atomic_uint crowding;       /* demand of other threads for this core: see idle.c */
	/* sleeping: see wait.h */
	struct waiter *waiters;
	uint32_t sleepers; /* threads that sleep or are about to */
	uint32_t armed;    /* waiters with descriptors */
	bool sleep_armed;  /* one of the sleepers, for later calls */
	/* the thread that makes progress: see watch.c */
	bool automatic; /* always, not only while the application waits on a descriptor */
	bool watched;   /* the thread runs */
	atomic_bool stop;
	atomic_uint thread_word; /* changed to wake the thread */
	pthread_t thread;
	struct domain *next; /* in this process: see process.c */
	atomic_uint objects; /* open queues, vectors, counters and memory regions */
	/* memory registration: see mr.c */
	struct registration_table registrations;
	/* peers outside the regions: see network.c */
	struct directory directory;
	enum network_state network;
	uint16_t network_core; /* its number, once it is open */
	uint64_t mr_key;       /* the last chosen key */
	uint64_t mr_mode;
};

struct av {
	struct fid_av fid;
	struct domain *domain;
	uint32_t number; /* unique among the vectors of this process */
	struct av_table table;
	struct address *addresses; /* by index, as inserted */
	size_t address_room;
	struct eq *eq;
	bool events; /* insertions are reported to `eq` */
	/* cache: the last sender that no entry names, and `insertions` at that time */
	uint64_t stranger;
	uint64_t stranger_insertions;
};

struct cq {
	struct fid_cq fid;
	struct domain *domain;
	struct completion_queue queue;
	struct endpoint_list endpoints; /* only enabled ones */
	enum fi_cq_format format;
	size_t entry_bytes;
	uint32_t empty_reads; /* in a row */
	uint64_t counted;     /* operations that counters of its endpoints had counted at the last read */
	atomic_bool signalled;
	bool threshold;    /* the condition of fi_cq_sread() is a number of completions */
	atomic_uint users; /* poll sets that contain it */
	struct wait_object wait;
};

struct cntr {
	struct fid_cntr fid;
	struct domain *domain;
	struct wait_object wait;
	atomic_uint users; /* poll sets that contain it */
	/* as last read or reported by fi_poll(): a waiter wakes if the present values differ */
	uint64_t seen_value;
	uint64_t seen_errors;
	struct completion_counter counter;
	struct endpoint_list endpoints;
	size_t region_count; /* memory regions that it is bound to */
};

struct eq_event;

struct eq {
	struct fid_eq fid;
	struct fabric *fabric;
	pthread_mutex_t mutex;
	/* Changed with each event; readers sleep on it. A forked child can still close it. */
	atomic_uint added;
	struct eq_event *first; /* oldest unread event */
	struct eq_event **end;  /* where the next event is linked in */
	bool writable;          /* by the application */
	atomic_uint bound;      /* address vectors that report to it */
};

struct mr {
	struct fid_mr fid;
	struct domain *domain;
	struct registration registration;
	struct cntr *cntr;
	bool reachable; /* by peers, so its key is in the table */
};

/* Cache: the peer of an fi_addr_t. Valid while the epochs agree. */
struct resolved {
	struct msg_peer *peer;
	uint32_t epoch;
};

struct endpoint {
	struct fid_ep fid;
	struct domain *domain;
	struct endpoint *next;       /* in domain.endpoints */
	struct messenger *messenger; /* NULL until enabled */
	struct av *av;
	struct cq *send_cq;
	struct cq *receive_cq;
	struct cntr *send_cntr;
	struct cntr *receive_cntr;
	struct cntr *read_cntr;
	struct cntr *write_cntr;
	struct cntr *remote_read_cntr;
	struct cntr *remote_write_cntr;
	struct resolved *resolved; /* by fi_addr_t */
	size_t resolved_count;
	uint64_t capabilities;
	/* flags of calls without a flags argument, and of calls with one */
	uint64_t send_flags;
	uint64_t send_message_flags;
	uint64_t remote_flags; /* of reads, writes and atomics without a flags argument */
	uint64_t remote_inject_flags;
	uint64_t receive_flags;
	uint64_t receive_message_flags;
	uint64_t transmit_operation_flags;
	uint64_t receive_operation_flags;
	uint64_t transmit_order; /* msg_order that the application was promised */
	uint64_t receive_order;
	bool send_selective;
	bool receive_selective;
	size_t multi_receive_minimum;
	uint32_t transmit_size; /* how many sends to a busy peer return at once: tx_attr.size */
};

extern struct fi_provider provider;

#define provider_warn(subsystem, ...) FI_WARN(&provider, subsystem, __VA_ARGS__)

/* parameters.c */
void parameters_define(void);
/* Returns VICINAL_<upper>, else FI_VICINAL_<upper>; NULL if neither is set. */
const char *parameter_text(const char *variable, const char *name);
/*
 * Returns in `names` and `count` the regions to join, determined once per process. Returns 0, or -FI_ENODATA
 * after reporting the reason once.
 */
int parameter_regions(const char *const **names, uint32_t *count);
/* Whether the region was discovered, because the user named none. */
bool parameter_region_is_discovered(void);
/* Nanoseconds after which a heartbeat that stands still means death. */
uint64_t parameter_peer_timeout(void);
bool parameter_allow_slow(void);
/* Whether the network reaches peers outside the regions. `core` and `interface` are NULL for any. */
bool parameter_network(const char **core, const char **interface);
/* The least bytes of an allocation that libvicinal-heap.so places in the region. */
size_t parameter_heap_threshold(void);
/* The most bytes of an endpoint's messages that wait for busy peers. */
size_t parameter_send_queue(void);
/* Messages without receives that an endpoint keeps. */
uint32_t parameter_unexpected(void);
/* What a process does while it waits. */
enum progress_mode parameter_progress(void);
enum single_copy_policy parameter_single_copy(void);
/* tuning.c: this process's thresholds, determined once. */
void tuning_define(void);
const struct thresholds *tuning(void);

/* Prints an error to stderr, for errors that a user must see without enabling logs. */
void provider_notice(const char *text);
/* The same, once per process: `said` remembers. For errors that each endpoint would find again. */
__attribute__((format(printf, 2, 3))) void provider_notice_once(atomic_bool *said, const char *format, ...);
/* Prints a warning to stderr. */
void provider_caution(const char *text);

/* info.c */
int provider_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		     const struct fi_info *hints, struct fi_info **info);

/* fabric.c, domain.c, ... */
int fabric_open(struct fi_fabric_attr *attributes, struct fid_fabric **fabric, void *context);
int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);
int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attributes, struct fid_eq **eq, void *context);
int av_open(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **av, void *context);
int cq_open(struct fid_domain *domain, struct fi_cq_attr *attributes, struct fid_cq **cq, void *context);
int cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attributes, struct fid_cntr **cntr,
	      void *context);
int endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **endpoint, void *context);
extern struct fi_ops_msg message_operations;
extern struct fi_ops_tagged tagged_operations;
extern struct fi_ops_mr mr_operations;
extern struct fi_ops_rma rma_operations;
extern struct fi_ops_atomic atomic_operations;

/* mr.c: raw keys. */
int mr_map_raw(struct fi_mr_map_raw *map);
/* atomic.c */
int atomic_query(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op operation,
		 struct fi_atomic_attr *attributes, uint64_t flags);

/* enable.c: called with the domain's lock held. Returns 0, or the error of fi_enable(). */
int endpoint_enable(struct endpoint *endpoint);
/* Computes the messenger's flags from the endpoint's. */
void endpoint_settle_flags(struct endpoint *endpoint);
/* endpoint.c. Returns 0 or -FI_ENOMEM. */
int endpoint_list_add(struct endpoint_list *list, struct endpoint *endpoint);
void endpoint_list_remove(struct endpoint_list *list, const struct endpoint *endpoint);

/* eq.c: report an event or an error. Return 0 or -FI_ENOMEM. */
int eq_add(struct eq *eq, uint32_t event, const void *bytes, size_t length);
int eq_add_error(struct eq *eq, const struct fi_eq_err_entry *error);
bool eq_has_any(struct eq *eq);

/* network.c: opens the core of an endpoint, and reports errors. Returns 0 or the error of fi_enable(). */
int network_enable(struct endpoint *endpoint);
/*
 * The number of the peer at `address`, outside the regions. Returns RESOLVE_NONE after reporting the reason.
 */
uint32_t network_resolve(struct domain *domain, const struct address *address);

/* resolve.c */
#define RESOLVE_NONE UINT32_MAX
/*
 * Whether an endpoint of this domain has this nonce. Such an endpoint is never reached over the network,
 * whatever its address says.
 */
bool domain_has(const struct domain *domain, uint64_t nonce);
/*
 * The number of the peer at `address` in one of the regions, and its epoch there. Returns RESOLVE_NONE if no
 * shared region contains the peer: then only the network may reach it.
 */
uint32_t domain_resolve(const struct domain *domain, const struct address *address, uint32_t *epoch);
/* The same for a peer that an endpoint has already met, even if the region no longer confirms it. */
uint32_t domain_met(const struct domain *domain, const struct address *address, uint32_t *epoch);
/* The peer's address in the network. Returns false if it has none. */
bool address_core_name(const struct address *address, struct core_name *name);
/*
 * Whether `address` is the address of `peer`, which `transport` has met. Compares with what the peer
 * published at that time, or with its address in the network.
 */
bool address_is_of(const struct transport *transport, const struct peer *peer, const struct address *address);
/* av.c: the peer that `address` stands for; NULL if there is none, or it is unreachable. */
struct msg_peer *endpoint_resolve_slowly(struct endpoint *endpoint, fi_addr_t address);
/* The fi_addr_t of a sender (epoch << 32 | number), or FI_ADDR_NOTAVAIL. */
fi_addr_t av_name_sender(struct av *av, uint64_t source);
/* address.c: addresses as text. */
int address_to_text(const struct address *address, char *text, size_t length);
bool address_from_text(const char *text, struct address *address);

/* The first of these reads poll 64 times each: together some 5 us. */
#define READS_BEFORE_SLEEP_BLOCKING 4U

/* Have so many reads in a row found nothing that a sleep may follow the next one? */
static inline bool idle_is_near(const struct domain *domain, uint32_t empty)
{
	switch (domain->mode) {
	case PROGRESS_POLL:
		return false;
	case PROGRESS_BLOCK:
		return empty >= READS_BEFORE_SLEEP_BLOCKING;
	default:
		return empty >= domain->thresholds.reads_before_sleep;
	}
}

/* idle.c: called before a read if a sleep may follow. */
void idle_poll_begins(void);
/*
 * idle.c: called without the domain's lock after `empty` reads in a row found nothing. Returns whether to
 * poll again at once, because it slept or found something.
 */
bool idle_pause(struct domain *domain, uint32_t empty, bool begun);
/* idle.c: until false, reads of this thread neither yield nor sleep. See region_source.h. */
void idle_elsewhere(bool waits);

/*
 * A yield that another thread takes adds CROWDING_STEP; any other yield subtracts 1. Each step halves the
 * polls before the first yield of a wait.
 */
#define CROWDING_STEP 64U
#define CROWDING_MAX (9U * CROWDING_STEP)

/* process.c: the domains of this process. */
void process_add(struct domain *domain);
void process_remove(struct domain *domain);
/* The reads of all their queues that found something. */
uint32_t process_finds(void);

/* Between two polls: leaves the core's shared resources to its other hardware thread for some cycles. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline void domain_lock(struct domain *domain)
{
	if (domain->locking)
		(void)pthread_mutex_lock(&domain->mutex);
}

static inline void domain_unlock(struct domain *domain)
{
	if (!domain->locking)
		return;
	if (__builtin_expect(domain->waiters != NULL, 0))
		domain_wake_waiters(domain);
	(void)pthread_mutex_unlock(&domain->mutex);
}

/* Whether waiting threads share a core with other threads that could use it. */
static inline bool domain_is_crowded(const struct domain *domain)
{
	return atomic_load_explicit(&domain->crowding, memory_order_relaxed) > CROWDING_MAX / 2;
}

/* A read found something, so a sleep that was armed for such reads is not needed any more. */
static inline void domain_found(struct domain *domain)
{
	atomic_store_explicit(&domain->finds, atomic_load_explicit(&domain->finds, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (__builtin_expect(domain->sleep_armed, 0))
		domain_sleep_disarm(domain);
}

/*
 * Called before a read. While a sleep is armed, most polls skip the doorbells, and this poll must not.
 * Returns whether to poll further: no sleep is armed, or something was found.
 */
static inline bool domain_poll_while_armed(struct domain *domain)
{
	if (__builtin_expect(!domain->sleep_armed, 1))
		return true;
	if (domain_progress_full(domain) == 0)
		return false;
	domain_found(domain);
	return true;
}

static inline bool cntr_is_news(const struct cntr *cntr)
{
	return cntr->counter.value != cntr->seen_value || cntr->counter.errors != cntr->seen_errors;
}

static inline void cntr_note_seen(struct cntr *cntr)
{
	cntr->seen_value = cntr->counter.value;
	cntr->seen_errors = cntr->counter.errors;
}

static inline struct msg_peer *endpoint_resolve(struct endpoint *endpoint, fi_addr_t address)
{
	if (__builtin_expect(address < endpoint->resolved_count, 1)) {
		const struct resolved *resolved = &endpoint->resolved[address];
		if (__builtin_expect(resolved->peer != NULL && resolved->peer->peer.epoch == resolved->epoch,
				     1))
			return resolved->peer;
	}
	return endpoint_resolve_slowly(endpoint, address);
}

#endif
