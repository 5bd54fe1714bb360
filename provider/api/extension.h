/* SPDX-License-Identifier: BSD-3-Clause */
/* extension.h - application memory in an endpoint's section of the region. */
#ifndef VICINAL_API_EXTENSION_H
#define VICINAL_API_EXTENSION_H

#include "api/provider.h"

/* fi_open_ops() of a domain: see vicinal_ext.h. Returns 0, -FI_EINVAL or -FI_ENOSYS. */
int extension_open(const char *name, uint64_t flags, void **operations);

/*
 * Called when an endpoint is enabled. If libvicinal-heap.so is preloaded, large allocations of the program
 * come from the endpoint's heap.
 */
void extension_offer_heap(const struct messenger *messenger);

/*
 * Called when an endpoint is enabled. If libvicinal-mpi.so is preloaded, MPI's collectives go through the
 * heaps of the endpoint's region.
 */
void extension_offer_region(const struct messenger *messenger);

#endif
