/* SPDX-License-Identifier: BSD-3-Clause */
/* wait_set.h - the interface between wait_object.c, wait_set.c and process.c. */
#ifndef VICINAL_API_WAIT_SET_H
#define VICINAL_API_WAIT_SET_H

#include "api/wait.h"

struct wait_set;

/* Returns an eventfd, or -1. */
int wait_descriptor_open(void);
void wait_descriptor_empty(int descriptor);
/* FI_GETWAIT and FI_GETWAITOBJ. */
int wait_describe(enum fi_wait_obj kind, int descriptor, int command, void *argument);

void wait_set_add(struct wait_set *set, struct wait_object *object);
void wait_set_remove(struct wait_set *set, struct wait_object *object);
/* wait_arm() for all objects of a set. */
int wait_set_arm(struct wait_set *set);

/* While locked, no set is changed or armed. */
void wait_sets_lock(void);
void wait_sets_unlock(void);

#endif
