/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table "pvisor" of the inet family. Every connection that is not the sandbox's own loopback goes this way:
 *
 *   decide (filter, output, -150: before the destination is rewritten)
 *           -> denied: refuse what a deny rule of any layer holds
 *           -> granted: accept what the person granted while it runs
 *           -> layer0, layer1, ...: refuse what a layer's allow list does not hold
 *   hand_over (nat, output, -100): redirect to pVisor's sockets
 *
 * Names are not known to the kernel: towards the synthetic addresses only ports are asked here, and the name when the
 * connection arrives.
 */
#include "net/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include "net/names.h"
#include "net/nflog.h"
#include "net/nfmsg.h"

#define TABLE "pvisor"

#define PRIORITY_DECIDE    (-150)
#define PRIORITY_HAND_OVER (-100)

/* enum ip_conntrack_info of the kernel as nft_ct shows it: NF_CT_STATE_BIT(IP_CT_ESTABLISHED), ...(IP_CT_RELATED) */
#define CT_ESTABLISHED 2u
#define CT_RELATED     4u

/* A packet's destination address: offset and size in either header. */
enum { V4_DESTINATION = 16, V4_SIZE = 4, V6_DESTINATION = 24, V6_SIZE = 16 };
enum { PORT_DESTINATION = 2, PORT_SIZE = 2 };

static const struct pv_netaddr loopback4 = { { [10] = 0xff, [11] = 0xff, [12] = 127 } };
static const struct pv_netaddr loopback6 = { { [15] = 1 } };

/* ---- expressions: each a step of a rule, by way of register 1 ---- */

struct expression {
        size_t element, data;
};

static struct expression begin_expression(struct pv_nfmsg *m, const char *name)
{
        struct expression e = { .element = pv_nfmsg_open_nest(m, NFTA_LIST_ELEM) };
        pv_nfmsg_put_text(m, NFTA_EXPR_NAME, name);
        e.data = pv_nfmsg_open_nest(m, NFTA_EXPR_DATA);
        return e;
}

static void end_expression(struct pv_nfmsg *m, struct expression e)
{
        pv_nfmsg_close_nest(m, e.data);
        pv_nfmsg_close_nest(m, e.element);
}

static void put_value(struct pv_nfmsg *m, uint16_t type, const void *value, size_t n)
{
        size_t nest = pv_nfmsg_open_nest(m, type);
        pv_nfmsg_put(m, NFTA_DATA_VALUE, value, n);
        pv_nfmsg_close_nest(m, nest);
}

static void compare(struct pv_nfmsg *m, enum nft_cmp_ops op, const void *value, size_t n)
{
        struct expression e = begin_expression(m, "cmp");
        pv_nfmsg_put_u32(m, NFTA_CMP_SREG, NFT_REG_1);
        pv_nfmsg_put_u32(m, NFTA_CMP_OP, op);
        put_value(m, NFTA_CMP_DATA, value, n);
        end_expression(m, e);
}

static void load_meta(struct pv_nfmsg *m, enum nft_meta_keys key)
{
        struct expression e = begin_expression(m, "meta");
        pv_nfmsg_put_u32(m, NFTA_META_KEY, key);
        pv_nfmsg_put_u32(m, NFTA_META_DREG, NFT_REG_1);
        end_expression(m, e);
}

static void load_payload(struct pv_nfmsg *m, enum nft_payload_bases base, uint32_t offset, uint32_t n)
{
        struct expression e = begin_expression(m, "payload");
        pv_nfmsg_put_u32(m, NFTA_PAYLOAD_DREG, NFT_REG_1);
        pv_nfmsg_put_u32(m, NFTA_PAYLOAD_BASE, base);
        pv_nfmsg_put_u32(m, NFTA_PAYLOAD_OFFSET, offset);
        pv_nfmsg_put_u32(m, NFTA_PAYLOAD_LEN, n);
        end_expression(m, e);
}

