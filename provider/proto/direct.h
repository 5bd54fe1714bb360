/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.h - reads, writes and atomics of memory in the region by the initiator itself: no slot is sent, and
 * the target need not run.
 *
 * The target publishes registered memory that lies in its own heap (region/exposure.h). A peer's operation
 * there executes within its call, unless
 * - the target must notice it (FI_REMOTE_CQ_DATA, or a counter of peers' accesses);
 * - requests to this peer are in progress, which it would overtake;
 * - it is an atomic that no processor instruction executes: the target executes those under a lock.
 *
 * Such operations, and operations on memory that is not published, are requests (remote.h), which also find
 * and report errors.
 */
#ifndef VICINAL_PROTO_DIRECT_H
#define VICINAL_PROTO_DIRECT_H

#include "proto/registration.h"
#include "proto/remote.h"
#include "region/exposure.h"

/*
 * The initiator executes the operation now. Returns false if it must be a request. The completion reports a
 * target that left meanwhile.
 */
bool direct_carry_out(struct messenger *messenger, const struct remote_request *request);

/* The target publishes the part of a registration that lies in a heap and that peers may access directly. */
void direct_expose(struct messenger *messenger, const struct registration *registration);
/* Withdraws a registration, published or not; NULL withdraws all published ones. */
void direct_conceal(struct messenger *messenger, const struct registration *registration);

#endif
