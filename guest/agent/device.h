/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - an ivshmem-doorbell device with the driver vfio-pci: its interrupts as eventfds. */
#ifndef VICINAL_GUEST_AGENT_DEVICE_H
#define VICINAL_GUEST_AGENT_DEVICE_H

#include <stdint.h>

/* The maximum number of vectors of a device, more than one guest needs. */
#define DEVICE_VECTORS_MAX 256U

struct device {
	int container; /* the VFIO container, with only this device's group */
	int group;
	int file;         /* the VFIO device */
	int registers;    /* the kernel's file of BAR 0, for processes that ring */
	uint32_t offset;  /* of the BAR in its first page */
	uint32_t vectors; /* interrupts of the device, not yet enabled */
	uint32_t guest;   /* the number by which other guests ring this guest */
};

/* Offset of the doorbell register in BAR 0. */
#define DEVICE_DOORBELL 12U

/*
 * Open the device with this PCI address (0000:00:04.0) and prepare its interrupts. If that fails,
 * ends the process with a line on stderr. The device is released at the end of the process.
 */
struct device device_open(const char *address);
/*
 * Count interrupt `vector` on the eventfd `descriptor` from now on, or on none if it is -1. Returns
 * 0 or -errno.
 */
int device_deliver(const struct device *device, uint32_t vector, int descriptor);

/* End the process: `what` failed for `subject`. Prints errno unless it is 0. */
void give_up(const char *what, const char *subject) __attribute__((noreturn));

#endif
