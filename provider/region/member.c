/* SPDX-License-Identifier: BSD-3-Clause */
/* member.c - joins and leaves a region. */
#include "region/member.h"

#include "region/broker.h"
#include "region/doorbell.h"
#include "region/fork.h"
#include "region/leave.h"
#include "region/sleep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Ten times a second: a tenth of a second is short compared with the timeout of seconds. */
#define HEARTBEAT_NANOSECONDS 100000000L
/* Every living member has beaten by then, and the user should learn why the process waits. */
#define NOTICE_NANOSECONDS UINT64_C(500000000)

static uint64_t claim_word(uint32_t epoch, enum slot_state state)
{
	return (uint64_t)epoch << 32 | (uint64_t)state;
}

static uint64_t claim_of(const struct region *region, uint32_t slot)
{
	return shared_acquire_u64(&region_slot(region, slot)->claim);
}

/*
 * Change the state of our own slot. Returns false if another member has the slot, because we were
 * paused and taken for dead.
 */
static bool move_claim(const struct member *self, enum slot_state from, enum slot_state to)
{
	return shared_claim_u64(&region_slot(self->region, self->slot)->claim, claim_word(self->epoch, from),
				claim_word(self->epoch, to));
}

bool member_is_joined(const struct member *self)
{
	return shared_load_u64(&region_slot(self->region, self->slot)->claim) ==
	       claim_word(self->epoch, SLOT_JOINED);
}

/* The same, also in the state SLOT_HELD. */
static bool is_ours(const struct member *self)
{
	uint64_t claim = shared_load_u64(&region_slot(self->region, self->slot)->claim);

	return claim == claim_word(self->epoch, SLOT_JOINED) || claim == claim_word(self->epoch, SLOT_HELD);
}

uint64_t monotonic_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

bool member_identify(const struct region *region, uint32_t slot, uint32_t *epoch, uint64_t *nonce)
{
	/* Pairs with the move to SLOT_JOINED in join(). */
	uint64_t claim = shared_acquire_u64(&region_slot(region, slot)->claim);

	*epoch = (uint32_t)(claim >> 32);
	if ((uint32_t)claim == SLOT_CLAIMED || *epoch == 0)
		return false;
	/* The messages of a member that left are still there, and may not have been read. */
	*nonce = shared_load_u64(&section_header(region, slot)->nonce);
	return member_is_intact(region, slot, *epoch);
}

bool member_confirm(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t nonce)
{
	uint32_t epoch_now = 0;
	uint64_t nonce_now = 0;

	return slot < region->members && member_identify(region, slot, &epoch_now, &nonce_now) &&
	       epoch_now == epoch && nonce_now == nonce;
}

/* How long a broker may take to answer once more. */
#define BROKER_MILLISECONDS 2000U

/* Open the region's file again by its name, or ask its broker again. */
static int reopen(const struct region *region, int *fd)
{
	struct region_error error;

	if (region->brokered)
		return broker_fetch(region->path, BROKER_MANAGE, BROKER_MILLISECONDS, fd, &error);
	*fd = open(region->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return *fd >= 0 ? 0 : -errno;
}

/*
 * Open another descriptor of the region's file. OFD locks belong to an open file description, so
 * each member of a process needs a separate one.
 */
static int open_lock_file(const struct region *region)
{
	char path[64];
	struct stat ours;
	struct stat theirs;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", region->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) { /* no /proc in this container */
		int result = reopen(region, &fd);
		if (result != 0)
			return result;
	}
	if (fstat(fd, &ours) != 0 || fstat(region->fd, &theirs) != 0 || ours.st_ino != theirs.st_ino ||
	    ours.st_dev != theirs.st_dev) {
		(void)close(fd);
		return -ESTALE;
	}
	return fd;
}

