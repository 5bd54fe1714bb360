/* SPDX-License-Identifier: BSD-3-Clause */
/* mr.c - memory registration: keys, modes, when memory can be reached, and what closes. */
#include <stdlib.h>

#include "harness.h"

static unsigned char memory[8192];
static unsigned char buffer[8192];

static struct fid_mr *reg(const struct side *side, void *base, size_t length, uint64_t access, uint64_t key)
{
	struct fid_mr *mr = NULL;

	SAME(fi_mr_reg(side->domain, base, length, access, 0, key, 0, &mr, NULL), 0);
	return mr;
}

/* Write a byte to ourselves. Returns the result: 0 or an error. */
static int reach(const struct side *side, uint64_t address, uint64_t key)
{
	struct fi_cq_tagged_entry entry = {0};
	ssize_t result = 0;

	POST(side, fi_write(side->endpoint, buffer, 1, NULL, side->peer[0], address, key, NULL));
	while ((result = fi_cq_read(side->sent, &entry, 1)) == -FI_EAGAIN)
		;
	return result == 1 ? 0 : next_error(side->sent).err;
}

/* Keys that the application chooses, each once. */
static void requested_keys(int rank)
{
	struct side side;
	struct fid_mr *mrs[200];
	struct fid_mr *other = NULL;

	side_open(&side, rank, NULL);
	for (size_t i = 0; i < 200; i++) {
		mrs[i] = reg(&side, memory + i, 1, REMOTE_BOTH, i * i * 977);
		SAME(fi_mr_key(mrs[i]), i * i * 977);
		SAME(fi_mr_reg(side.domain, memory, 1, REMOTE_BOTH, 0, i * i * 977, 0, &other, NULL),
		     -FI_ENOKEY);
	}
	/* Closed in some order, each close removes one key and no other. */
	for (size_t i = 0; i < 200; i++) {
		size_t chosen = i * 73 % 200;
		SAME(fi_close(&mrs[chosen]->fid), 0);
		mrs[chosen] = NULL;
		for (size_t k = 0; k < 200; k += i % 10 == 0 ? 1 : 17)
			SAME(reach(&side, 0, k * k * 977), mrs[k] != NULL ? 0 : FI_EKEYREJECTED);
	}
	/* A key can be used again. */
	mrs[0] = reg(&side, memory, 1, REMOTE_BOTH, UINT64_MAX);
	SAME(reach(&side, 0, UINT64_MAX), 0);
	SAME(fi_close(&mrs[0]->fid), 0);
	side_close(&side);
}

/* Keys that the provider chooses: all different, whatever the application requests. */
static void chosen_keys(int rank)
{
	struct side side;
	struct fid_mr *mrs[100];

	side_open(&side, rank, &(struct side_options){.mr_mode = FI_MR_PROV_KEY});
	for (size_t i = 0; i < 100; i++) {
		mrs[i] = reg(&side, memory + i, 1, REMOTE_BOTH, 5);
		for (size_t k = 0; k < i; k++)
			CHECK(fi_mr_key(mrs[i]) != fi_mr_key(mrs[k]));
	}
	for (size_t i = 0; i < 100; i++) {
		buffer[0] = (unsigned char)(i + 1);
		SAME(reach(&side, 0, fi_mr_key(mrs[i])), 0);
		SAME(memory[i], i + 1);
		SAME(fi_close(&mrs[i]->fid), 0);
	}
	side_close(&side);
}

/* Reached through the endpoint that it is bound to, once it is enabled. */
static void bound_to_an_endpoint(int rank)
{
	struct side side;
	struct fid_mr *mr = NULL;

	side_open(&side, rank, &(struct side_options){.mr_mode = FI_MR_ENDPOINT, .endpoints = 2});
	mr = reg(&side, memory, 10, REMOTE_BOTH, 5);
	SAME(reach(&side, 0, 5), FI_EKEYREJECTED);
	SAME(fi_mr_enable(mr), -FI_EINVAL);
	SAME(fi_mr_bind(mr, &side.endpoints[0]->fid, 0), 0);
	SAME(fi_mr_bind(mr, &side.endpoints[1]->fid, 0), -FI_EINVAL);
	SAME(fi_mr_bind(mr, &side.sent->fid, 0), -FI_EINVAL);
	SAME(reach(&side, 0, 5), FI_EKEYREJECTED);
	SAME(fi_mr_enable(mr), 0);
	SAME(reach(&side, 0, 5), 0);
	SAME(reach(&side, 10, 5), FI_EACCES);
	side.peer[0] = side.peers[0][1];
	SAME(reach(&side, 0, 5), FI_EKEYREJECTED);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* When an endpoint closes, memory that was bound to it can no longer be reached. */
static void endpoint_goes_first(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.mr_mode = FI_MR_ENDPOINT, .endpoints = 2});
	struct fid_mr *mr = reg(&side, memory, 10, REMOTE_BOTH, 5);
	SAME(fi_mr_bind(mr, &side.endpoints[1]->fid, 0), 0);
	SAME(fi_mr_enable(mr), 0);
	fi_addr_t first = side.peers[0][0];
	side.peer[0] = side.peers[0][1];
	SAME(reach(&side, 0, 5), 0);
	side.peer[0] = first;
	SAME(fi_close(&side.endpoints[1]->fid), 0);
	side.count = 1;
	SAME(reach(&side, 0, 5), FI_EKEYREJECTED);
	/* Another endpoint, possibly at the same address, does not inherit its memory. */
	struct fid_ep *next = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_enable(next), 0);
	side.endpoints[1] = next;
	side.count = 2;
	(void)fi_mr_enable(mr);
	exchange_names(&side);
	side.peer[0] = side.peers[0][1];
	SAME(reach(&side, 0, 5), FI_EKEYREJECTED);
	SAME(fi_close(&side.domain->fid), -FI_EBUSY);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* All calls that an application may make, whether or not the provider needs them. */
