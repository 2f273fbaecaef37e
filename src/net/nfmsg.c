/* SPDX-License-Identifier: Apache-2.0 */
#include "net/nfmsg.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"

#define LONG_BATCH (96U << 10)
#define ANSWERS    1024 /* datagrams read at most: one an error */

int pv_nfmsg_open(struct pv_err *err)
{
        const struct sockaddr_nl any = { .nl_family = AF_NETLINK };
        pv_auto_fd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof any) < 0)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, errno, "nftables: netlink");
        return pv_fd_steal(&fd);
}

static void put_zeros(struct pv_str *b, size_t n)
{
        static const char zeros[NLMSG_ALIGNTO] = { 0 };
        pv_str_put_bytes(b, zeros, n);
}

static void put_header(struct pv_nfmsg *m, uint16_t type, uint16_t flags, uint8_t family, uint16_t resource)
{
        m->message = m->b.len;
        const struct nlmsghdr h = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = ++m->seq };
        const struct nfgenmsg g = { .nfgen_family = family, .version = NFNETLINK_V0, .res_id = htons(resource) };
        pv_str_put_bytes(&m->b, &h, sizeof h);
        pv_str_put_bytes(&m->b, &g, sizeof g);
}

/* Lengths are known afterwards; the buffer may have moved meanwhile. */
static void end_message(struct pv_nfmsg *m)
{
        uint32_t n = (uint32_t)(m->b.len - m->message);
        memcpy(m->b.s + m->message + offsetof(struct nlmsghdr, nlmsg_len), &n, sizeof n);
        put_zeros(&m->b, NLMSG_ALIGN(n) - n);
}

void pv_nfmsg_init(struct pv_nfmsg *m, int nl)
{
        *m = (struct pv_nfmsg){ .nl = nl };
}

void pv_nfmsg_fini(struct pv_nfmsg *m)
{
        pv_str_fini(&m->b);
}

void pv_nfmsg_begin(struct pv_nfmsg *m, uint8_t type, uint16_t flags)
{
        if (m->n++ == 0) {
                put_header(m, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
                end_message(m);
        }
        put_header(m, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, NFPROTO_INET, 0);
}

void pv_nfmsg_end(struct pv_nfmsg *m)
{
        end_message(m);
}

void pv_nfmsg_put(struct pv_nfmsg *m, uint16_t type, const void *data, size_t n)
{
        const struct nlattr a = { .nla_len = (uint16_t)(NLA_HDRLEN + n), .nla_type = type };
        pv_str_put_bytes(&m->b, &a, sizeof a);
        pv_str_put_bytes(&m->b, data, n);
        put_zeros(&m->b, NLA_ALIGN(n) - n);
}

void pv_nfmsg_put_text(struct pv_nfmsg *m, uint16_t type, const char *text)
{
        pv_nfmsg_put(m, type, text, strlen(text) + 1);
}

void pv_nfmsg_put_u32(struct pv_nfmsg *m, uint16_t type, uint32_t value)
{
        uint32_t big = htonl(value);
        pv_nfmsg_put(m, type, &big, sizeof big);
}

size_t pv_nfmsg_open_nest(struct pv_nfmsg *m, uint16_t type)
{
        size_t at = m->b.len;
        pv_nfmsg_put(m, type | NLA_F_NESTED, NULL, 0);
        return at;
}

void pv_nfmsg_close_nest(struct pv_nfmsg *m, size_t nest)
{
        uint16_t n = (uint16_t)(m->b.len - nest);
        memcpy(m->b.s + nest + offsetof(struct nlattr, nla_len), &n, sizeof n);
}

/*
 * The kernel has worked through the batch when send(2) returns; its answers are there by then. It answers an error with
 * the message that it is about, and the last message, which asks for it, with 0.
 */
static int hear(struct pv_nfmsg *m, uint32_t last, struct pv_err *err)
{
        struct {
                struct nlmsghdr h;
                struct nlmsgerr e;
                char rest[8192];
        } r;
        for (int i = 0; i < ANSWERS; i++) {
                ssize_t n = recv(m->nl, &r, sizeof r, MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < (ssize_t)(sizeof r.h + sizeof r.e) || r.h.nlmsg_type != NLMSG_ERROR)
                        return pv_err_set(err, PV_ERR_UNSUPPORTED, n < 0 ? errno : EPROTO, "nftables: no answer");
                if (r.e.error == -ENOENT)
                        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "nftables: the kernel lacks a part of it");
                if (r.e.error != 0)
                        return pv_err_set(err, PV_ERR_UNSUPPORTED, -r.e.error, "nftables: the kernel refuses rule %u",
                                          r.e.msg.nlmsg_seq);
                if (r.h.nlmsg_seq == last)
                        return 0;
        }
        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "nftables: too many answers");
}

/* What an earlier batch may have left in the socket. */
static void forget_answers(const struct pv_nfmsg *m)
{
        char rest[64];
        for (int i = 0; i < ANSWERS && recv(m->nl, rest, sizeof rest, MSG_DONTWAIT | MSG_TRUNC) >= 0; i++)
                ;
}

int pv_nfmsg_commit(struct pv_nfmsg *m, struct pv_err *err)
{
        struct nlmsghdr h;
        if (m->n == 0)
                return 0;
        memcpy(&h, m->b.s + m->message, sizeof h);
        h.nlmsg_flags |= NLM_F_ACK;
        memcpy(m->b.s + m->message, &h, sizeof h);
        put_header(m, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
        end_message(m);
        forget_answers(m);
        ssize_t n = send(m->nl, m->b.s, m->b.len, 0);
        m->b.len = 0;
        m->n = 0;
        if (n < 0)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, errno, "nftables");
        return hear(m, h.nlmsg_seq, err);
}

int pv_nfmsg_commit_when_long(struct pv_nfmsg *m, struct pv_err *err)
{
        return m->b.len < LONG_BATCH ? 0 : pv_nfmsg_commit(m, err);
}
