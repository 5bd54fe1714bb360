/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * access.c - see access.h. Data with gaps is packed and unpacked by the MPI library, at the target in the
 * window's memory itself.
 */
#include "windows/access.h"

#include <limits.h>

#include "collectives/data.h"
#include "region/copy.h"

/* The bytes that elements take, from the first element's address on: [low, high). */
static bool find_span(int64_t count, handle type, int64_t *low, int64_t *high)
{
	struct basic_type basic = mpi_basic_type(type);
	intptr_t lower = 0;
	intptr_t extent = 0;
	intptr_t true_lower = 0;
	intptr_t true_extent = 0;
	int64_t last = 0;

	*low = 0;
	if (basic.size != 0)
		return count >= 0 && !__builtin_mul_overflow(count, (int64_t)basic.size, high);
	if (count < 1 ||
	    MPI_CALL(Type_get_extent, handle, intptr_t *, intptr_t *)(type, &lower, &extent) != MPI_OK ||
	    MPI_CALL(Type_get_true_extent, handle, intptr_t *, intptr_t *)(type, &true_lower, &true_extent) !=
		    MPI_OK ||
	    __builtin_mul_overflow(count - 1, (int64_t)extent, &last) ||
	    __builtin_add_overflow(true_lower, last < 0 ? last : 0, low) ||
	    __builtin_add_overflow(true_lower, true_extent, high) ||
	    __builtin_add_overflow(*high, last > 0 ? last : 0, high))
		return false;
	return true;
}

/* The address of the bytes from `low` to `high`, counted from the first element, less `low`. */
static inline unsigned char *find_range(const struct window *window, const struct target *target, int64_t low,
					int64_t high)
{
	int64_t first = 0;

	if (target->rank < 0 || target->rank >= window->size ||
	    (atomic_load_explicit(&window->epochs, memory_order_relaxed) == 0 &&
	     !atomic_load_explicit(&window->fenced, memory_order_relaxed)))
		return NULL;
	const struct window_peer *peer = &window->peers[target->rank];
	if (__builtin_mul_overflow((int64_t)target->disp, peer->unit, &first) ||
	    __builtin_add_overflow(low, first, &low) || __builtin_add_overflow(high, first, &high) ||
	    low < 0 || first < 0 || high < low || (uint64_t)high > peer->bytes ||
	    (uint64_t)first > peer->bytes)
		return NULL;
	/* The claim word changes only when the heap gets another owner, so it stays in the cache. */
	if (__builtin_expect((uint32_t)(shared_load_u64(peer->claim) >> 32) != peer->heap_epoch, 0))
		return NULL;
	return peer->base + first;
}

unsigned char *target_address(const struct window *window, const struct target *target)
{
	int64_t low = 0;
	int64_t high = 0;

	return find_span(target->count, target->type, &low, &high) ? find_range(window, target, low, high)
								   : NULL;
}

unsigned char *target_bytes(const struct window *window, const struct target *target, int64_t bytes)
{
	return find_range(window, target, 0, bytes);
}

static void copy(void *to, const void *from, int64_t length)
{
	if (length <= 64)
		copy_small(to, from, (size_t)length);
	else
		memcpy(to, from, (size_t)length);
	/* The compiler must not move the copy across a call that ends an epoch. */
	atomic_signal_fence(memory_order_acq_rel);
}

static bool is_packed(const struct data *data)
{
	return data->owned != NULL || mpi_basic_type(data->type).size != 0;
}

/* The address and the length of data without gaps on both sides; NULL for other data. The short path. */
static unsigned char *find_plain(const struct window *window, int64_t count, handle type,
				 const struct target *target, int64_t *length)
{
	uint32_t size = mpi_basic_type(type).size;
	uint32_t target_size = target->type == type ? size : mpi_basic_type(target->type).size;

	if (size == 0 || target_size == 0 || count <= 0 || count > INT_MAX || target->count > INT_MAX ||
	    count * size != target->count * target_size)
		return NULL;
	*length = count * size;
	return find_range(window, target, 0, *length);
}

enum outcome access_put(const struct window *window, const void *origin, int64_t count, handle type,
			const struct target *target)
{
	int64_t length = 0;
	unsigned char *plain = find_plain(window, count, type, target, &length);

	if (__builtin_expect(plain != NULL, 1)) {
		copy(plain, origin, length);
		return OUTCOME_DONE;
	}
	length = data_bytes(count, type);
	unsigned char *to = NULL;
	int status = MPI_OK;
	int position = 0;

	if (length <= 0 || length != data_bytes(target->count, target->type) ||
	    (to = target_address(window, target)) == NULL)
		return OUTCOME_PASS;
	bool contiguous = mpi_basic_type(target->type).size != 0;
	if (!contiguous && (length > INT_MAX || target->count > INT_MAX))
		return OUTCOME_PASS;
	struct data from = data_to_send(origin, count, type, length);
	if (!is_packed(&from))
		return OUTCOME_PASS;
	if (contiguous)
		copy(to, from.bytes, length);
	else
		status = MPI_CALL(Unpack, const void *, int, int *, void *, int, handle,
				  handle)(from.bytes, (int)length, &position, to, (int)target->count,
					  target->type, mpi.comm_self);
	data_sent(&from);
	return status == MPI_OK ? OUTCOME_DONE : OUTCOME_FAILED;
}

enum outcome access_get(const struct window *window, void *origin, int64_t count, handle type,
			const struct target *target)
{
	int64_t length = 0;
	const unsigned char *plain = find_plain(window, count, type, target, &length);

	if (__builtin_expect(plain != NULL, 1)) {
		copy(origin, plain, length);
		return OUTCOME_DONE;
	}
	length = data_bytes(count, type);
	const unsigned char *from = NULL;
	int status = MPI_OK;
	int position = 0;

	if (length <= 0 || length != data_bytes(target->count, target->type) ||
	    (from = target_address(window, target)) == NULL)
		return OUTCOME_PASS;
	bool contiguous = mpi_basic_type(target->type).size != 0;
	if (!contiguous && (length > INT_MAX || target->count > INT_MAX))
		return OUTCOME_PASS;
	struct data to = data_to_receive(origin, count, type, length);
	if (!is_packed(&to))
		return OUTCOME_PASS;
	if (contiguous)
		copy(to.bytes, from, length);
	else
		status = MPI_CALL(Pack, const void *, int, handle, void *, int, int *,
				  handle)(from, (int)target->count, target->type, to.bytes, (int)length,
					  &position, mpi.comm_self);
	if (status == MPI_OK)
		status = data_received(&to);
	else
		data_sent(&to);
	return status == MPI_OK ? OUTCOME_DONE : OUTCOME_FAILED;
}
