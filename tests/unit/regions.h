/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regions.h - endpoints in several regions, and the part of the provider that chooses among regions. Regions
 * are files, and each endpoint maps them for itself. All runs in one process, and the test steps it by hand.
 */
#ifndef VICINAL_TESTS_REGIONS_H
#define VICINAL_TESTS_REGIONS_H

#include "fake_core.h"

#include "api/provider.h"
#include "shared_name.h"

#define REGIONS 3U
#define MEMBERS 5U
#define SECTION_BYTES (512U * 1024U)
#define LONG 300000U /* longer than a message that needs no answer */

/* The indices of the endpoints in the functions below. */
enum { A, B, C };

extern char said[300]; /* what resolve.c reports to the user */
extern char files[REGIONS][SHARED_NAME_BYTES];
extern uint64_t heap_bytes; /* of each section, beside SECTION_BYTES */
extern unsigned char in[LONG];
extern unsigned char out[LONG];
extern struct fake_world world;
extern struct domain domains[FAKE_ENDS];

/* Each list has the digits of an endpoint's regions, the first region first: "21". */
void open_endpoints(const char *of_a, const char *of_b, const char *of_c);
/* Open the last endpoint later, if its list above was empty. */
void open_endpoint(uint8_t index, const char *list);
void close_endpoints(void);

struct transport *transport_of(int index);
struct member *member_in(int index, char region);
struct section_header *section_of(int index, char region);
struct address address_of(int index);
/* `whom` as `at` knows it by its address, as in an address vector. */
struct msg_peer *meet(int at, int whom);
/* The region through which `at` reaches `whom`, or '0' for the network. */
char region_between(int at, int whom);
/* Check that both reach each other over the network, or both through a region. */
void assert_routes(int one, int other, bool by_network);

/* `who` claims in `region` to be `whom`. */
void forge(int who, int whom, char region);
/* Truncate the region's file, as any process that may write the file can at any time. */
void cut_file(char region);

void talk(int from, int to, size_t length, uint64_t seed);
/* Send messages of every protocol in both directions. */
void talk_of_all(int one, int other);
/* Make progress until no peer switches or waits to switch. */
void settle_switches(void);

#endif
