/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_list.h - what heap.c and heap_blocks.c share: the list of this process's heaps. */
#ifndef VICINAL_REGION_HEAP_LIST_H
#define VICINAL_REGION_HEAP_LIST_H

#include "region/heap.h"

/* Under the lock of heap.c. */
extern struct heap *heaps;
void heap_unlink(struct heap *heap);

/* Without the lock, after heap_unlink(). */
void heap_dispose(struct heap *heap);

/* Does the slot, and with it the heap, still belong to this heap's member? */
bool heap_is_ours(const struct heap *heap);

/* Give all pages back. Call before the member leaves: afterwards the pages are a successor's. */
void heap_give_all_back(const struct heap *heap);

#endif
