/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_offer.h - letting malloc() use a heap, where libvicinal-heap.so was preloaded. */
#ifndef VICINAL_REGION_HEAP_OFFER_H
#define VICINAL_REGION_HEAP_OFFER_H

#include "region/heap.h"

/* Was it? */
bool heap_is_wanted(void);

/*
 * Large allocations of the program, of at least `threshold` bytes, come from `heap` from now
 * on, as long as it has room. Returns 0, -ENOENT if the library was not preloaded, or another
 * negative errno with a text.
 */
int heap_offer(struct heap *heap, size_t threshold, struct region_error *error);

#endif