static void calls(int rank)
{
	struct side side;
	struct iovec piece = {memory, 100};
	struct iovec two[2] = {{memory, 100}, {memory + 200, 100}};
	struct fid_mr *mr = NULL;
	uint64_t base = 1;
	uint64_t key = 0;
	uint8_t raw[16];
	size_t raw_size = 4;

	side_open(&side, rank, &(struct side_options){.mr_mode = FI_MR_VIRT_ADDR});
	SAME(fi_mr_regv(side.domain, &piece, 1, REMOTE_BOTH, 0, 7, 0, &mr, &side), 0);
	CHECK(mr->fid.context == &side);
	CHECK(fi_mr_desc(mr) != NULL);
	SAME(fi_mr_key(mr), 7);
	SAME(fi_mr_refresh(mr, &piece, 1, 0), 0);
	SAME(fi_mr_enable(mr), 0);
	SAME(fi_mr_raw_attr(mr, &base, raw, &raw_size, 0), -FI_ETOOSMALL);
	SAME(raw_size, 8);
	SAME(fi_mr_raw_attr(mr, &base, raw, &raw_size, 0), 0);
	SAME(base, (uintptr_t)memory);
	SAME(fi_mr_map_raw(side.domain, base, raw, raw_size, &key, 0), 0);
	SAME(key, 7);
	SAME(fi_mr_unmap_key(side.domain, key), 0);
	SAME(reach(&side, base, key), 0);
	SAME(reach(&side, base + 99, key), 0);
	SAME(reach(&side, base + 100, key), FI_EACCES);
	SAME(reach(&side, base - 1, key), FI_EACCES);
	SAME(reach(&side, 0, key), FI_EACCES);
	SAME(fi_close(&mr->fid), 0);
	struct fi_mr_attr attributes = {.mr_iov = &piece,
					.iov_count = 1,
					.access = REMOTE_BOTH,
					.requested_key = 8,
					.context = &piece};
	SAME(fi_mr_regattr(side.domain, &attributes, 0, &mr), 0);
	CHECK(mr->fid.context == &piece);
	SAME(fi_mr_key(mr), 8);
	SAME(fi_close(&mr->fid), 0);
	/* More buffers than mr_iov_limit, an offset, no buffer. */
	SAME(fi_mr_regv(side.domain, two, 2, REMOTE_BOTH, 0, 7, 0, &mr, NULL), -FI_EINVAL);
	SAME(fi_mr_regv(side.domain, two, 0, REMOTE_BOTH, 0, 7, 0, &mr, NULL), -FI_EINVAL);
	SAME(fi_mr_reg(side.domain, memory, 1, REMOTE_BOTH, 1, 7, 0, &mr, NULL), -FI_EINVAL);
	/* Memory only for our own use takes no key from others. */
	struct fid_mr *own[2] = {reg(&side, memory, 1, FI_SEND | FI_RECV, 0),
				 reg(&side, memory, 1, FI_READ | FI_WRITE, 0)};
	SAME(reach(&side, base, 0), FI_EKEYREJECTED);
	SAME(fi_close(&own[0]->fid), 0);
	SAME(fi_close(&own[1]->fid), 0);
	side_close(&side);
}

