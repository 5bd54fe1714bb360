/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * provider.h - the objects that libfabric knows of, and what lies behind them.
 *
 * Everything in api/ is thin: it checks arguments, takes the domain's lock where one is
 * needed, and calls the messenger.
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
#define PROVIDER_VERSION FI_VERSION(0, 1)

/*
 * Our libfabric address: who, in which region, proved by what, and where in the network.
 * docs/reference/region-format.md
 */
#define ADDRESS_FORMAT_VERSION 1U
struct address {
	uint16_t version;
	uint16_t slot;
	uint32_t epoch;
	uint64_t nonce;
	uint64_t region[2];
	uint16_t core;       /* which core: core_provider_number() */
	uint8_t core_length; /* of `core_name`; 0: it is not in the network */
	uint8_t core_flags;
	uint8_t core_name[CORE_NAME_MAX];
};
_Static_assert(sizeof(struct address) == 64, "MPICH allows no more");

/* Identifies our addresses and protocol to libfabric; from its provider-specific ranges. */
#define ADDRESS_FORMAT_ID (0x80000000U | 0x7669U)
#define PROTOCOL_ID (0x80000000U | 0x7669U)

/* What info.c promises and the rest keeps. */
#define LIMIT_PIECES BUFFER_PIECES
#define LIMIT_QUEUE 65536U
/* Flags of calls that ask for what is not offered; to ignore them would be to break a promise. */
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

/* Flags that an endpoint may have for all of its calls. */
#define TRANSMIT_FLAGS \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | \
	 FI_MATCH_COMPLETE)
#define RECEIVE_FLAGS (FI_COMPLETION | FI_MULTI_RECV)

/* A message that is in the buffer of its receive was matched with it, so that both levels are one. */
static inline uint64_t send_level(uint64_t flags)
{
	return (flags & FI_MATCH_COMPLETE) != 0 ? flags | FI_DELIVERY_COMPLETE : flags;
}

/* Reads and writes come after the messages before them: see info.c. */
#define ORDER_AFTER_SENDS (FI_ORDER_RAS | FI_ORDER_WAS)

struct fabric {
	struct fid_fabric fid;
	atomic_uint objects; /* domains and event queues that are open on it */
	bool short_errors;   /* the application's error entries end before err_data_size: it came with 1.5 */
};

struct endpoint;

/* Can peers beyond the region be reached? */
enum network_state {
	NETWORK_UNKNOWN, /* no endpoint was enabled yet */
	NETWORK_OPEN,
	NETWORK_NONE,
};

/* Endpoints that are bound to a queue or counter, each once. */
struct endpoint_list {
	struct endpoint **items;
	size_t count;
};

struct domain {
	struct fid_domain fid;
	struct fabric *fabric;
	struct region *regions[ATTACHMENTS_MAX]; /* that each of its endpoints joins, in this order */
	uint32_t region_count;
	uint32_t members; /* of all of them */
	/* Taken in every call unless the application serialises its calls (FI_THREAD_DOMAIN). */
	pthread_mutex_t mutex;
	bool locking;
	enum progress_mode mode;
	struct thresholds thresholds;
	struct endpoint *endpoints; /* all of the domain */
	atomic_uint finds;          /* reads of its queues that found something: see idle.c */
	atomic_uint crowding;       /* how far others want the core on which it waits: see idle.c */
	/* sleeping: see wait.h */
	struct waiter *waiters;
	uint32_t sleepers; /* threads that sleep, or are about to */
	uint32_t armed;    /* of the waiters, those with descriptors */
	bool sleep_armed;  /* among the sleepers, for calls that come later */
	/* the thread that makes progress: see watch.c */
	bool automatic; /* always, and not only while somebody waits on a descriptor */
	bool watched;   /* it runs */
	atomic_bool stop;
	atomic_uint thread_word; /* changed to wake it */
	pthread_t thread;
	struct domain *next; /* of this process's: see process.c */
	atomic_uint objects; /* others that are open on it: queues, vectors, counters, regions */
	/* memory registration: see mr.c */
	struct registration_table registrations;
	/* peers beyond the region: see network.c */
	struct directory directory;
	enum network_state network;
	uint16_t network_core; /* its number, once it is open */
	uint64_t mr_key;       /* the last that we chose */
	uint64_t mr_mode;
};

