/* SPDX-License-Identifier: BSD-3-Clause */
/* extension.h - memory of the application in an endpoint's section of the region. */
#ifndef VICINAL_API_EXTENSION_H
#define VICINAL_API_EXTENSION_H

#include "api/provider.h"

/* fi_open_ops() on a domain: see vicinal_ext.h. Returns 0, -FI_EINVAL or -FI_ENOSYS. */
int extension_open(const char *name, uint64_t flags, void **operations);

/* An endpoint was enabled: let the program's large allocations lie in its heap, if it asks for that. */
void extension_offer_heap(const struct messenger *messenger);

#endif
