/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vicinal_ext.h - what Vicinal can do beyond libfabric's interface. For programs that know
 * libfabric and include this file; fi_vicinal(7) describes it too.
 *
 *	struct vicinal_heap_ops *heap;
 *
 *	if (fi_open_ops(&domain->fid, VICINAL_HEAP_OPS, 0, (void **)&heap, NULL) == 0)
 *		result = heap->allocate(endpoint, 1 << 20, 64, &address);
 *
 * A heap is a part of the region, so peers reach what lies in it without a copy in between:
 * large messages to and from it, and remote memory access. Any member of the region can
 * read and overwrite what lies there: allocate only what all ranks of the job may see.
 */
#ifndef VICINAL_EXT_H
#define VICINAL_EXT_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <stddef.h>
#include <stdint.h>

#define VICINAL_HEAP_OPS "vicinal_heap"

struct vicinal_heap_ops {
	size_t size; /* of this struct in the provider: fields beyond it are not there */

	/*
	 * At least `bytes` at a multiple of `alignment`, which is a power of two. Blocks are
	 * whole pages of 4096 bytes. They may hold what this process wrote there before, never
	 * what another one did. Returns 0, or
	 * -FI_EINVAL       `alignment` is no power of two, or a pointer is NULL
	 * -FI_EOPBADSTATE  the endpoint is not enabled: it has no place in the region yet
	 * -FI_EOPNOTSUPP   the region was created without heaps
	 * -FI_ENOMEM       there is no room in this endpoint's heap, or this is a forked child
	 */
	int (*allocate)(struct fid_ep *endpoint, size_t bytes, size_t alignment, void **address);

	/*
	 * Release a block. It may be one of an endpoint that was closed: its memory stays, and
	 * its member slot is held, until its last block is released or the process ends.
	 * Returns 0, or -FI_EINVAL if no block begins there.
	 */
	int (*release)(void *address);

	/* Bytes of the endpoint's heap, and of the blocks in it. Errors as of `allocate`. */
	int (*query)(struct fid_ep *endpoint, uint64_t *total, uint64_t *used);
};

#endif
