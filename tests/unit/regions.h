/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regions.h - endpoints in several regions, which are files that each of them maps for itself, and the part
 * of the provider that chooses among regions. All in one process, and stepped by hand.
 */
#ifndef VICINAL_TESTS_REGIONS_H
#define VICINAL_TESTS_REGIONS_H

#include "fake_core.h"

#include "api/provider.h"

#define REGIONS 3U
#define MEMBERS 5U
#define SECTION_BYTES (512U * 1024U)
#define LONG 300000U /* more than goes without an answer */

/* The endpoints, by their places in what follows. */
enum { A, B, C };

extern char said[300]; /* what resolve.c says to the user */
extern char files[REGIONS][40];
extern uint64_t heap_bytes; /* of each section beside SECTION_BYTES */
extern unsigned char in[LONG];
extern unsigned char out[LONG];
extern struct fake_world world;
extern struct domain domains[FAKE_ENDS];

/* The regions of each are listed by their digits, the first first: "21". */
void open_endpoints(const char *of_a, const char *of_b, const char *of_c);
/* The last of them later, if it has no regions there. */
void open_endpoint(uint8_t index, const char *list);
void close_endpoints(void);

struct transport *transport_of(int index);
struct member *member_in(int index, char region);
struct section_header *section_of(int index, char region);
struct address address_of(int index);
/* `whom` as `at` knows it by its address, as an address vector has it. */
struct msg_peer *meet(int at, int whom);
/* By which region they reach each other, as `at` has it; '0': over the network. */
char region_between(int at, int whom);
/* Both reach each other so. */
void assert_routes(int one, int other, bool by_network);

/* `who` says in `region` that it is `whom`. */
void forge(int who, int whom, char region);
/* As any process that may write the file can do at any time. */
void cut_file(char region);

void talk(int from, int to, size_t length, uint64_t seed);
/* By every protocol, both ways. */
void talk_of_all(int one, int other);
/* Until nobody moves to another way, or waits to. */
void settle_switches(void);

#endif
