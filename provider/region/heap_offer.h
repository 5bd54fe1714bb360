/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_offer.h - malloc() uses a heap if libvicinal-heap.so was preloaded. */
#ifndef VICINAL_REGION_HEAP_OFFER_H
#define VICINAL_REGION_HEAP_OFFER_H

#include "region/heap.h"

/* Was the library preloaded? */
bool heap_is_wanted(void);

/*
 * From now on, allocations of the program of at least `threshold` bytes come from `heap`, while it
 * has room. Returns 0, -ENOENT if the library was not preloaded, or another negative errno with a
 * text.
 */
int heap_offer(struct heap *heap, size_t threshold, struct region_error *error);

#endif