static int lock_slot(int fd, uint32_t slot, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

/*
 * Try to claim one slot from the occupant that `claim` names, the value that was loaded from the
 * claim word. `stale` says that this occupant was seen to stand still. If the members use locks,
 * only the holder of the lock may claim, and the claim of a dead holder is void.
 */
static bool claim_slot(struct member *self, uint32_t slot, uint64_t claim, bool stale)
{
	struct region *region = self->region;
	uint32_t state = (uint32_t)claim;
	uint32_t epoch = (uint32_t)(claim >> 32);

	if (state != SLOT_FREE && !stale && !region_saw_end(region, slot, epoch)) {
		/* Only an occupant that joined with a lock is known to be dead if it holds none. */
		bool locks = (state == SLOT_JOINED || state == SLOT_HELD) && region->kind == REGION_FILE &&
			     shared_load_u32(&section_header(region, slot)->liveness) == LIVENESS_LOCK;
		if (!locks)
			return false;
	}
	if (self->lock_fd >= 0 && lock_slot(self->lock_fd, slot, F_WRLCK) != 0)
		return false;
	/* No member has epoch 0, because 0 means no member. After 2^32 - 1 comes 1. */
	uint32_t next = epoch + 1 != 0 ? epoch + 1 : 1;
	if (!shared_claim_u64(&region_slot(region, slot)->claim, claim, claim_word(next, SLOT_CLAIMED))) {
		if (self->lock_fd >= 0)
			(void)lock_slot(self->lock_fd, slot, F_UNLCK);
		return false;
	}
	/* A reader of what we write from here on also sees our epoch: see member_is_intact(). */
	shared_fence_stores();
	self->slot = slot;
	self->epoch = next;
	return true;
}

/*
 * Try free slots first, beginning with the slots that were used least often; then slots of dead
 * members.
 */
static bool claim_any(struct member *self)
{
	struct region *region = self->region;
	uint32_t lowest = UINT32_MAX;

	for (uint32_t slot = 0; slot < region->members; slot++) {
		uint64_t claim = shared_load_u64(&region_slot(region, slot)->claim);
		if ((uint32_t)claim == SLOT_FREE && (uint32_t)(claim >> 32) < lowest)
			lowest = (uint32_t)(claim >> 32);
	}
	for (uint32_t slot = 0; slot < region->members; slot++) {
		uint64_t claim = claim_of(region, slot);
		if ((uint32_t)claim == SLOT_FREE && (uint32_t)(claim >> 32) == lowest &&
		    claim_slot(self, slot, claim, false))
			return true;
	}
	for (uint32_t slot = 0; slot < region->members; slot++)
		if (claim_slot(self, slot, claim_of(region, slot), false))
			return true;
	return false;
}

/*
 * Does this occupant count as dead if it stands still? True for a member with a heartbeat, and for
 * a member that died while it joined, between claiming its slot and publishing its kind of
 * liveness.
 */
static bool shows_life_by_moving(const struct region *region, uint32_t slot, uint64_t claim)
{
	return (uint32_t)claim == SLOT_CLAIMED ||
	       shared_load_u32(&section_header(region, slot)->liveness) == LIVENESS_HEARTBEAT;
}

/* The state of an occupant at the beginning of the watch. */
struct sight {
	uint64_t claim;
	uint64_t heartbeat;
	bool still; /* not changed so far, and would change if the occupant lived */
};

static struct sight sight_of(const struct region *region, uint32_t slot)
{
	uint64_t claim = claim_of(region, slot);

	return (struct sight){
		.claim = claim,
		.heartbeat = shared_load_u64(&section_header(region, slot)->heartbeat),
		.still = shows_life_by_moving(region, slot, claim),
	};
}

/* Clear `still` of occupants that changed. Returns how many never did. */
static uint32_t count_still(const struct region *region, struct sight *sights)
{
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < region->members; slot++) {
		struct sight now = sight_of(region, slot);
		sights[slot].still = sights[slot].still && now.claim == sights[slot].claim &&
				     now.heartbeat == sights[slot].heartbeat;
		count += sights[slot].still;
	}
	return count;
}

