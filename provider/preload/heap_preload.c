/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heap_preload.c - libvicinal-heap.so: places large allocations of an unmodified program in the region, so
 * that peers access them without an intermediate copy.
 *
 * The library is loaded by LD_PRELOAD, in front of the C library's allocator. It passes calls on until the
 * provider offers a heap, which it does when an endpoint is enabled. It also passes on small allocations, and
 * all allocations while the heap is full. Earlier allocations stay where they are.
 *
 * A block's address tells whether it is in a heap. Each free() needs the answer, so the bounds of all heaps
 * together are two words. The provider decides for addresses between two heaps.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/heap_source.h"

/* ---- the next allocator ---- */

static struct {
	void *(*malloc)(size_t bytes);
	void *(*calloc)(size_t count, size_t size);
	void *(*realloc)(void *block, size_t bytes);
	void *(*memalign)(size_t alignment, size_t bytes);
	void *(*aligned_alloc)(size_t alignment, size_t bytes);
	int (*posix_memalign)(void **block, size_t alignment, size_t bytes);
	void *(*valloc)(size_t bytes);
	void *(*pvalloc)(size_t bytes);
	void (*free)(void *block);
	size_t (*malloc_usable_size)(void *block);
} next;

/*
 * dlsym() may allocate, and then calls this library before the next allocator is known. These bytes serve
 * such allocations. They are used before there are threads, and never reused.
 */
#define EARLY_BYTES 16384U
static _Alignas(16) unsigned char early[EARLY_BYTES];
static size_t early_used;
static bool finding;

static bool is_early(const void *block)
{
	return (uintptr_t)block - (uintptr_t)early < EARLY_BYTES;
}

static void *take_early(size_t bytes)
{
	size_t whole = (bytes + 15) / 16 * 16;

	if (bytes > EARLY_BYTES || whole > EARLY_BYTES - early_used)
		return NULL;
	early_used += whole;
	return early + (early_used - whole);
}

