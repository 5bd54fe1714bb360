/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_doorbell.h - a guest's agent as a process, without a real device. The code that grants interrupts is
 * the agent's own. A page of memory stands for the device's registers, and a thread polls it and does what
 * the device would do. Only one agent can exist at a time.
 */
#ifndef VICINAL_TESTS_FAKE_DOORBELL_H
#define VICINAL_TESTS_FAKE_DOORBELL_H

#include "world.h"

#include "region/doorbell.h"

#define FAKE_GUEST 7U
#define FAKE_VECTORS 3U

/* The path of the agent's socket. */
extern char fake_socket[64];

void fake_doorbell_open(void);
void fake_doorbell_close(void);
/* End the agent, and the device with it. */
void fake_doorbell_end(void);

/*
 * While `hold` is set, the device keeps all interrupts back. Interrupts that were kept are sent afterwards.
 */
void fake_doorbell_hold(bool hold);
/* Returns the number of words written into the register so far, and the last word. */
uint32_t fake_doorbell_rings(uint32_t *last);
/* Wait until `rings` words were written. Fails the test if that takes too long. */
void fake_doorbell_await(uint32_t rings);

#endif
