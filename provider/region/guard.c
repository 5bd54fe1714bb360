/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - the handler of SIGBUS, and who was there before it. */
#include "region/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

/* A process has one or two; one more than fits is not guarded. */
#define WATCHED_MAX 16U

static _Atomic(struct region *) watched[WATCHED_MAX];
static struct sigaction previous;
static unsigned watched_count;
static bool installed; /* or somebody's, who came after us and may pass on to us */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Everything in a handler must be safe there: mmap() is a bare system call. */
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
	for (unsigned i = 0; i < WATCHED_MAX; i++) {
		struct region *region = atomic_load_explicit(&watched[i], memory_order_acquire);
		if (region != NULL && address - (uintptr_t)region->base < region->bytes)
			return put_zeros(region);
	}
	return false;
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
	/* A fault happens again as soon as we return; a signal that somebody sent does not. */
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

void guard_watch(struct region *region)
{
	guard_lock();
	for (unsigned i = 0; i < WATCHED_MAX; i++) {
		if (atomic_load_explicit(&watched[i], memory_order_relaxed) != NULL)
			continue;
		atomic_store_explicit(&watched[i], region, memory_order_release);
		struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
		action.sa_sigaction = handle;
		(void)sigemptyset(&action.sa_mask);
		watched_count++;
		if (!installed)
			installed = sigaction(SIGBUS, &action, &previous) == 0;
		break;
	}
	guard_unlock();
}

void guard_forget(struct region *region)
{
	guard_lock();
	for (unsigned i = 0; i < WATCHED_MAX; i++) {
		struct sigaction current;
		if (atomic_load_explicit(&watched[i], memory_order_relaxed) != region)
			continue;
		atomic_store_explicit(&watched[i], NULL, memory_order_release);
		/* One who came after us may call us still: then we stay, and pass everything on. */
		if (--watched_count == 0 && sigaction(SIGBUS, NULL, &current) == 0 &&
		    (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handle)
			installed = sigaction(SIGBUS, &previous, NULL) != 0;
	}
	guard_unlock();
}
