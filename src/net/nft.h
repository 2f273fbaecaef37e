/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of nftables(8) inside the network namespace: they send every TCP connection and every DNS datagram to
 * pVisor's sockets, and refuse in connect(2) what address and port alone decide. pVisor asks the policy again for all
 * that arrives: these rules are for a prompt, honest errno, the redirection is what cannot be passed by.
 */
#ifndef PV_NET_NFT_H
#define PV_NET_NFT_H

#include "net/netns.h"
#include "policy/netpolicy.h"

/* Appends the ruleset as text for `nft -f -`. What it refuses is told to PV_NFLOG_GROUP when the sockets have a log. */
void pv_nft_write_rules(struct pv_str *out, const struct pv_netpolicy *policy, const struct pv_netns_sockets *sockets);

/*
 * Loads a ruleset into the caller's network namespace by running nft. PV_ERR_UNSUPPORTED when there is no nft or the
 * kernel refuses; the message carries nft's first line. Forks: call it single-threaded, before anything hostile runs.
 */
int pv_nft_load(const char *rules, size_t len, struct pv_err *err);

#endif
