/* SPDX-License-Identifier: BSD-3-Clause */
/* interrupts.h - grants the interrupts of a device to processes while they are connected. */
#ifndef VICINAL_GUEST_AGENT_INTERRUPTS_H
#define VICINAL_GUEST_AGENT_INTERRUPTS_H

#include "guest/agent/device.h"

/*
 * Serve connections to `listener` for ever. `listener` is a listening non-blocking Unix socket
 * (SOCK_SEQPACKET). Each client gets a struct doorbell_grant (region/doorbell.h). If no interrupt
 * is left, its connection is closed.
 */
void grant_interrupts(const struct device *device, int listener) __attribute__((noreturn));

#endif
