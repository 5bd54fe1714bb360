/* SPDX-License-Identifier: BSD-3-Clause */
/* setup.c - see setup.h. */
#include "collectives/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "collectives/source.h"
#include "collectives/wait.h"

/* Blocks of a heap begin at pages. */
#define HEAP_PAGE 4096U
/* Staging buffers of this process at most, because programs may make communicators by the thousand. */
#define STAGINGS_MAX 16

static atomic_int stagings;

/* ---- blocks ---- */

struct description {
	uint64_t version; /* of this exchange and of struct block; 0: no region */
	uint64_t id[2];
	uint64_t number;
	uint64_t block; /* offset in the heap of the member's section */
	uint32_t slot;
	uint32_t epoch;
};
#define EXCHANGE_VERSION UINT64_C(1)

/* Does a block of this length at an offset in a heap, as a peer says it, lie in the heap, at a page? */
static bool lies_in_heap(uint64_t offset, uint64_t bytes)
{
	uint64_t whole = source_region()->heap_bytes;

	return offset % HEAP_PAGE == 0 && offset <= whole && bytes <= whole - offset;
}

static bool is_valid(const struct description *theirs, const struct description *mine)
{
	return theirs->version == EXCHANGE_VERSION && theirs->id[0] == mine->id[0] &&
	       theirs->id[1] == mine->id[1] && theirs->slot < source_region()->members &&
	       lies_in_heap(theirs->block, BLOCK_BYTES);
}

static void reset(struct block *block, uint64_t number)
{
	/* In this order: a member of a former communicator reads `done`, and then `number`. */
	shared_release_u64(&block->number, number);
	shared_release_u64(&block->done, 0);
	shared_release_u64(&block->closed, 0);
	shared_release_u64(&block->agreed, 0);
	for (unsigned int i = 0; i < CELLS; i++) {
		shared_store_u64(&block->cells[i].control, 0);
		shared_store_u64(&block->cells[i].kind, 0);
	}
	shared_fence_full();
}

void setup_no_memory(int size)
{
	(void)fprintf(
		stderr,
		"vicinal: error: no memory is left for a communicator of %d ranks: the job cannot go on\n",
		size);
	abort();
}

static int allgather(const void *from, void *to, int bytes, handle comm)
{
	return MPI_CALL(Allgather, const void *, int, handle, void *, int, handle,
			handle)(from, bytes, mpi.byte, to, bytes, mpi.byte, comm);
}

bool setup_exchange(struct communicator *communicator, struct block *block)
{
	const struct region_source *source = source_region();
	handle comm = communicator->handle;
	size_t size = (size_t)communicator->size;
	struct description *all = calloc(size, sizeof(*all));
	unsigned char *agreed = calloc(size, 1);
	struct description mine = {.version = 0};

	if (all == NULL || agreed == NULL)
		setup_no_memory(communicator->size);
	if (block != NULL) {
		mine = (struct description){
			.version = EXCHANGE_VERSION,
			.id = {source->id[0], source->id[1]},
			.block = (uint64_t)((unsigned char *)block - source_heap(source->slot)),
			.slot = source->slot,
			.epoch = source->epoch,
		};
		(void)!getrandom(&mine.number, sizeof(mine.number), 0);
		mine.number |= 1;
		reset(block, 0);
	}
	bool valid = allgather(&mine, all, sizeof(mine), comm) == MPI_OK && block != NULL;
	for (size_t rank = 0; rank < size && valid; rank++)
		valid = is_valid(&all[rank], &mine);
	if (valid) {
		communicator->number = all[0].number;
		reset(block, communicator->number);
	}
	unsigned char answer = valid ? 1 : 0;
	valid = allgather(&answer, agreed, 1, comm) == MPI_OK && valid;
	for (size_t rank = 0; rank < size && valid; rank++)
		valid = agreed[rank] == 1;
	for (size_t rank = 0; rank < size && valid; rank++) {
		struct communicator_peer *peer = &communicator->peers[rank];
		peer->block =
			(const struct block *)(const void *)(source_heap(all[rank].slot) + all[rank].block);
		peer->slot = all[rank].slot;
		peer->epoch = all[rank].epoch;
	}
	free(all);
	free(agreed);
	return valid;
}

void setup_release(struct communicator *communicator)
{
	if (communicator->staging != NULL) {
		(void)source_region()->release((void *)communicator->staging);
		(void)atomic_fetch_sub(&stagings, 1);
	}
	if (communicator->block != NULL)
		(void)source_region()->release(communicator->block);
	communicator->staging = NULL;
	communicator->block = NULL;
}

/* ---- staging buffers ---- */

enum { COLLECTIVE_STAGE = 255 };

/* What a member says of its staging buffer. */
struct staging_offer {
	uint64_t offset; /* in the heap of its section */
	uint64_t piece;  /* bytes of a piece; 0: it has none */
};

/* The longest pieces for which the heap has room. */
static shared_bytes *allocate_staging(uint32_t *piece)
{
	static const uint32_t pieces[] = {STAGING_PIECE, STAGING_PIECE / 4, STAGING_PIECE_MIN};
	shared_bytes *staging = NULL;

	bool may = atomic_fetch_add(&stagings, 1) < STAGINGS_MAX;
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]) && staging == NULL && may; i++) {
		*piece = pieces[i];
		staging = source_allocate((size_t)CELLS * pieces[i]);
	}
	if (staging == NULL)
		(void)atomic_fetch_sub(&stagings, 1);
	return staging;
}

static bool is_staging_valid(const struct staging_offer *offer)
{
	return offer->piece >= STAGING_PIECE_MIN && offer->piece <= STAGING_PIECE && offer->piece % 64 == 0 &&
	       lies_in_heap(offer->offset, CELLS * offer->piece);
}

bool communicator_stage(struct communicator *communicator)
{
	struct staging_offer offer = {.piece = 0};
	bool everywhere = true;
	uint64_t kind = step_kind(COLLECTIVE_STAGE, 0, sizeof(offer));
	uint32_t piece = 0;
	shared_bytes *staging = allocate_staging(&piece);

	if (staging != NULL) {
		offer.offset = (uint64_t)((unsigned char *)staging - source_heap(source_region()->slot));
		offer.piece = piece;
	}
	communicator->staging = staging;
	communicator->piece = STAGING_PIECE;
	uint64_t step = step_begin(communicator);
	if (step == 0)
		return false;
	shared_copy_out(step_data(communicator, step, false), &offer, sizeof(offer));
	step_publish(communicator, step, kind, sizeof(offer));
	for (int rank = 0; rank < communicator->size; rank++) {
		const shared_bytes *data = step_read(communicator, rank, step, kind, false);
		if (data == NULL)
			return false;
		shared_copy_in(&offer, data, sizeof(offer));
		if (offer.piece == 0) {
			everywhere = false;
		} else if (!is_staging_valid(&offer)) {
			communicator_break(communicator, rank, "names memory outside its heap");
			return false;
		} else {
			communicator->peers[rank].staging =
				(const shared_bytes *)(source_heap(communicator->peers[rank].slot) +
						       offer.offset);
			if (offer.piece < communicator->piece)
				communicator->piece = (uint32_t)offer.piece;
		}
	}
	step_end(communicator, step, true);
	if (!everywhere) {
		communicator->no_staging = true;
		communicator->staging = NULL;
		if (staging != NULL) {
			(void)source_region()->release((void *)staging);
			(void)atomic_fetch_sub(&stagings, 1);
		}
	}
	return true;
}
