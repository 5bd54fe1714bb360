/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c - see process.h. */
#include "region/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_MAGIC UINT64_C(0x44524f4345524356) /* the bytes "VCRECORD" */

/*
 * Far beyond all bytes of the file, and beyond the bytes that members lock to show that they live.
 * Each slot has 2^48 bytes, more than an address of this process can be.
 */
#define LOCKS_OFFSET (INT64_C(1) << 60)
#define LOCKS_BYTES (INT64_C(1) << 48)

/*
 * ---- members of this process, because a POSIX lock is never reported to its own process ----
 */

#define OFFERS_MAX 64U

static const struct process_offer *offers[OFFERS_MAX];
static pthread_mutex_t offers_mutex = PTHREAD_MUTEX_INITIALIZER;

void process_offers_lock(void)
{
	(void)pthread_mutex_lock(&offers_mutex);
}

void process_offers_unlock(void)
{
	(void)pthread_mutex_unlock(&offers_mutex);
}

static void list_offer(const struct process_offer *offer, const struct process_offer *instead)
{
	process_offers_lock();
	for (unsigned i = 0; i < OFFERS_MAX; i++)
		if (offers[i] == offer) {
			offers[i] = instead;
			break;
		}
	process_offers_unlock();
}

static bool names(const struct process_record *record, const struct region *region, uint32_t slot,
		  uint32_t epoch, uint64_t nonce)
{
	return record->magic == RECORD_MAGIC && record->region[0] == region->id[0] &&
	       record->region[1] == region->id[1] && record->member == ((uint64_t)epoch << 32 | slot) &&
	       record->nonce == nonce;
}

static bool find_in_process(const struct region *region, uint32_t slot, uint32_t epoch, uint64_t nonce,
			    struct process_peer *peer)
{
	bool found = false;

	process_offers_lock();
	for (unsigned i = 0; i < OFFERS_MAX && !found; i++) {
		/* A forked child has a copy of its parent's list, but no members. */
		if (offers[i] == NULL || offers[i]->member->process != getpid() ||
		    !names(offers[i]->record, region, slot, epoch, nonce))
			continue;
		peer->pid = getpid();
		peer->record = (uintptr_t)offers[i]->record;
		peer->secret = atomic_load_explicit(&offers[i]->record->secret, memory_order_relaxed);
		found = true;
	}
	process_offers_unlock();
	return found;
}

/* ---- the offer ---- */

static int lock_range(const struct process_offer *offer, short type)
{
	struct flock lock = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)(LOCKS_OFFSET + offer->member->slot * LOCKS_BYTES),
		.l_len = (off_t)(uintptr_t)offer->record,
	};

	return fcntl(offer->member->region->fd, F_SETLK, &lock) == 0 ? 0 : -errno;
}

int process_offer_open(struct process_offer *offer, const struct member *member)
{
	uint64_t secret = 0;

	*offer = (struct process_offer){.member = member};
	if (getrandom(&secret, sizeof(secret), 0) != (ssize_t)sizeof(secret) || secret == 0)
		return -EIO;
	/* A separate mapping, so that nothing else in the process moves or copies it. */
	void *memory = mmap(NULL, sizeof(struct process_record), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || (uintptr_t)memory >= (uintptr_t)LOCKS_BYTES)
		return -ENOMEM;
	/*
	 * A forked child may have dropped privileges, so it must not keep the secret by which peers
	 * recognize the parent.
	 */
	(void)madvise(memory, sizeof(struct process_record), MADV_WIPEONFORK);
	offer->record = memory;
	offer->record->magic = RECORD_MAGIC;
	offer->record->region[0] = member->region->id[0];
	offer->record->region[1] = member->region->id[1];
	offer->record->member = (uint64_t)member->epoch << 32 | member->slot;
	offer->record->nonce = member->nonce;
	for (uint32_t i = 0; i < REGION_TRANSFERS; i++)
		atomic_init(&offer->record->transfers[i].line.secret, secret);
	atomic_store_explicit(&offer->record->secret, secret, memory_order_release);
	int result = lock_range(offer, F_WRLCK);
	list_offer(NULL, offer);
	return result;
}

void process_offer_relock(const struct process_offer *offer)
{
	if (offer->record != NULL && offer->member->process == getpid())
		(void)lock_range(offer, F_WRLCK);
}

void process_offer_close(struct process_offer *offer)
{
	struct process_record *record = offer->record;

	if (record == NULL)
		return;
	list_offer(offer, NULL);
	for (uint32_t i = 0; i < REGION_TRANSFERS; i++)
		atomic_store_explicit(&record->transfers[i].line.secret, 0, memory_order_relaxed);
	atomic_store_explicit(&record->secret, 0, memory_order_seq_cst);
	if (offer->member->process == getpid())
		(void)lock_range(offer, F_UNLCK);
	(void)munmap(record, sizeof(*record));
	offer->record = NULL;
}

/* ---- the proof ---- */

