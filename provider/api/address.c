/* SPDX-License-Identifier: BSD-3-Clause */
/* address.c - addresses as text, for users and for fi_getinfo(). */
#include "api/provider.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* vicinal://REGION/SLOT/EPOCH/NONCE, and for an endpoint that the network reaches +CORE and flags/NAME. */
#define TEXT_FORMAT TEXT_PREFIX "%016" PRIx64 "%016" PRIx64 "/%u/%u/%016" PRIx64
#define TEXT_PREFIX "vicinal://"

int address_to_text(const struct address *address, char *text, size_t length)
{
	char network[10 + 2 * CORE_NAME_MAX] = "";
	uint8_t bytes = address->core_length < CORE_NAME_MAX ? address->core_length : CORE_NAME_MAX;

	if (bytes > 0)
		(void)snprintf(network, sizeof(network), "+%04x%02x/", (unsigned)address->core,
			       (unsigned)address->core_flags);
	for (uint8_t i = 0; i < bytes; i++)
		(void)snprintf(network + 8 + 2 * (size_t)i, 3, "%02x", (unsigned)address->core_name[i]);
	return snprintf(text, length, TEXT_FORMAT "%s", address->region[0], address->region[1],
			(unsigned)address->slot, address->epoch, address->nonce, network);
}

/*
 * Reads a number of at most `digits` digits that `end` follows, and moves `text` past both. strtoull() would
 * also accept signs, spaces and 0x.
 */
static bool read_number(const char **text, int base, size_t digits, char end, uint64_t *value)
{
	const char *allowed = base == 16 ? "0123456789abcdef" : "0123456789";
	size_t length = strspn(*text, allowed);
	char copy[24] = "";

	if (length == 0 || length > digits || (*text)[length] != end)
		return false;
	memcpy(copy, *text, length);
	*value = strtoull(copy, NULL, base);
	*text += length + (end != '\0');
	return true;
}

/* The text after the +. */
static bool read_network(const char *text, struct address *address)
{
	uint64_t core = 0;

	if (!read_number(&text, 16, 6, '/', &core))
		return false;
	size_t digits = strlen(text);
	if (digits == 0 || digits % 2 != 0 || digits > 2 * (size_t)CORE_NAME_MAX)
		return false;
	address->core = (uint16_t)(core >> 8);
	address->core_flags = (uint8_t)core;
	address->core_length = (uint8_t)(digits / 2);
	for (size_t i = 0; i < digits / 2; i++) {
		const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
		const char *at = pair;
		uint64_t byte = 0;
		if (!read_number(&at, 16, 2, '\0', &byte))
			return false;
		address->core_name[i] = (uint8_t)byte;
	}
	return true;
}

bool address_from_text(const char *text, struct address *address)
{
	uint64_t slot = 0;
	uint64_t epoch = 0;
	char first_half[17] = "";

	*address = (struct address){.version = ADDRESS_FORMAT_VERSION};
	if (strncmp(text, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
		return false;
	text += strlen(TEXT_PREFIX);
	/* The two halves of the region's id have no separator. */
	if (strnlen(text, 32) < 32)
		return false;
	memcpy(first_half, text, 16);
	const char *half = first_half;
	text += 16;
	char end = strchr(text, '+') != NULL ? '+' : '\0';
	if (!read_number(&half, 16, 16, '\0', &address->region[0]) ||
	    !read_number(&text, 16, 16, '/', &address->region[1]) || !read_number(&text, 10, 4, '/', &slot) ||
	    !read_number(&text, 10, 10, '/', &epoch) || !read_number(&text, 16, 16, end, &address->nonce) ||
	    slot >= REGION_MEMBERS_MAX || epoch > UINT32_MAX)
		return false;
	address->slot = (uint16_t)slot;
	address->epoch = (uint32_t)epoch;
	return end == '\0' || read_network(text, address);
}
