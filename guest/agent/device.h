/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - an ivshmem-doorbell device whose driver is vfio-pci: its interrupts as eventfds. */
#ifndef VICINAL_GUEST_AGENT_DEVICE_H
#define VICINAL_GUEST_AGENT_DEVICE_H

#include <stdint.h>

/* What a device may have, more than anybody needs in one guest. */
#define DEVICE_VECTORS_MAX 256U

struct device {
	int container; /* of one group, with the device alone in it */
	int group;
	int file;         /* vfio's */
	int registers;    /* the kernel's file of BAR 0, for the process that is to ring */
	uint32_t offset;  /* of the BAR in its first page */
	uint32_t vectors; /* interrupts that it has, none of them enabled yet */
	uint32_t guest;   /* the number by which others ring us */
};

/* Where the doorbell register is in BAR 0. */
#define DEVICE_DOORBELL 12U

/*
 * Take the device with this PCI address (0000:00:04.0) and have its interrupts ready. Ends the process with
 * a line on stderr where that cannot be. The device is given back when the process ends.
 */
struct device device_open(const char *address);
/* Have interrupt `vector` count on the eventfd `descriptor` from here on, or on none with -1. 0 or -errno. */
int device_deliver(const struct device *device, uint32_t vector, int descriptor);

/* Ends the process: `what` cannot be. With errno, unless that is 0. */
void give_up(const char *what, const char *subject) __attribute__((noreturn));

#endif
