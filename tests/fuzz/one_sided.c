/* SPDX-License-Identifier: BSD-3-Clause */
/* one_sided.c - the victim's registrations, and its own reads, writes and atomics. */
#include <stdlib.h>

#include "fuzz/fuzz.h"

void expose(struct fuzz *fuzz)
{
	const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;
	const uint64_t access[REACHABLE_KEYS] = {both, FI_REMOTE_READ, FI_REMOTE_WRITE, both, both, both};

	/* A block of exactly this length, so that sanitizers see a byte beside. */
	fuzz->reachable = calloc(REACHABLE_BYTES, 1);
	require(fuzz->reachable != NULL, "no memory");
	registrations_open(&fuzz->table);
	for (uint32_t i = 0; i < REACHABLE_KEYS; i++) {
		fuzz->registrations[i] = (struct registration){
			.key = i + 1,
			.base = fuzz->reachable,
			.length = REACHABLE_BYTES,
			.address = i == 3 ? REACHABLE_HIGH : 0,
			.access = access[i],
			.owner = i == 4 ? fuzz : NULL,
			.enabled = i != 5,
		};
		require(registrations_add(&fuzz->table, &fuzz->registrations[i]) == 0, "no memory");
		fuzz->registered[i] = true;
	}
	fuzz->messenger->registrations = &fuzz->table;
}

void conceal(struct fuzz *fuzz)
{
	registrations_close(&fuzz->table);
	free(fuzz->reachable);
}

void victim_register(struct fuzz *fuzz)
{
	uint32_t which = take_u8(&fuzz->input) % REACHABLE_KEYS;

	if (fuzz->registered[which])
		registrations_remove(&fuzz->table, &fuzz->registrations[which]);
	else
		require(registrations_add(&fuzz->table, &fuzz->registrations[which]) == 0, "no memory");
	fuzz->registered[which] = !fuzz->registered[which];
}

void victim_remote(struct fuzz *fuzz)
{
	static const size_t lengths[] = {0, 8, 32, 48, 104, 432, 1000, 4096, 4104, 20000, 65537, 140000};
	static const uint64_t flags[] = {0, FI_DELIVERY_COMPLETE, FI_INJECT_COMPLETE, FI_REMOTE_CQ_DATA};
	uint8_t style = take_u8(&fuzz->input);
	size_t length = lengths[take_u8(&fuzz->input) % 12];
	struct msg_peer *to = meet(fuzz, (style & 7) != 0);
	enum remote_kind kind = (enum remote_kind)(style >> 3 & 3) % 3;

	if (kind == REMOTE_ATOMIC)
		length = (length > 4096 ? 4096 : length + 8) / 16 * 16;
	struct operation *operation = to == NULL ? NULL : new_operation(fuzz, length, IN_MEMORY);
	if (operation == NULL)
		return;
	operation->directed = to->peer.source == HOSTILE;
	const struct iovec piece = {operation->buffer, length};
	struct fi_rma_iov ranges[2] = {{take_u16(&fuzz->input), length / 16 * 8, 1},
				       {take_u8(&fuzz->input), length - length / 16 * 8, 1}};
	struct remote_request request = {
		.kind = kind,
		.pieces = &piece,
		.count = 1,
		.length = length,
		.ranges = style & 32 ? &ranges[0] : &ranges[1],
		.range_count = style & 32 ? 2 : 1,
		.to = to,
		.context = operation,
		.flags = FI_COMPLETION | flags[style >> 6],
		.datatype = FI_INT64,
		.operation = FI_SUM,
	};
	if ((style & 32) == 0)
		ranges[1].len = length;
	if (kind == REMOTE_ATOMIC) {
		request.form = take_u8(&fuzz->input) % ATOMIC_FORMS;
		if (request.form == ATOMIC_COMPARE)
			request.operation = FI_CSWAP;
		request.compares = request.results = &piece;
		request.compare_count = request.result_count = 1;
	}
	if (messenger_remote(fuzz->messenger, &request) != 0)
		end_operation(operation);
}