static bool claim_any_still(struct member *self, const struct sight *sights)
{
	for (uint32_t slot = 0; slot < self->region->members; slot++)
		if (sights[slot].still && claim_slot(self, slot, sights[slot].claim, true))
			return true;
	return false;
}

static void say_that_we_wait(const struct region *region, uint32_t still, uint64_t timeout)
{
	struct region_error notice;

	if (region->notice == NULL)
		return;
	(void)region_fail(&notice, 0,
			  "region %.1024s is full, and %u of its %u members show no life: waiting up to %.1f "
			  "s (VICINAL_PEER_TIMEOUT) until one counts as dead; create the region with more "
			  "member slots (--members)",
			  region->path, still, region->members, (double)timeout / 1e9);
	region->notice(notice.text);
}

/*
 * The slow path of a full region. Watch claim words and heartbeats until a slot is free. After
 * `timeout`, claim a slot in which neither word changed. Ends early when all occupants have
 * changed, because nothing waits for a living member.
 */
static bool claim_stale(struct member *self, uint64_t timeout)
{
	const struct region *region = self->region;
	const struct timespec beat = {.tv_nsec = HEARTBEAT_NANOSECONDS};
	uint64_t begun = monotonic_now();
	struct sight *sights = calloc(region->members, sizeof(*sights));
	bool won = false;

	if (sights == NULL)
		return false;
	for (uint32_t slot = 0; slot < region->members; slot++)
		sights[slot] = sight_of(region, slot);
	bool said = false;
	for (uint32_t still = count_still(region, sights); still > 0 && !won;) {
		/*
		 * Read the clock before the last check, and do not count pauses: a signal ends a
		 * pause early.
		 */
		uint64_t waited = monotonic_now() - begun;
		still = count_still(region, sights);
		if (!said && waited > NOTICE_NANOSECONDS && still > 0) {
			say_that_we_wait(region, still, timeout);
			said = true;
		}
		won = waited > timeout ? claim_any_still(self, sights) : claim_any(self);
		if (waited > timeout)
			break;
		if (!won)
			(void)nanosleep(&beat, NULL);
	}
	free(sights);
	return won;
}

/* The number in the first of `count` environment variables that holds one, or `otherwise`. */
static uint32_t number_from(const char *const *variables, size_t count, uint32_t otherwise)
{
	for (size_t i = 0; i < count; i++) {
		const char *value = getenv(variables[i]);
		char *end = NULL;
		if (value == NULL || *value == '\0')
			continue;
		unsigned long number = strtoul(value, &end, 10);
		if (*end == '\0' && number < UINT32_MAX)
			return (uint32_t)number;
	}
	return otherwise;
}

static uint32_t launcher_rank(void)
{
	static const char *const variables[] = {"VICINAL_RANK", "PMIX_RANK", "PMI_RANK",
						"OMPI_COMM_WORLD_RANK"};

	return number_from(variables, sizeof(variables) / sizeof(variables[0]), UINT32_MAX);
}

/* With this number, `vicinal run --paths` tells the ranks of its job from ranks of other jobs. */
static uint32_t job_number(void)
{
	static const char *const variables[] = {"VICINAL_JOB"};

	return number_from(variables, 1, 0);
}

/* Identifies the endpoints of this process; 0 until the first endpoint joins. */
static _Atomic uint64_t process_identity;

static uint64_t identify_process(void)
{
	uint64_t known = 0;
	uint64_t ours = 0;

	if (getrandom(&ours, sizeof(ours), 0) != (ssize_t)sizeof(ours))
		ours = monotonic_now() ^ (uint64_t)getpid() << 32;
	ours |= 1;
	/* All endpoints use the first number, also if two join at the same time. */
	return atomic_compare_exchange_strong(&process_identity, &known, ours) ? ours : known;
}

