/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.h - reads, writes and atomics of memory that lies in the region, by the initiator
 * itself: no slot is sent, and the target need not run.
 *
 * The target publishes what is registered and lies in a heap of its own (region/exposure.h).
 * An operation of a peer there is carried out within its call, unless
 *   - the target is to be told of it (FI_REMOTE_CQ_DATA, or a counter of what peers do);
 *   - requests to this peer are under way: it would overtake them;
 *   - it is an atomic that no instruction of the processor does: the target does those under
 *     a lock of its own.
 * Those, and all that is not covered by what the target published, go by remote.h, where
 * errors are found and told.
 */
#ifndef VICINAL_PROTO_DIRECT_H
#define VICINAL_PROTO_DIRECT_H

#include "proto/registration.h"
#include "proto/remote.h"
#include "region/exposure.h"

/*
 * The initiator: do it now. False if it has to be asked for. An error, of a target that went
 * meanwhile, is in the completion.
 */
bool direct_carry_out(struct messenger *messenger, const struct remote_request *request);

/* The target: publish a registration as far as it lies in a heap and may be reached so. */
void direct_expose(struct messenger *messenger, const struct registration *registration);
/* Withdraw it, published or not; all that were if it is NULL. */
void direct_conceal(struct messenger *messenger, const struct registration *registration);

#endif