struct av {
	struct fid_av fid;
	struct domain *domain;
	uint32_t number; /* of all that this process opened */
	struct av_table table;
	struct address *addresses; /* by index: as they were inserted */
	size_t address_room;
	struct eq *eq;
	bool events; /* insertion is reported there */
	/* whose address none of the entries has, after so many insertions */
	uint64_t stranger;
	uint64_t stranger_insertions;
};

struct cq {
	struct fid_cq fid;
	struct domain *domain;
	struct completion_queue queue;
	struct endpoint_list endpoints; /* those that are enabled */
	enum fi_cq_format format;
	size_t entry_bytes;
	uint32_t empty_reads; /* in a row */
	uint64_t counted;     /* by counters of its endpoints, when it was read last */
	atomic_bool signalled;
	bool threshold;    /* the condition of fi_cq_sread() is a number of completions */
	atomic_uint users; /* poll sets that it is in */
	struct wait_object wait;
};

struct cntr {
	struct fid_cntr fid;
	struct domain *domain;
	struct wait_object wait;
	atomic_uint users; /* poll sets that it is in */
	/* as it was read last, or shown by fi_poll(): what differs is worth waking somebody */
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
	/* Changed with each event, and slept on: a forked child can close it all the same. */
	atomic_uint added;
	struct eq_event *first; /* of those that were not read */
	struct eq_event **end;  /* where the next is linked in */
	bool writable;          /* by the application */
	atomic_uint bound;      /* address vectors that report to it */
};

struct mr {
	struct fid_mr fid;
	struct domain *domain;
	struct registration registration;
	struct cntr *cntr;
	bool reachable; /* by peers, so that its key is in the table */
};

/* Who an fi_addr_t stands for, found once. Valid while the epochs agree. */
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
	/* flags of calls without a flags argument, and of those with one */
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
};

extern struct fi_provider provider;

#define provider_warn(subsystem, ...) FI_WARN(&provider, subsystem, __VA_ARGS__)

/* parameters.c */
void parameters_define(void);
/* VICINAL_<upper>, else FI_VICINAL_<upper>; NULL if neither is set. */
const char *parameter_text(const char *variable, const char *name);
/*
 * The names of the regions to be in, `count` of them, found once in this process. Returns 0, or -FI_ENODATA
 * after saying why, once.
 */
int parameter_regions(const char *const **names, uint32_t *count);
/* Nobody named them: it is the one that was found. */
bool parameter_region_is_discovered(void);
/* How long a heartbeat may be still, in nanoseconds. */
uint64_t parameter_peer_timeout(void);
bool parameter_allow_slow(void);
/* Whether peers beyond the region are to be reached, by which core and interface: NULL for any. */
bool parameter_network(const char **core, const char **interface);
/* Allocations of so many bytes and more come from the heap in the region, where that is asked for. */
size_t parameter_heap_threshold(void);
/* What waits for busy peers takes so much memory of an endpoint. */
size_t parameter_send_queue(void);
/* What one does who finds nothing: read once in this process. */
enum progress_mode parameter_progress(void);
enum single_copy_policy parameter_single_copy(void);
/* tuning.c: this process's thresholds, found once. */
void tuning_define(void);
const struct thresholds *tuning(void);

/* One line to stderr, for what a user must see without asking for logs. */
void provider_notice(const char *text);
/* The same, for what is found at each endpoint and need be said once: `said` remembers. */
__attribute__((format(printf, 2, 3))) void provider_notice_once(atomic_bool *said, const char *format, ...);
/* The same for what is no error, and takes long or costs much. */
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

/* mr.c: raw keys, which are like all others here. */
int mr_map_raw(struct fi_mr_map_raw *map);
/* atomic.c */
int atomic_query(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op operation,
		 struct fi_atomic_attr *attributes, uint64_t flags);

