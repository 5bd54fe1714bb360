/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - the handler of SIGBUS, and the handler that was installed before. */
#include "region/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * A process has one or two regions, a test may have dozens. The handler may run at any moment in
 * any thread, so entries are added and reused but never freed.
 */
#define WATCHED_AT_ONCE 16U

struct watched {
	_Atomic(struct region *) region[WATCHED_AT_ONCE];
	_Atomic(struct watched *) more;
};

static struct watched watched;
static struct sigaction previous;
static unsigned watched_count;
static bool installed; /* our handler is installed, or a later handler that may call ours */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/*
 * Runs in a signal handler, so every call must be async-signal-safe: mmap() is a bare system call.
 */
static bool put_zeros(struct region *region)
{
	int saved = errno;
	void *base = mmap(region->base, region->bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	errno = saved;
	atomic_store_explicit(&region->cut, true, memory_order_relaxed);
	return base != MAP_FAILED;
}

static bool survive(uintptr_t address)
{
	for (struct watched *some = &watched; some != NULL;
	     some = atomic_load_explicit(&some->more, memory_order_acquire))
		for (unsigned i = 0; i < WATCHED_AT_ONCE; i++) {
			struct region *region = atomic_load_explicit(&some->region[i], memory_order_acquire);
			if (region != NULL && address - (uintptr_t)region->base < region->bytes)
				return put_zeros(region);
		}
	return false;
}

/* The entry of `region`, or NULL. Call with the lock held. */
static _Atomic(struct region *) *entry_of(const struct region *region)
{
	for (struct watched *some = &watched; some != NULL;
	     some = atomic_load_explicit(&some->more, memory_order_relaxed))
		for (unsigned i = 0; i < WATCHED_AT_ONCE; i++)
			if (atomic_load_explicit(&some->region[i], memory_order_relaxed) == region)
				return &some->region[i];
	return NULL;
}

/* A free entry, or NULL if no memory is left. Call with the lock held. */
static _Atomic(struct region *) *free_entry(void)
{
	_Atomic(struct region *) *entry = entry_of(NULL);

	if (entry != NULL)
		return entry;
	struct watched *last = &watched;
	for (struct watched *next = last; next != NULL;
	     next = atomic_load_explicit(&next->more, memory_order_relaxed))
		last = next;
	struct watched *more = calloc(1, sizeof(*more));
	if (more == NULL)
		return NULL;
	/* Pairs with the acquire load in survive(). */
	atomic_store_explicit(&last->more, more, memory_order_release);
	return &more->region[0];
}

bool guard_is_gone(struct region *region)
{
	const struct region_header *header = (const struct region_header *)(const void *)region->base;

	return shared_load_u64(&header->magic) == 0 && put_zeros(region);
}

static void pass_on(int number, siginfo_t *information, void *context)
{
	if ((previous.sa_flags & SA_SIGINFO) != 0) {
		previous.sa_sigaction(number, information, context);
		return;
	}
	if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
		previous.sa_handler(number);
		return;
	}
	/*
	 * A fault occurs again after the return. A signal that a process sent does not, and is
	 * raised again.
	 */
	(void)sigaction(SIGBUS, &previous, NULL);
	if (information->si_code <= 0)
		(void)raise(SIGBUS);
}

static void handle(int number, siginfo_t *information, void *context)
{
	if (information->si_code <= 0 || !survive((uintptr_t)information->si_addr))
		pass_on(number, information, context);
}

void guard_lock(void)
{
	(void)pthread_mutex_lock(&mutex);
}

void guard_unlock(void)
{
	(void)pthread_mutex_unlock(&mutex);
}

bool guard_watch(struct region *region)
{
	guard_lock();
	_Atomic(struct region *) *entry = free_entry();
	if (entry != NULL) {
		struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
		action.sa_sigaction = handle;
		(void)sigemptyset(&action.sa_mask);
		atomic_store_explicit(entry, region, memory_order_release);
		watched_count++;
		if (!installed)
			installed = sigaction(SIGBUS, &action, &previous) == 0;
	}
	guard_unlock();
	return entry != NULL;
}

void guard_forget(struct region *region)
{
	guard_lock();
	_Atomic(struct region *) *entry = entry_of(region);
	if (entry != NULL) {
		struct sigaction current;
		atomic_store_explicit(entry, NULL, memory_order_release);
		/*
		 * A handler that was installed later may still call ours. Then ours stays, and
		 * passes all signals on.
		 */
		if (--watched_count == 0 && sigaction(SIGBUS, NULL, &current) == 0 &&
		    (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handle)
			installed = sigaction(SIGBUS, &previous, NULL) != 0;
	}
	guard_unlock();
}