/* The privileges of a process, from /proc. The ids are numbers in our user namespace. */
struct rights {
	uint64_t pid;
	uint64_t users[3]; /* real, effective, saved */
	uint64_t groups[3];
	uint64_t capabilities; /* permitted capabilities */
};

/*
 * Read up to `most` numbers from the line with the given name. Returns how many; 0 for another
 * line.
 */
static unsigned read_numbers(const char *line, const char *name, int base, uint64_t *numbers, unsigned most)
{
	size_t length = strlen(name);
	unsigned count = 0;

	if (strncmp(line, name, length) != 0)
		return 0;
	for (const char *at = line + length; count < most; count++) {
		char *end = NULL;
		numbers[count] = strtoull(at, &end, base);
		if (end == at)
			break;
		at = end;
	}
	return count;
}

static int open_process(const char *name)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%s", name);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool read_rights(int process, struct rights *rights)
{
	char line[256];
	uint64_t pids[2] = {0};
	unsigned found = 0;
	int status = openat(process, "status", O_RDONLY | O_CLOEXEC);
	FILE *file = status < 0 ? NULL : fdopen(status, "r");

	if (file == NULL) {
		if (status >= 0)
			(void)close(status);
		return false;
	}
	/*
	 * Only the line of the groups may be longer than the buffer, and its rest contains only
	 * numbers.
	 */
	while (fgets(line, sizeof(line), file) != NULL)
		/*
		 * With a second PID, the process is in a PID namespace below the one of this /proc.
		 */
		if (read_numbers(line, "NSpid:", 10, pids, 2) == 1 ||
		    read_numbers(line, "Uid:", 10, rights->users, 3) == 3 ||
		    read_numbers(line, "Gid:", 10, rights->groups, 3) == 3 ||
		    read_numbers(line, "CapPrm:", 16, &rights->capabilities, 1) == 1)
			found++;
	(void)fclose(file);
	rights->pid = pids[0];
	return found == 4;
}

static bool is_same_user_namespace(int ours, int theirs)
{
	struct stat one;
	struct stat other;

	return fstatat(ours, "ns/user", &one, 0) == 0 && fstatat(theirs, "ns/user", &other, 0) == 0 &&
	       one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

static bool are_all(const uint64_t ids[3], uint64_t id)
{
	return ids[0] == id && ids[1] == id && ids[2] == id;
}

/* The kernel's rules for ptrace(), applied for the other process: see process.h. */
static bool may_trace_us(int ours, int theirs, pid_t pid)
{
	struct rights we = {0};
	struct rights it = {0};

	return prctl(PR_GET_DUMPABLE) == 1 && is_same_user_namespace(ours, theirs) &&
	       read_rights(ours, &we) && read_rights(theirs, &it) && we.pid == (uint64_t)getpid() &&
	       it.pid == (uint64_t)pid && are_all(we.users, we.users[0]) && are_all(it.users, we.users[0]) &&
	       are_all(we.groups, we.groups[0]) && are_all(it.groups, we.groups[0]) &&
	       (we.capabilities & ~it.capabilities) == 0;
}

/* Read the beginning of the peer's record, before the transfers. */
static bool read_record(pid_t pid, uint64_t address, struct process_record *record)
{
	size_t head = offsetof(struct process_record, transfers);
	const struct iovec to = {record, head};
	const struct iovec from = {(void *)(uintptr_t)address, head};

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)head;
}

/*
 * The privileges and the record are of one process: an open directory in /proc stays with its
 * process even if the PID is reused. Once the process is gone, the directory contains no `status`.
 * While `status` exists, no other process has the PID.
 */
static bool read_record_of_equal(pid_t pid, uint64_t address, struct process_record *record)
{
	char name[24];

	(void)snprintf(name, sizeof(name), "%ld", (long)pid);
	int ours = open_process("self");
	int theirs = open_process(name);
	bool is_read = ours >= 0 && theirs >= 0 && may_trace_us(ours, theirs, pid) &&
		       read_record(pid, address, record) && faccessat(theirs, "status", F_OK, 0) == 0;
	if (ours >= 0)
		(void)close(ours);
	if (theirs >= 0)
		(void)close(theirs);
	return is_read;
}

bool process_prove(const struct member *self, uint32_t slot, uint32_t epoch, uint64_t nonce,
		   struct process_peer *peer)
{
	struct process_record record;
	int64_t start = LOCKS_OFFSET + slot * LOCKS_BYTES;
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)start,
		.l_len = (off_t)LOCKS_BYTES,
	};

	if (find_in_process(self->region, slot, epoch, nonce, peer))
		return true;
	if (fcntl(self->region->fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0 ||
	    lock.l_start != (off_t)start || lock.l_len <= 0 || lock.l_len >= LOCKS_BYTES ||
	    !read_record_of_equal(lock.l_pid, (uint64_t)lock.l_len, &record))
		return false;
	peer->pid = lock.l_pid;
	peer->record = (uint64_t)lock.l_len;
	peer->secret = atomic_load_explicit(&record.secret, memory_order_relaxed);
	return names(&record, self->region, slot, epoch, nonce) && peer->secret != 0;
}