bool member_is_of_this_process(const struct region *region, uint32_t slot)
{
	uint64_t ours = atomic_load(&process_identity);

	return ours != 0 && shared_load_u64(&section_header(region, slot)->process) == ours;
}

void member_forget_process(void)
{
	atomic_store(&process_identity, 0);
}

static void write_section(const struct member *self, uint32_t endpoint)
{
	const struct region *region = self->region;
	struct section_header *header = section_header(region, self->slot);
	unsigned char *tables = region_section(region, self->slot);
	char hostname[sizeof(header->hostname)] = "";

	/*
	 * Clear the tables, but not the doorbells: a doorbell word belongs to the member that rings
	 * it.
	 */
	shared_clear((shared_bytes *)(tables + SECTION_CREDITS_OFFSET(region->members)),
		     SECTION_ARENA_OFFSET(region->members) - SECTION_CREDITS_OFFSET(region->members));
	shared_clear((shared_bytes *)header, sizeof(*header));
	(void)gethostname(hostname, sizeof(hostname) - 1);
	shared_copy_out(header->hostname, hostname, sizeof(hostname));
	shared_store_u64(&header->nonce, self->nonce);
	shared_store_u32(&header->epoch, self->epoch);
	shared_store_u32(&header->liveness, region->kind == REGION_FILE ? LIVENESS_LOCK : LIVENESS_HEARTBEAT);
	shared_store_u32(&header->rank, launcher_rank());
	shared_store_u32(&header->pid, (uint32_t)getpid());
	shared_store_u32(&header->endpoint, endpoint);
	shared_store_u64(&header->home[0], self->home[0]);
	shared_store_u64(&header->home[1], self->home[1]);
	shared_store_u32(&header->home_slot, self->home_slot);
	shared_store_u32(&header->home_epoch, self->home_epoch);
	shared_store_u32(&header->alias, self->alias);
	shared_store_u32(&header->job, job_number());
	/* Barriers of the host's kernel do not reach processes of a guest's kernel. */
	shared_store_u32(&header->membarrier, region->kind == REGION_FILE && sleep_is_ordered());
	shared_store_u64(&header->process, identify_process());
	shared_store_u64(&header->interrupt, doorbell_offer(region->doorbell));
}

void member_restore(struct member *self)
{
	write_section(self, 0);
	/* Pairs with the acquire load in member_identify(). */
	shared_release_u64(&region_slot(self->region, self->slot)->claim,
			   claim_word(self->epoch, SLOT_JOINED));
}

static void *beat(void *argument)
{
	struct member *self = argument;
	struct section_header *header = section_header(self->region, self->slot);
	const struct timespec wait = {.tv_nsec = HEARTBEAT_NANOSECONDS};

	/* Once another member has the slot, the heartbeat word belongs to that member. */
	for (uint64_t count = 1; !atomic_load_explicit(&self->stop, memory_order_relaxed) && is_ours(self);
	     count++) {
		shared_store_u64(&header->heartbeat, count);
		(void)nanosleep(&wait, NULL);
	}
	return NULL;
}

/*
 * The thread blocks signals: otherwise it would run handlers of the application, or consume signals
 * that the application waits for.
 */
static bool start_heart(struct member *self)
{
	sigset_t all;
	sigset_t before;

	(void)sigfillset(&all);
	(void)sigdelset(&all, SIGBUS); /* except SIGBUS, for faults in the region: see guard.h */
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	self->beating = pthread_create(&self->heart, NULL, beat, self) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return self->beating;
}

/*
 * Choose the member's identity: a new nonce, or the identity from the region that the endpoint
 * joined first.
 */
static void choose_identity(struct member *self, const struct member *first)
{
	if (first != NULL) {
		self->nonce = first->nonce;
		memcpy(self->home, first->region->id, sizeof(self->home));
		self->home_slot = first->slot;
		self->home_epoch = first->epoch;
	} else if (getrandom(&self->nonce, sizeof(self->nonce), 0) != (ssize_t)sizeof(self->nonce)) {
		self->nonce = monotonic_now() ^ (uint64_t)getpid() << 32;
	}
}

