/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_doorbell.h - a guest's agent, a process, with a device that is none: granting is the agent's own code,
 * and instead of the device there is a page of memory, which a thread looks at to do what the device would.
 * There is one at a time.
 */
#ifndef VICINAL_TESTS_FAKE_DOORBELL_H
#define VICINAL_TESTS_FAKE_DOORBELL_H

#include "world.h"

#include "region/doorbell.h"

#define FAKE_GUEST 7U
#define FAKE_VECTORS 3U

/* The agent's socket. */
extern char fake_socket[64];

void fake_doorbell_open(void);
void fake_doorbell_close(void);
/* The agent ends, and the device with it. */
void fake_doorbell_end(void);

/* Nobody's interrupts come, until it is undone: they are kept. */
void fake_doorbell_hold(bool hold);
/* How many words were written into the register, and the last. */
uint32_t fake_doorbell_rings(uint32_t *last);
/* Wait until there were so many: fails the test if that takes too long. */
void fake_doorbell_await(uint32_t rings);

#endif