static void mask(struct pv_nfmsg *m, const void *bits, size_t n)
{
        static const uint8_t zeros[V6_SIZE] = { 0 };
        struct expression e = begin_expression(m, "bitwise");
        pv_nfmsg_put_u32(m, NFTA_BITWISE_SREG, NFT_REG_1);
        pv_nfmsg_put_u32(m, NFTA_BITWISE_DREG, NFT_REG_1);
        pv_nfmsg_put_u32(m, NFTA_BITWISE_LEN, (uint32_t)n);
        put_value(m, NFTA_BITWISE_MASK, bits, n);
        put_value(m, NFTA_BITWISE_XOR, zeros, n);
        end_expression(m, e);
}

static void verdict(struct pv_nfmsg *m, int code, const char *chain)
{
        struct expression e = begin_expression(m, "immediate");
        pv_nfmsg_put_u32(m, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
        size_t data = pv_nfmsg_open_nest(m, NFTA_IMMEDIATE_DATA);
        size_t nest = pv_nfmsg_open_nest(m, NFTA_DATA_VERDICT);
        pv_nfmsg_put_u32(m, NFTA_VERDICT_CODE, (uint32_t)code);
        if (chain)
                pv_nfmsg_put_text(m, NFTA_VERDICT_CHAIN, chain);
        pv_nfmsg_close_nest(m, nest);
        pv_nfmsg_close_nest(m, data);
        end_expression(m, e);
}

static void match_protocol(struct pv_nfmsg *m, uint8_t protocol)
{
        load_meta(m, NFT_META_L4PROTO);
        compare(m, NFT_CMP_EQ, &protocol, sizeof protocol);
}

/* The protocol must have been matched. */
static void match_ports(struct pv_nfmsg *m, uint16_t first, uint16_t last)
{
        const uint16_t from = htons(first), to = htons(last);
        if (first == 1 && last == 65535)
                return;
        load_payload(m, NFT_PAYLOAD_TRANSPORT_HEADER, PORT_DESTINATION, PORT_SIZE);
        if (first == last) {
                compare(m, NFT_CMP_EQ, &from, sizeof from);
                return;
        }
        struct expression e = begin_expression(m, "range");
        pv_nfmsg_put_u32(m, NFTA_RANGE_SREG, NFT_REG_1);
        pv_nfmsg_put_u32(m, NFTA_RANGE_OP, NFT_RANGE_EQ);
        put_value(m, NFTA_RANGE_FROM_DATA, &from, sizeof from);
        put_value(m, NFTA_RANGE_TO_DATA, &to, sizeof to);
        end_expression(m, e);
}

/* prefix counts in the IPv6 form; ::/0 and shorter than /96 hold IPv4 in no packet. */
static void match_prefix(struct pv_nfmsg *m, const struct pv_netaddr *net, unsigned prefix)
{
        bool v4 = pv_netaddr_is_v4(net) && prefix >= 96;
        uint8_t family = v4 ? NFPROTO_IPV4 : NFPROTO_IPV6, bits[V6_SIZE] = { 0 };
        size_t n = v4 ? V4_SIZE : V6_SIZE, skip = V6_SIZE - n;
        load_meta(m, NFT_META_NFPROTO);
        compare(m, NFT_CMP_EQ, &family, sizeof family);
        if (prefix == 8 * skip)
                return;
        load_payload(m, NFT_PAYLOAD_NETWORK_HEADER, v4 ? V4_DESTINATION : V6_DESTINATION, (uint32_t)n);
        for (unsigned i = 0; i < prefix; i++)
                bits[i / 8] |= (uint8_t)(0x80 >> i % 8);
        if (prefix < 8 * V6_SIZE)
                mask(m, bits + skip, n);
        compare(m, NFT_CMP_EQ, net->b + skip, n);
}

static void match_established(struct pv_nfmsg *m)
{
        const uint32_t states = CT_ESTABLISHED | CT_RELATED, none = 0; /* as the machine has them, not big endian */
        struct expression e = begin_expression(m, "ct");
        pv_nfmsg_put_u32(m, NFTA_CT_KEY, NFT_CT_STATE);
        pv_nfmsg_put_u32(m, NFTA_CT_DREG, NFT_REG_1);
        end_expression(m, e);
        mask(m, &states, sizeof states);
        compare(m, NFT_CMP_NEQ, &none, sizeof none);
}

static void redirect(struct pv_nfmsg *m, uint16_t port)
{
        const uint16_t big = htons(port);
        struct expression e = begin_expression(m, "immediate");
        pv_nfmsg_put_u32(m, NFTA_IMMEDIATE_DREG, NFT_REG_1);
        put_value(m, NFTA_IMMEDIATE_DATA, &big, sizeof big);
        end_expression(m, e);
        e = begin_expression(m, "redir");
        pv_nfmsg_put_u32(m, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
        end_expression(m, e);
}

static void reject(struct pv_nfmsg *m, enum nft_reject_types type, uint8_t code)
{
        struct expression e = begin_expression(m, "reject");
        pv_nfmsg_put_u32(m, NFTA_REJECT_TYPE, type);
        pv_nfmsg_put(m, NFTA_REJECT_ICMP_CODE, &code, sizeof code);
        end_expression(m, e);
}

static void put_u64(struct pv_nfmsg *m, uint16_t type, uint64_t value)
{
        uint32_t big[2] = { htonl((uint32_t)(value >> 32)), htonl((uint32_t)value) };
        pv_nfmsg_put(m, type, big, sizeof big);
}

static void limit_rate(struct pv_nfmsg *m)
{
        struct expression e = begin_expression(m, "limit");
        put_u64(m, NFTA_LIMIT_RATE, PV_NFLOG_PER_SEC);
        put_u64(m, NFTA_LIMIT_UNIT, 1);
        pv_nfmsg_put_u32(m, NFTA_LIMIT_BURST, PV_NFLOG_BURST);
        pv_nfmsg_put_u32(m, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
        end_expression(m, e);
}

static void log_packet(struct pv_nfmsg *m)
{
        const uint16_t group = htons(PV_NFLOG_GROUP);
        struct expression e = begin_expression(m, "log");
        pv_nfmsg_put(m, NFTA_LOG_GROUP, &group, sizeof group);
        pv_nfmsg_put_u32(m, NFTA_LOG_SNAPLEN, PV_NFLOG_SNAPSHOT);
        end_expression(m, e);
}

/* ---- rules and chains ---- */

static size_t begin_rule(struct pv_nfmsg *m, const char *chain)
{
        pv_nfmsg_begin(m, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
        pv_nfmsg_put_text(m, NFTA_RULE_TABLE, TABLE);
        pv_nfmsg_put_text(m, NFTA_RULE_CHAIN, chain);
        return pv_nfmsg_open_nest(m, NFTA_RULE_EXPRESSIONS);
}

static void end_rule(struct pv_nfmsg *m, size_t expressions)
{
        pv_nfmsg_close_nest(m, expressions);
        pv_nfmsg_end(m);
}

static void put_table(struct pv_nfmsg *m)
{
        pv_nfmsg_begin(m, NFT_MSG_NEWTABLE, NLM_F_CREATE);
        pv_nfmsg_put_text(m, NFTA_TABLE_NAME, TABLE);
        pv_nfmsg_end(m);
}

static void put_chain(struct pv_nfmsg *m, const char *name)
{
        pv_nfmsg_begin(m, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
        pv_nfmsg_put_text(m, NFTA_CHAIN_TABLE, TABLE);
        pv_nfmsg_put_text(m, NFTA_CHAIN_NAME, name);
        pv_nfmsg_end(m);
}

static void put_output_chain(struct pv_nfmsg *m, const char *name, const char *type, int priority)
{
        pv_nfmsg_begin(m, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
        pv_nfmsg_put_text(m, NFTA_CHAIN_TABLE, TABLE);
        pv_nfmsg_put_text(m, NFTA_CHAIN_NAME, name);
        size_t hook = pv_nfmsg_open_nest(m, NFTA_CHAIN_HOOK);
        pv_nfmsg_put_u32(m, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
        pv_nfmsg_put_u32(m, NFTA_HOOK_PRIORITY, (uint32_t)priority);
        pv_nfmsg_close_nest(m, hook);
        pv_nfmsg_put_u32(m, NFTA_CHAIN_POLICY, NF_ACCEPT);
        pv_nfmsg_put_text(m, NFTA_CHAIN_TYPE, type);
        pv_nfmsg_end(m);
}

/* A rule with a verdict alone. */
static void put_always(struct pv_nfmsg *m, const char *chain, int code, const char *to)
{
        size_t r = begin_rule(m, chain);
        verdict(m, code, to);
        end_rule(m, r);
}

static void put_refuse_chain(struct pv_nfmsg *m, bool logged)
{
        size_t r;
        if (logged) {
                r = begin_rule(m, "refuse");
                limit_rate(m);
                log_packet(m);
                end_rule(m, r);
        }
        r = begin_rule(m, "refuse");
        match_protocol(m, IPPROTO_TCP);
        reject(m, NFT_REJECT_TCP_RST, 0);
        end_rule(m, r);
        r = begin_rule(m, "refuse");
        reject(m, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
        end_rule(m, r);
}

static void put_port_rule(struct pv_nfmsg *m, const char *chain, uint8_t protocol, uint16_t port)
{
        size_t r = begin_rule(m, chain);
        match_protocol(m, protocol);
        match_ports(m, port, port);
        verdict(m, NFT_GOTO, "refuse");
        end_rule(m, r);
}

/* Nothing but redirection leads to pVisor's own ports; the other services of the sandbox are its own affair. */
static void put_own_chain(struct pv_nfmsg *m, const struct pv_netns_sockets *s)
{
        put_port_rule(m, "own", IPPROTO_TCP, s->port[PV_NETNS_TCP4]);
        put_port_rule(m, "own", IPPROTO_TCP, s->port[PV_NETNS_DNS_TCP4]);
        put_port_rule(m, "own", IPPROTO_UDP, s->port[PV_NETNS_DNS_UDP4]);
}

static void put_prefix_rule(struct pv_nfmsg *m, const char *chain, const struct pv_netaddr *net, unsigned prefix,
                            int code, const char *to)
{
        size_t r = begin_rule(m, chain);
        match_prefix(m, net, prefix);
        verdict(m, code, to);
        end_rule(m, r);
}

/* The sandbox's own addresses, which are not pVisor's to judge. */
static void put_own_addresses(struct pv_nfmsg *m, const char *chain, int code, const char *to)
{
        struct pv_netaddr own;
        put_prefix_rule(m, chain, &loopback4, 96 + 8, code, to);
        put_prefix_rule(m, chain, &loopback6, 128, code, to);
        if (pv_netaddr_parse(PV_NETNS_V4, &own))
                put_prefix_rule(m, chain, &own, 128, code, to);
        if (pv_netaddr_parse(PV_NETNS_V6, &own))
                put_prefix_rule(m, chain, &own, 128, code, to);
}

/* Destination and ports of a connection, then the verdict. */
static void put_target(struct pv_nfmsg *m, const char *chain, const struct pv_netaddr *net, unsigned prefix,
                       const struct pv_netrule *ports, int code, const char *to)
{
        size_t r = begin_rule(m, chain);
        if (net)
                match_prefix(m, net, prefix);
        match_protocol(m, IPPROTO_TCP);
        match_ports(m, ports->port_first, ports->port_last);
        verdict(m, code, to);
        end_rule(m, r);
}

static bool same_ports(const struct pv_netrule *a, const struct pv_netrule *b)
{
        return a->port_first == b->port_first && a->port_last == b->port_last;
}

static bool is_name(const struct pv_netrule *r)
{
        return r->kind == PV_NETRULE_HOST || r->kind == PV_NETRULE_SUFFIX;
}

/* Rules by name at the same ports are one rule to the kernel. */
static bool is_first_with_its_ports(const struct pv_netrule *rules, size_t i)
{
        for (size_t k = 0; k < i; k++)
                if (is_name(&rules[k]) && pv_netrule_is_for(&rules[k], PV_TRANSPORT_TCP) &&
                    same_ports(&rules[k], &rules[i]))
                        return false;
        return true;
}

static int put_allow(struct pv_nfmsg *m, const char *chain, const struct pv_netrule *rules, size_t n, int code,
                     struct pv_err *err)
{
        struct pv_netaddr v4, v6;
        if (!pv_netaddr_parse(PV_NAMES_V4, &v4) || !pv_netaddr_parse(PV_NAMES_V6, &v6))
                return pv_err_set(err, PV_ERR_SYS, EINVAL, "nftables: synthetic addresses");
        for (size_t i = 0; i < n; i++) {
                const struct pv_netrule *r = &rules[i];
                if (!pv_netrule_is_for(r, PV_TRANSPORT_TCP))
                        continue;
                if (r->kind == PV_NETRULE_PREFIX) {
                        put_target(m, chain, &r->addr, r->prefix, r, code, NULL);
                } else if (r->kind == PV_NETRULE_ANY) {
                        put_target(m, chain, NULL, 0, r, code, NULL);
                } else if (is_first_with_its_ports(rules, i)) {
                        put_target(m, chain, &v4, 96 + PV_NAMES_V4_BITS, r, code, NULL);
                        put_target(m, chain, &v6, PV_NAMES_V6_BITS, r, code, NULL);
                }
                if (pv_nfmsg_commit_when_long(m, err) < 0)
                        return -1;
        }
        return 0;
}

static int put_denied(struct pv_nfmsg *m, const struct pv_netpolicy *p, struct pv_err *err)
{
        for (size_t i = 0; i < p->n_layers; i++)
                for (size_t k = 0; k < p->layer[i].n_deny; k++) {
                        const struct pv_netrule *r = &p->layer[i].deny[k];
                        if (is_name(r) || !pv_netrule_is_for(r, PV_TRANSPORT_TCP))
                                continue;
                        put_target(m, "denied", r->kind == PV_NETRULE_PREFIX ? &r->addr : NULL, r->prefix, r, NFT_GOTO,
                                   "refuse");
                        if (pv_nfmsg_commit_when_long(m, err) < 0)
                                return -1;
                }
        return 0;
}

static void layer_name(char out[16], size_t i)
{
        (void)snprintf(out, 16, "layer%zu", i);
}

static void put_accept_dns(struct pv_nfmsg *m, uint8_t protocol)
{
        size_t r = begin_rule(m, "decide");
        match_protocol(m, protocol);
        match_ports(m, 53, 53);
        verdict(m, NF_ACCEPT, NULL);
        end_rule(m, r);
}

static void put_decide(struct pv_nfmsg *m, const struct pv_netpolicy *p)
{
        const uint8_t tcp = IPPROTO_TCP;
        char name[16];
        put_accept_dns(m, IPPROTO_UDP);
        put_accept_dns(m, IPPROTO_TCP);
        size_t r = begin_rule(m, "decide");
        match_established(m);
        verdict(m, NF_ACCEPT, NULL);
        end_rule(m, r);
        put_own_addresses(m, "decide", NFT_GOTO, "own");
        r = begin_rule(m, "decide");
        load_meta(m, NFT_META_L4PROTO);
        compare(m, NFT_CMP_NEQ, &tcp, sizeof tcp);
        verdict(m, NFT_GOTO, "refuse");
        end_rule(m, r);
        put_always(m, "decide", NFT_JUMP, "denied");
        put_always(m, "decide", NFT_JUMP, "granted");
        for (size_t i = 0; i < p->n_layers; i++) {
                if (!pv_netlayer_is_list(&p->layer[i]))
                        continue;
                layer_name(name, i);
                put_always(m, "decide", NFT_JUMP, name);
        }
}

static void put_redirect(struct pv_nfmsg *m, uint8_t protocol, uint16_t port, uint16_t to)
{
        size_t r = begin_rule(m, "hand_over");
        match_protocol(m, protocol);
        if (port)
                match_ports(m, port, port);
        redirect(m, to);
        end_rule(m, r);
}

static void put_hand_over(struct pv_nfmsg *m, const struct pv_netns_sockets *s)
{
        put_redirect(m, IPPROTO_UDP, 53, s->port[PV_NETNS_DNS_UDP4]);
        put_redirect(m, IPPROTO_TCP, 53, s->port[PV_NETNS_DNS_TCP4]);
        put_own_addresses(m, "hand_over", NF_ACCEPT, NULL);
        put_redirect(m, IPPROTO_TCP, 0, s->port[PV_NETNS_TCP4]);
}

static int put_layers(struct pv_nfmsg *m, const struct pv_netpolicy *p, struct pv_err *err)
{
        char name[16];
        for (size_t i = 0; i < p->n_layers; i++) {
                const struct pv_netlayer *l = &p->layer[i];
                if (!pv_netlayer_is_list(l))
                        continue;
                layer_name(name, i);
                put_chain(m, name);
                if (put_allow(m, name, l->allow, l->n_allow, NFT_RETURN, err) < 0)
                        return -1;
                put_always(m, name, NFT_GOTO, "refuse");
        }
        return 0;
}

/* The chains without a hook first: should a long policy take several batches, nothing is in force before the last. */
static int load(struct pv_nfmsg *m, const struct pv_netpolicy *p, const struct pv_netns_sockets *s, struct pv_err *err)
{
        static const char *const chains[] = { "refuse", "own", "denied", "granted" };
        put_table(m);
        for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
                put_chain(m, chains[i]);
        put_refuse_chain(m, s->log >= 0);
        put_own_chain(m, s);
        if (put_denied(m, p, err) < 0 || put_layers(m, p, err) < 0)
                return -1;
        put_output_chain(m, "decide", "filter", PRIORITY_DECIDE);
        put_output_chain(m, "hand_over", "nat", PRIORITY_HAND_OVER);
        put_decide(m, p);
        put_hand_over(m, s);
        return pv_nfmsg_commit(m, err);
}

/* Whatever came of an attempt that the kernel refused half-way. */
static void remove_table(struct pv_nfmsg *m)
{
        struct pv_err ignored = PV_ERR_INIT;
        m->b.len = 0;
        m->n = 0;
        pv_nfmsg_begin(m, NFT_MSG_DELTABLE, 0);
        pv_nfmsg_put_text(m, NFTA_TABLE_NAME, TABLE);
        pv_nfmsg_end(m);
        (void)pv_nfmsg_commit(m, &ignored);
}

int pv_nft_load(int nl, const struct pv_netpolicy *policy, const struct pv_netns_sockets *sockets, struct pv_err *err)
{
        struct pv_nfmsg m;
        pv_nfmsg_init(&m, nl);
        int r = load(&m, policy, sockets, err);
        if (r < 0)
                remove_table(&m);
        pv_nfmsg_fini(&m);
        return r;
}

int pv_nft_grant(int nl, const struct pv_netrule *rules, size_t n, struct pv_err *err)
{
        struct pv_nfmsg m;
        pv_nfmsg_init(&m, nl);
        int r = put_allow(&m, "granted", rules, n, NF_ACCEPT, err);
        if (r == 0)
                r = pv_nfmsg_commit(&m, err);
        pv_nfmsg_fini(&m);
        return r;
}
