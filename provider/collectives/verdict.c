/* SPDX-License-Identifier: BSD-3-Clause */
/* verdict.c - see verdict.h. */
#include "collectives/verdict.h"

#include <inttypes.h>
#include <stdio.h>

#include "collectives/wait.h"

bool verdict_stage(struct communicator *communicator, int rank)
{
	if (communicator->staging == NULL && !communicator->no_staging)
		return communicator_stage(communicator);
	communicator_break(communicator, rank, "broke the rules of the region");
	return false;
}

bool has_room(const struct communicator *communicator, int from, uint64_t sent, int64_t room)
{
	if (sent <= (uint64_t)room)
		return true;
	(void)fprintf(stderr,
		      "vicinal: error: rank %d sends %" PRIu64
		      " bytes in a collective to rank %d, which receives at "
		      "most %" PRId64 ": both must have the same count\n",
		      from, sent, communicator->rank, room);
	return false;
}

bool store_received(struct data *to, uint64_t received)
{
	/* Only whole elements can be unpacked. */
	if (received < (uint64_t)to->length) {
		to->count = (int64_t)received / (to->length / to->count);
		to->length = (int64_t)received;
	}
	return data_received(to) == MPI_OK;
}

bool keep_own(const struct communicator *communicator, const struct blocks *send,
	      const struct blocks *receive)
{
	int own = communicator->rank;
	int64_t length = block_length(send, own);
	int64_t room = block_length(receive, own);

	if (length < 0 || room < 0 || !has_room(communicator, own, (uint64_t)length, room))
		return false;
	if (length == 0)
		return true;
	struct data from = block_to_send(send, own, length);
	struct data to = block_to_receive(receive, own, room);
	bool kept = !data_lacks_memory(&from) && !data_lacks_memory(&to);
	if (kept && from.bytes != to.bytes)
		memcpy(to.bytes, from.bytes, (size_t)length);
	data_sent(&from);
	if (kept)
		return store_received(&to, (uint64_t)length);
	data_sent(&to);
	return false;
}
