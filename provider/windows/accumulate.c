/* SPDX-License-Identifier: BSD-3-Clause */
/* accumulate.c - see accumulate.h. */
#include "windows/accumulate.h"

#include <limits.h>
#include <stdlib.h>

#include "collectives/data.h"
#include "windows/layout.h"
#include "windows/update.h"

static bool is_aligned(const unsigned char *address, int64_t offset, uint32_t size)
{
	return ((uintptr_t)address + (uintptr_t)offset) % size == 0;
}

static bool is_layout_aligned(const struct layout *layout, const unsigned char *address, int64_t count,
			      uint32_t size)
{
	bool aligned = count == 1 || layout->extent % size == 0;

	for (int64_t i = 0; i < layout->elements && aligned; i++)
		aligned = is_aligned(address, layout->offsets[i], size);
	return aligned;
}

/* Elements that lie at a layout's offsets: neighbours are updated together. */
static enum outcome apply_layout(const struct update *update, const struct layout *layout,
				 unsigned char *address, const unsigned char *operand, unsigned char *before,
				 int64_t count)
{
	bool begun = false;

	for (int64_t i = 0; i < count; i++) {
		unsigned char *instance = address + i * layout->extent;
		for (int64_t first = 0, next = 0; first < layout->elements; first = next) {
			for (next = first + 1;
			     next < layout->elements && layout->offsets[next] - layout->offsets[first] ==
								(next - first) * (int64_t)update->size;)
				next++;
			int64_t packed = (i * layout->elements + first) * update->size;
			enum outcome outcome =
				update_apply(update, instance + layout->offsets[first],
					     operand != NULL ? operand + packed : NULL,
					     before != NULL ? before + packed : NULL, (size_t)(next - first));
			if (outcome != OUTCOME_DONE)
				return begun ? OUTCOME_FAILED : outcome;
			begun = true;
		}
	}
	return OUTCOME_DONE;
}

static enum outcome apply_derived(const struct update *update, const struct target *target,
				  unsigned char *address, const unsigned char *operand, unsigned char *before)
{
	struct layout *layout = layout_of(target->type, update->size);
	enum outcome outcome = OUTCOME_PASS;

	if (layout != NULL && is_layout_aligned(layout, address, target->count, update->size))
		outcome = apply_layout(update, layout, address, operand, before, target->count);
	free(layout);
	return outcome;
}

/* Has the data its bytes, or none that are needed? */
static bool is_packed(const struct data *data)
{
	return data->owned != NULL || mpi_basic_type(data->type).size != 0;
}

static enum outcome accumulate_packed(const struct update *update, const struct target *target,
				      unsigned char *address, const unsigned char *operand,
				      unsigned char *before)
{
	if (target->type != update->type)
		return apply_derived(update, target, address, operand, before);
	if (!is_aligned(address, 0, update->size))
		return OUTCOME_PASS;
	return update_apply(update, address, operand, before, (size_t)target->count);
}

/* The short path: one datatype without gaps. OUTCOME_PASS: it is not for this operation. */
static enum outcome accumulate_plain(const struct window *window, const struct buffer *origin,
				     const struct buffer *result, const struct target *target, handle op)
{
	const struct update *update = update_of(target->type, op);

	if (update == NULL || target->count <= 0 || target->count > INT_MAX ||
	    (result != NULL && (result->type != target->type || result->count != target->count)))
		return OUTCOME_PASS;
	bool reads = update->kind == UPDATE_READ;
	if (reads ? result == NULL : origin->type != target->type || origin->count != target->count)
		return OUTCOME_PASS;
	unsigned char *address = target_bytes(window, target, target->count * update->size);
	if (address == NULL || !is_aligned(address, 0, update->size))
		return OUTCOME_PASS;
	return update_apply(update, address, reads ? NULL : origin->address,
			    result != NULL ? result->address : NULL, (size_t)target->count);
}

enum outcome accumulate(const struct window *window, const struct buffer *origin, const struct buffer *result,
			const struct target *target, handle op)
{
	struct data from = {.bytes = NULL};
	struct data to = {.bytes = NULL};
	enum outcome outcome = accumulate_plain(window, origin, result, target, op);

	if (__builtin_expect(outcome != OUTCOME_PASS, 1))
		return outcome;
	unsigned char *address = target_address(window, target);
	int64_t length = data_bytes(target->count, target->type);
	const struct update *update =
		address != NULL && length > 0 ? update_of(layout_leaf(target->type), op) : NULL;
	if (update == NULL)
		return OUTCOME_PASS;
	bool reads = update->kind == UPDATE_READ;
	/* MPI has no accumulate without a result that changes nothing. */
	if (reads && result == NULL)
		return OUTCOME_PASS;
	if ((!reads && data_bytes(origin->count, origin->type) != length) ||
	    (result != NULL && data_bytes(result->count, result->type) != length))
		return OUTCOME_PASS;
	if (!reads)
		from = data_to_send(origin->address, origin->count, origin->type, length);
	if (result != NULL)
		to = data_to_receive(result->address, result->count, result->type, length);
	if ((reads || is_packed(&from)) && (result == NULL || is_packed(&to)))
		outcome = accumulate_packed(update, target, address, from.bytes, to.bytes);
	data_sent(&from);
	if (outcome == OUTCOME_DONE && result != NULL)
		return data_received(&to) == MPI_OK ? OUTCOME_DONE : OUTCOME_FAILED;
	data_sent(&to);
	return outcome;
}

enum outcome compare_and_swap(const struct window *window, const void *origin, const void *compare,
			      void *result, const struct target *target)
{
	uint32_t size = mpi_basic_type(target->type).size;
	unsigned char *address = target_bytes(window, target, size);

	if (address == NULL || !update_swap(address, size, origin, compare, result))
		return OUTCOME_PASS;
	return OUTCOME_DONE;
}