/* Memory that cannot be registered, bound or mapped. */
static void refused(int rank)
{
	static const uint64_t flags[] = {FI_RMA_PMEM, FI_HMEM_DEVICE_ONLY, FI_HMEM_HOST_ALLOC, 1};
	struct side sides[2];
	struct fid_mr *mr = NULL;
	struct fid_cntr *counters[3];
	uint64_t key = 7;

	for (int i = 0; i < 2; i++)
		side_open(&sides[i], rank, NULL);
	struct fid_domain *domain = sides[0].domain;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		SAME(fi_mr_reg(domain, memory, 8, REMOTE_BOTH, 0, 7, flags[i], &mr, NULL), -FI_EBADFLAGS);
	/* Memory beyond the last address. */
	SAME(fi_mr_reg(domain, memory, SIZE_MAX, REMOTE_BOTH, 0, 7, 0, &mr, NULL), -FI_EINVAL);
	CHECK(mr == NULL);
	SAME(fi_mr_reg(domain, memory, 8, REMOTE_BOTH, 0, 7, FI_RMA_EVENT, &mr, NULL), 0);
	/* Registration in the background is not offered. */
	struct fid_eq *eq = NULL;
	SAME(fi_eq_open(sides[0].fabric, &(struct fi_eq_attr){.wait_obj = FI_WAIT_NONE}, &eq, NULL), 0);
	SAME(fi_domain_bind(domain, &eq->fid, FI_REG_MR), -FI_EBADFLAGS);
	/* Objects of another domain, of no use to memory, or bound already. */
	for (int i = 0; i < 3; i++)
		SAME(fi_cntr_open(sides[i / 2].domain, NULL, &counters[i], NULL), 0);
	SAME(fi_mr_bind(mr, &counters[2]->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	SAME(fi_mr_bind(mr, &sides[1].endpoint->fid, 0), -FI_EINVAL);
	SAME(fi_mr_bind(mr, &eq->fid, 0), -FI_EINVAL);
	SAME(fi_mr_bind(mr, &counters[0]->fid, FI_REMOTE_READ), -FI_EINVAL);
	SAME(fi_mr_bind(mr, &counters[0]->fid, FI_REMOTE_WRITE), 0);
	SAME(fi_mr_bind(mr, &counters[1]->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	SAME(fi_control(&mr->fid, 4711, NULL), -FI_ENOSYS);
	SAME(fi_mr_map_raw(domain, 0, (uint8_t *)&key, 4, &key, 0), -FI_EINVAL);
	SAME(key, 7);
	SAME(reach(&sides[0], 0, 7), 0);
	SAME(fi_cntr_read(counters[0]), 1);
	SAME(fi_cntr_read(counters[1]), 0);
	SAME(fi_close(&mr->fid), 0);
	SAME(reach(&sides[0], 0, 7), FI_EKEYREJECTED);
	for (int i = 0; i < 3; i++)
		SAME(fi_close(&counters[i]->fid), 0);
	SAME(fi_close(&eq->fid), 0);
	for (int i = 0; i < 2; i++)
		side_close(&sides[i]);
}

/* The whole address space, as MPI's dynamic windows register it. */
static void everything(int rank)
{
	struct side side;

	side_open(&side, rank, NULL);
	struct fid_mr *mr = reg(&side, NULL, SIZE_MAX, REMOTE_BOTH, 3);
	buffer[0] = 99;
	SAME(reach(&side, (uintptr_t)&memory[77], 3), 0);
	SAME(memory[77], 99);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

/* The two modes that existed before libfabric 1.5. */
static void old_modes(int rank)
{
	static const int modes[] = {FI_MR_BASIC, FI_MR_SCALABLE};

	for (size_t i = 0; i < 2; i++) {
		struct side side;
		side_open(&side, rank, &(struct side_options){.mr_mode = modes[i]});
		struct fid_mr *mr = reg(&side, memory, 10, REMOTE_BOTH, 5);
		if (modes[i] == FI_MR_SCALABLE)
			SAME(fi_mr_key(mr), 5);
		SAME(reach(&side, modes[i] == FI_MR_BASIC ? (uintptr_t)memory : 0, fi_mr_key(mr)), 0);
		SAME(reach(&side, modes[i] == FI_MR_BASIC ? 0 : (uintptr_t)memory, fi_mr_key(mr)), FI_EACCES);
		SAME(fi_close(&mr->fid), 0);
		side_close(&side);
	}
}

/* A key is unique in its domain only. */
static void two_domains(int rank)
{
	struct side sides[2];

	for (int i = 0; i < 2; i++)
		side_open(&sides[i], rank, NULL);
	struct fid_mr *first = reg(&sides[0], memory, 10, REMOTE_BOTH, 5);
	SAME(reach(&sides[1], 0, 5), FI_EKEYREJECTED);
	struct fid_mr *second = reg(&sides[1], memory + 10, 10, REMOTE_BOTH, 5);
	SAME(reach(&sides[1], 0, 5), 0);
	SAME(fi_close(&first->fid), 0);
	SAME(reach(&sides[0], 0, 5), FI_EKEYREJECTED);
	SAME(reach(&sides[1], 0, 5), 0);
	SAME(fi_close(&second->fid), 0);
	for (int i = 0; i < 2; i++)
		side_close(&sides[i]);
}

const struct scenario mr_scenarios[] = {
	{"requested_keys", 1, requested_keys},
	{"chosen_keys", 1, chosen_keys},
	{"bound_to_an_endpoint", 1, bound_to_an_endpoint},
	{"endpoint_goes_first", 1, endpoint_goes_first},
	{"calls", 1, calls},
	{"refused", 1, refused},
	{"everything", 1, everything},
	{"old_modes", 1, old_modes},
	{"two_domains", 1, two_domains},
	{0},
};