/* ---- access ---- */

/*
 * EFAULT: the memory is not mapped any more. If the call read only the record, the record is gone.
 */
static enum process_result failure(bool record_alone)
{
	return errno == ESRCH || (errno == EFAULT && record_alone) ? PROCESS_GONE : PROCESS_REFUSED;
}

static struct iovec line_of(const struct process_peer *peer, uint32_t index)
{
	uint64_t address = peer->record + offsetof(struct process_record, transfers) +
			   (uint64_t)index * sizeof(struct process_transfer);

	return (struct iovec){(void *)(uintptr_t)address, sizeof(struct process_snapshot)};
}

enum process_result process_read(const struct process_peer *peer, const struct iovec *to, size_t to_count,
				 const struct iovec *from, size_t from_count, size_t bytes, uint32_t index,
				 bool twice, struct process_snapshot *snapshot)
{
	struct process_snapshot snapshots[2];
	struct iovec locals[PROCESS_PIECES + 1];
	struct iovec remotes[PROCESS_PIECES + 2];
	size_t line_bytes = (twice ? 2 : 1) * sizeof(struct process_snapshot);

	/* The kernel copies the pieces in order, so the line is read after the data. */
	for (size_t i = 0; i < to_count; i++)
		locals[i] = to[i];
	for (size_t i = 0; i < from_count; i++)
		remotes[i] = from[i];
	locals[to_count] = (struct iovec){snapshots, line_bytes};
	remotes[from_count] = line_of(peer, index);
	remotes[from_count + 1] = remotes[from_count];
	ssize_t read =
		process_vm_readv(peer->pid, locals, to_count + 1, remotes, from_count + (twice ? 2 : 1), 0);
	if (read != (ssize_t)(bytes + line_bytes))
		return read < 0 ? failure(bytes == 0) : PROCESS_REFUSED;
	shared_fence_loads();
	*snapshot = snapshots[0];
	if (snapshot->secret != peer->secret)
		return PROCESS_GONE;
	/* A line that was being written may be torn. A second copy has all of the first write. */
	if (twice && memcmp(&snapshots[0], &snapshots[1], sizeof(snapshots[0])) != 0)
		return PROCESS_CHANGING;
	return PROCESS_GOOD;
}

enum process_result process_read_transfer(const struct process_peer *peer, uint32_t index,
					  struct process_transfer *transfer)
{
	struct iovec from = line_of(peer, index);
	const struct iovec to = {transfer, sizeof(*transfer)};

	from.iov_len = sizeof(*transfer);
	ssize_t read = process_vm_readv(peer->pid, &to, 1, &from, 1, 0);
	if (read != (ssize_t)sizeof(*transfer))
		return read < 0 ? failure(true) : PROCESS_REFUSED;
	shared_fence_loads();
	return atomic_load_explicit(&transfer->line.secret, memory_order_relaxed) == peer->secret
		       ? PROCESS_GOOD
		       : PROCESS_GONE;
}

enum process_result process_write(const struct process_peer *peer, const struct iovec *from,
				  size_t from_count, const struct iovec *to, size_t to_count, size_t bytes)
{
	ssize_t written = process_vm_writev(peer->pid, from, from_count, to, to_count, 0);

	if (written == (ssize_t)bytes)
		return PROCESS_GOOD;
	return written < 0 ? failure(false) : PROCESS_REFUSED;
}

bool process_is_there(const struct process_peer *peer)
{
	return kill(peer->pid, 0) == 0 || errno != ESRCH;
}

/*
 * ---- is the kernel's copy fast enough? ----
 */

#define MEASURE_BYTES 65536U
#define MEASURE_PASSES 6

static double measured;
static pthread_once_t measure_once = PTHREAD_ONCE_INIT;

static void measure(void)
{
	unsigned char *memory = malloc(2UL * MEASURE_BYTES);
	uint64_t best[2] = {UINT64_MAX, UINT64_MAX};

	measured = 1e9;
	if (memory == NULL)
		return;
	memset(memory, 1, 2UL * MEASURE_BYTES);
	const struct iovec to = {memory, MEASURE_BYTES};
	const struct iovec from = {memory + MEASURE_BYTES, MEASURE_BYTES};
	for (int pass = 0; pass < MEASURE_PASSES; pass++) {
		uint64_t start = monotonic_now();
		memcpy(memory, memory + MEASURE_BYTES, MEASURE_BYTES);
		atomic_signal_fence(memory_order_seq_cst);
		uint64_t middle = monotonic_now();
		ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
		uint64_t end = monotonic_now();
		if (read != (ssize_t)MEASURE_BYTES)
			break;
		best[0] = middle - start < best[0] ? middle - start : best[0];
		best[1] = end - middle < best[1] ? end - middle : best[1];
	}
	free(memory);
	if (best[1] != UINT64_MAX)
		measured = (double)best[1] / (double)(best[0] > 0 ? best[0] : 1);
}

double process_measure(void)
{
	(void)pthread_once(&measure_once, measure);
	return measured;
}
