/* SPDX-License-Identifier: BSD-3-Clause */
/* interrupts.h - grants the interrupts of a device to processes, for as long as they are connected. */
#ifndef VICINAL_GUEST_AGENT_INTERRUPTS_H
#define VICINAL_GUEST_AGENT_INTERRUPTS_H

#include "guest/agent/device.h"

/*
 * Serve for ever those that connect to `listener`, a listening Unix socket (SOCK_SEQPACKET) that does not
 * block: each is told what struct doorbell_grant (region/doorbell.h) says, or that there is no interrupt
 * left, by the end of its connection.
 */
void grant_interrupts(const struct device *device, int listener) __attribute__((noreturn));

#endif