/* `timeout` is NULL for an alias: then the call does not wait for a slot. */
static int join(const struct member *first, struct region *region, uint32_t endpoint, const uint64_t *timeout,
		struct member **member, struct region_error *error)
{
	struct member *self = calloc(1, sizeof(*self));

	if (self == NULL)
		return region_fail(error, -ENOMEM, "no memory is left to join region %.1024s: free some",
				   region->path);
	fork_watch();
	self->region = region;
	self->process = getpid();
	self->lock_fd = -1;
	if (region->kind == REGION_FILE)
		self->lock_fd = open_lock_file(region);
	if (region->kind == REGION_FILE && self->lock_fd < 0) {
		int result = self->lock_fd;
		free(self);
		return region_fail(
			error, result,
			"region %.1024s was replaced or closed while this process joined (%s): start again",
			region->path, strerror(-result));
	}
	self->alias = timeout == NULL;
	choose_identity(self, first);
	if (!claim_any(self) && (timeout == NULL || !claim_stale(self, *timeout))) {
		if (self->lock_fd >= 0)
			(void)close(self->lock_fd);
		free(self);
		return region_fail(error, -ENOSPC,
				   "region %.1024s is full: living endpoints have all its %u member slots. "
				   "create it with more (--members)",
				   region->path, region->members);
	}
	write_section(self, endpoint);
	/* Pairs with the acquire load in member_identify(): the section is complete. */
	if (!move_claim(self, SLOT_CLAIMED, SLOT_JOINED)) {
		member_leave(self);
		return region_fail(error, -ETIMEDOUT,
				   "joining region %.1024s was interrupted for so long that another member "
				   "took the slot: start again",
				   region->path);
	}
	if (region->kind != REGION_FILE && !start_heart(self)) {
		member_leave(self);
		return region_fail(error, -EAGAIN,
				   "the heartbeat thread cannot be started: raise the process limit");
	}
	leave_add(self);
	*member = self;
	return 0;
}

int member_join(struct region *region, uint32_t endpoint, uint64_t timeout, struct member **member,
		struct region_error *error)
{
	return join(NULL, region, endpoint, &timeout, member, error);
}

int member_join_as(const struct member *first, struct region *region, uint32_t endpoint, uint64_t timeout,
		   struct member **member, struct region_error *error)
{
	return join(first, region, endpoint, &timeout, member, error);
}

int member_join_as_alias(struct region *region, uint32_t endpoint, struct member **member,
			 struct region_error *error)
{
	return join(NULL, region, endpoint, NULL, member, error);
}

void member_hold(struct member *self)
{
	/* Releases the last messages, as in member_leave(). */
	(void)move_claim(self, SLOT_JOINED, SLOT_HELD);
}

void member_after_fork(struct member *self)
{
	if (self->lock_fd >= 0)
		(void)close(self->lock_fd);
	self->lock_fd = -1;
}

void member_still(struct member *self)
{
	if (!self->beating)
		return;
	atomic_store_explicit(&self->stop, true, memory_order_relaxed);
	(void)pthread_join(self->heart, NULL);
	self->beating = false;
}

bool member_start_again(struct member *self)
{
	atomic_store_explicit(&self->stop, false, memory_order_relaxed);
	return start_heart(self);
}

void member_leave(struct member *self)
{
	leave_remove(self);
	/* In a forked child the slot belongs to the parent, and the thread does not exist. */
	if (self->process == getpid()) {
		member_still(self);
		/*
		 * Releases the last messages: they are complete before peers see that this member
		 * left.
		 */
		if (!move_claim(self, SLOT_JOINED, SLOT_FREE))
			(void)move_claim(self, SLOT_HELD, SLOT_FREE);
	}
	if (self->lock_fd >= 0)
		(void)close(self->lock_fd); /* drops the lock */
	free(self);
}