/* enable.c: with the domain's lock held. Returns 0, or the error of fi_enable(). */
int endpoint_enable(struct endpoint *endpoint);
/* What calls ask the messenger for, from the flags that the endpoint was given. */
void endpoint_settle_flags(struct endpoint *endpoint);
/* endpoint.c. Returns 0 or -FI_ENOMEM. */
int endpoint_list_add(struct endpoint_list *list, struct endpoint *endpoint);
void endpoint_list_remove(struct endpoint_list *list, const struct endpoint *endpoint);

/* eq.c: report an event, or what went wrong. Returns 0 or -FI_ENOMEM. */
int eq_add(struct eq *eq, uint32_t event, const void *bytes, size_t length);
int eq_add_error(struct eq *eq, const struct fi_eq_err_entry *error);
bool eq_has_any(struct eq *eq);

/* network.c: open the core for an endpoint, and say what is wrong. 0, or the error of fi_enable(). */
int network_enable(struct endpoint *endpoint);
/* The number of who is at `address`, beyond the regions. RESOLVE_NONE after saying why. */
uint32_t network_resolve(struct domain *domain, const struct address *address);

/* resolve.c */
#define RESOLVE_NONE UINT32_MAX
/* Does an endpoint of this domain have this nonce? By whatever address, it is not beyond anything. */
bool domain_has(const struct domain *domain, uint64_t nonce);
/*
 * The number of who is at `address` in one of the regions, and its epoch there. RESOLVE_NONE if it is in none
 * that both share: then only the network may reach it.
 */
uint32_t domain_resolve(const struct domain *domain, const struct address *address, uint32_t *epoch);
/* The same of whom an endpoint of ours has met already, however little is known of the regions by now. */
uint32_t domain_met(const struct domain *domain, const struct address *address, uint32_t *epoch);
/* Where it is in the network. False if it is not. */
bool address_core_name(const struct address *address, struct core_name *name);
/* Is it the address of `peer`, whom `transport` has met? By what it said then, or where it is in the network.
 */
bool address_is_of(const struct transport *transport, const struct peer *peer, const struct address *address);
/* av.c: who `address` stands for; NULL if nobody that can be reached. */
struct msg_peer *endpoint_resolve_slowly(struct endpoint *endpoint, fi_addr_t address);
/* The fi_addr_t of a sender (epoch << 32 | its number), or FI_ADDR_NOTAVAIL. */
fi_addr_t av_name_sender(struct av *av, uint64_t source);
/* address.c: addresses as text. */
int address_to_text(const struct address *address, char *text, size_t length);
bool address_from_text(const char *text, struct address *address);

/* Of those the first few poll 64 times: some 5 us. */
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
void idle_look_begins(void);
/*
 * Called, without the domain's lock, after `empty` reads in a row found nothing. `begun` if the last of
 * them followed idle_look_begins(). Returns whether to poll again at once: it slept, or found something.
 */
bool idle_pause(struct domain *domain, uint32_t empty, bool begun);

/*
 * An offer of the core that is taken adds CROWDING_STEP, one that is not takes one away again.
 * Each step halves how long a wait polls before it makes its first offer.
 */
#define CROWDING_STEP 64U
#define CROWDING_MAX (9U * CROWDING_STEP)

/* process.c: all domains of this process. */
void process_add(struct domain *domain);
void process_remove(struct domain *domain);
/* How often a read of any of their queues found something. */
uint32_t process_finds(void);

/* Between two polls: leave the core's shared parts to its other thread for some cycles. */
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

/* Do those that wait here share a core with others that could use it? */
static inline bool domain_is_crowded(const struct domain *domain)
{
	return atomic_load_explicit(&domain->crowding, memory_order_relaxed) > CROWDING_MAX / 2;
}

/* A read found something; a sleep that was armed on behalf of such reads is not needed any more. */
static inline void domain_found(struct domain *domain)
{
	atomic_store_explicit(&domain->finds, atomic_load_explicit(&domain->finds, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (__builtin_expect(domain->sleep_armed, 0))
		domain_sleep_disarm(domain);
}

/*
 * Before a read: between sleeps most polls pass by the doorbells, and this one must not. Returns
 * whether it is worth polling on: no sleep is armed, or something was found.
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
