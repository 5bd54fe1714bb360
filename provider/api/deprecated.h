/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deprecated.h - names that libfabric has deprecated since 2.1.
 *
 * Applications that were compiled for an earlier version still ask for them, so a provider must know
 * them. Each use of libfabric's own macro prints a warning that no option turns off. The values are
 * part of libfabric's ABI, so they never change.
 */
#ifndef VICINAL_DEPRECATED_H
#define VICINAL_DEPRECATED_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#if FI_MAJOR_VERSION >= 2
#undef FI_MR_UNSPEC
#undef FI_MR_BASIC
#undef FI_MR_SCALABLE
#undef FI_ORDER_NONE
#undef FI_ORDER_STRICT
#undef FI_ORDER_DATA
#undef FI_REG_MR
#define FI_MR_UNSPEC 0
#define FI_MR_BASIC (1 << 0)
#define FI_MR_SCALABLE (1 << 1)
#define FI_ORDER_NONE 0ULL
#define FI_ORDER_STRICT 0x1FFULL
#define FI_ORDER_DATA (1ULL << 16)
#define FI_REG_MR (1ULL << 59)
#endif

#endif
