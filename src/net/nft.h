/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of nf_tables inside the network namespace: they send every TCP connection and every DNS datagram to
 * pVisor's sockets, and refuse in connect(2) what address and port alone decide. pVisor asks the policy again for all
 * that arrives: these rules are for a prompt, honest errno, the redirection is what cannot be passed by.
 *
 * They are given to the kernel directly (nfmsg.h), not by nft(8), which takes longer to start than all the rest of the
 * network. `nft list ruleset` in the namespace shows them.
 */
#ifndef PV_NET_NFT_H
#define PV_NET_NFT_H

#include "net/netns.h"
#include "policy/netpolicy.h"

/*
 * The table of a run, in the namespace that nl was opened in (pv_nfmsg_open()). What it refuses is told to
 * PV_NFLOG_GROUP when the sockets have a log. PV_ERR_UNSUPPORTED when the kernel refuses; then nothing is in force.
 */
int pv_nft_load(int nl, const struct pv_netpolicy *policy, const struct pv_netns_sockets *sockets, struct pv_err *err);

/* Further rules that the person grants, behind the denials and before the layers. */
int pv_nft_grant(int nl, const struct pv_netrule *rules, size_t n, struct pv_err *err);

#endif