static void find(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	if (symbol == NULL) {
		static const char text[] = "vicinal: error: libvicinal-heap.so finds no next allocator: "
					   "remove the library from LD_PRELOAD for this program\n";
		(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
		abort();
	}
	memcpy(function, &symbol, sizeof(symbol));
}

static __attribute__((constructor, noinline)) void find_next(void)
{
	if (next.malloc_usable_size != NULL)
		return;
	finding = true;
	find(&next.malloc, "malloc");
	find(&next.calloc, "calloc");
	find(&next.realloc, "realloc");
	find(&next.memalign, "memalign");
	find(&next.aligned_alloc, "aligned_alloc");
	find(&next.posix_memalign, "posix_memalign");
	find(&next.valloc, "valloc");
	find(&next.pvalloc, "pvalloc");
	find(&next.free, "free");
	/* Stored last: it shows that all functions are known. */
	find(&next.malloc_usable_size, "malloc_usable_size");
	finding = false;
}

/* Once the functions are known, this is one comparison. */
static inline bool is_ready(void)
{
	if (__builtin_expect(next.malloc_usable_size != NULL, 1))
		return true;
	if (finding)
		return false;
	find_next();
	return true;
}

/* ---- the heap ---- */

/* vicinal_heap_offer() stores `threshold` last. It is SIZE_MAX until there is a source. */
static _Atomic(const struct heap_source *) source;
static atomic_size_t threshold = SIZE_MAX;
static atomic_uintptr_t lowest = UINTPTR_MAX;
static atomic_uintptr_t highest;
/*
 * No program can allocate this many bytes. is_heard() allocates them to find out whether the program calls
 * this library's malloc().
 */
#define PROBE SIZE_MAX
static __thread bool probed;

/*
 * The acquire load pairs with the release store in vicinal_heap_offer(), which stores the source and the
 * bounds before.
 */
static inline bool is_large(size_t bytes)
{
	return __builtin_expect(bytes >= atomic_load_explicit(&threshold, memory_order_acquire), 0);
}

/* Whether `block` may be in a heap. A block in a heap was allocated after the bounds were stored. */
static inline bool is_between(const void *block)
{
	return __builtin_expect((uintptr_t)block >= atomic_load_explicit(&lowest, memory_order_relaxed) &&
					(uintptr_t)block <
						atomic_load_explicit(&highest, memory_order_relaxed),
				0);
}

static const struct heap_source *heap(void)
{
	return atomic_load_explicit(&source, memory_order_relaxed);
}

/* The bytes of a block in a heap; 0 if it is in none. */
static size_t heap_bytes(const void *block)
{
	return is_between(block) ? heap()->block_bytes(block) : 0;
}

static void *take(size_t bytes, size_t alignment, bool zero, const void *caller)
{
	const struct heap_source *from = heap();

	if (bytes == PROBE) {
		probed = true;
		return NULL;
	}
	if ((uintptr_t)caller >= from->code_begin && (uintptr_t)caller < from->code_end)
		return NULL;
	return from->allocate(bytes, alignment, zero);
}

/* Must be expanded in the function that the program calls: the return address is the program's. */
#define TAKE(bytes, alignment, zero) \
	(is_large(bytes) ? take(bytes, alignment, zero, __builtin_return_address(0)) : NULL)

/*
 * Whether the program's calls reach this library. An allocator that is loaded before it may not pass calls
 * on.
 */
static bool is_heard(void)
{
	void *(*first)(size_t) = NULL;
	void *symbol = dlsym(RTLD_DEFAULT, "malloc");

	memcpy(&first, &symbol, sizeof(first));
	probed = false;
	if (first != NULL)
		free(first(PROBE)); /* the probe returns NULL */
	return probed;
}

/* Symbols from here on are exported. */
#pragma GCC visibility push(default)

heap_offer_function vicinal_heap_offer;

int vicinal_heap_offer(const struct heap_source *offered, const void *base, size_t length)
{
	const struct heap_source *known = NULL;
	uintptr_t begin = (uintptr_t)base;
	uintptr_t low = atomic_load_explicit(&lowest, memory_order_relaxed);
	uintptr_t high = atomic_load_explicit(&highest, memory_order_relaxed);

	if (offered->version != HEAP_SOURCE_VERSION)
		return -EPROTONOSUPPORT;
	if (!is_heard())
		return -EXDEV;
	if (!atomic_compare_exchange_strong(&source, &known, offered) && known != offered)
		return -EBUSY;
	while (begin < low && !atomic_compare_exchange_weak(&lowest, &low, begin))
		continue;
	while (begin + length > high && !atomic_compare_exchange_weak(&highest, &high, begin + length))
		continue;
	atomic_store_explicit(&threshold, offered->threshold, memory_order_release);
	return 0;
}

/* ---- the allocator's functions ---- */

void *malloc(size_t bytes)
{
	void *block = TAKE(bytes, 1, false);

	if (block != NULL)
		return block;
	return is_ready() ? next.malloc(bytes) : take_early(bytes);
}

void *calloc(size_t count, size_t size)
{
	size_t bytes = 0;
	void *block = NULL;

	/* The next allocator reports the overflow. */
	if (!__builtin_mul_overflow(count, size, &bytes))
		block = TAKE(bytes, 1, true);
	if (block != NULL)
		return block;
	return is_ready() ? next.calloc(count, size) : take_early(bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
	bool possible = alignment != 0 && (alignment & (alignment - 1)) == 0;
	void *block = possible ? TAKE(bytes, alignment, false) : NULL;

	if (block != NULL)
		return block;
	return is_ready() ? next.memalign(alignment, bytes) : NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	bool possible = alignment != 0 && (alignment & (alignment - 1)) == 0;
	void *block = possible ? TAKE(bytes, alignment, false) : NULL;

	if (block != NULL)
		return block;
	return is_ready() ? next.aligned_alloc(alignment, bytes) : NULL;
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
	bool possible =
		alignment % sizeof(void *) == 0 && alignment != 0 && (alignment & (alignment - 1)) == 0;
	void *taken = possible ? TAKE(bytes, alignment, false) : NULL;

	if (taken == NULL)
		return is_ready() ? next.posix_memalign(block, alignment, bytes) : ENOMEM;
	*block = taken;
	return 0;
}

/* Blocks in a heap are whole pages and begin at a page, so valloc() and pvalloc() are the same there. */
void *valloc(size_t bytes)
{
	void *block = TAKE(bytes, 1, false);

	if (block != NULL)
		return block;
	return is_ready() ? next.valloc(bytes) : NULL;
}

void *pvalloc(size_t bytes)
{
	void *block = TAKE(bytes, 1, false);

	if (block != NULL)
		return block;
	return is_ready() ? next.pvalloc(bytes) : NULL;
}

/* Aborts, as the C library does for an invalid pointer or a block that is released twice. */
static _Noreturn void refuse(void)
{
	static const char text[] =
		"vicinal: error: free() of an address that is no block of the region's heap: the program "
		"releases a block twice, or one that it did not allocate\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	abort();
}

/*
 * Out of line, because most blocks are small. Returns false if the block lies between two heaps and is
 * another allocator's.
 */
static __attribute__((noinline)) bool give(void *block)
{
	int saved = errno;
	bool given = heap()->release(block);

	if (!given && heap()->contains(block))
		refuse();
	errno = saved;
	return given;
}

void free(void *block)
{
	if (is_between(block) && give(block))
		return;
	if (is_early(block) || !is_ready())
		return;
	next.free(block);
}

/* Moves a block of `before` bytes to a new one of `bytes`. */
static void *move(void *block, size_t before, size_t bytes, const void *caller)
{
	void *moved = is_large(bytes) ? take(bytes, 1, false, caller) : NULL;

	if (moved == NULL)
		moved = next.malloc(bytes);
	if (moved == NULL)
		return NULL;
	memcpy(moved, block, before < bytes ? before : bytes);
	free(block);
	return moved;
}

void *realloc(void *block, size_t bytes)
{
	const void *caller = __builtin_return_address(0);

	if (!is_ready() || is_early(block)) {
		/* The block's length is not known. It ends within the early bytes. */
		size_t most = (size_t)(early + EARLY_BYTES - (unsigned char *)block);
		void *moved = is_ready() ? next.malloc(bytes) : take_early(bytes);
		if (moved != NULL && block != NULL)
			memmove(moved, block, bytes < most ? bytes : most);
		return moved;
	}
	if (block == NULL) {
		void *taken = is_large(bytes) ? take(bytes, 1, false, caller) : NULL;
		return taken != NULL ? taken : next.malloc(bytes);
	}
	size_t before = heap_bytes(block);
	if (before != 0) {
		if (bytes == 0) {
			free(block);
			return NULL;
		}
		if (heap()->resize(block, bytes))
			return block;
		return move(block, before, bytes, caller);
	}
	/*
	 * A block that becomes large moves into the heap. A block that already was large and is not in a heap
	 * was allocated too early, or while the heap was full. The C library may grow it without a copy.
	 */
	if (is_large(bytes)) {
		before = next.malloc_usable_size(block);
		if (!is_large(before))
			return move(block, before, bytes, caller);
	}
	return next.realloc(block, bytes);
}

size_t malloc_usable_size(void *block)
{
	size_t bytes = heap_bytes(block);

	if (bytes != 0)
		return bytes;
	return is_ready() && !is_early(block) ? next.malloc_usable_size(block) : 0;
}

#pragma GCC visibility pop
