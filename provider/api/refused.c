/* SPDX-License-Identifier: BSD-3-Clause */
/* refused.c - see refused.h. */
#include "api/refused.h"

#include <rdma/fi_errno.h>

/* The functions ignore all their parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define DEFINE_REFUSED(type, name, ...) \
	type name(__VA_ARGS__) \
	{ \
		return -FI_ENOSYS; \
	}

REFUSED_CALLS(DEFINE_REFUSED)

struct fi_ops_collective refused_collectives = {
	.size = sizeof(struct fi_ops_collective),
	.barrier = refuse_barrier,
	.broadcast = refuse_broadcast,
	.alltoall = refuse_exchange,
	.allreduce = refuse_reduction,
	.allgather = refuse_exchange,
	.reduce_scatter = refuse_reduction,
	.reduce = refuse_reduction_rooted,
	.scatter = refuse_exchange_rooted,
	.gather = refuse_exchange_rooted,
	.msg = refuse_collective_message,
	.barrier2 = refuse_barrier2,
};
