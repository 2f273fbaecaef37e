/* SPDX-License-Identifier: Apache-2.0 */
#include "net/nflog.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"

#define ATTRIBUTE_TYPE(t) ((t)&0x3fffu) /* without the flags of nested and byte order */

struct bind_request {
        struct nlmsghdr h;
        struct nfgenmsg g;
        struct nlattr command_head;
        struct nfulnl_msg_config_cmd command;
        char pad1[3];
        struct nlattr mode_head;
        struct nfulnl_msg_config_mode mode;
        char pad2[2];
        struct nlattr threshold_head;
        uint32_t threshold;
};

static struct bind_request request(void)
{
        return (struct bind_request){
                .h = { .nlmsg_len = sizeof(struct bind_request),
                       .nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
                .g = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(PV_NFLOG_GROUP) },
                .command_head = { .nla_len = NLA_HDRLEN + sizeof(struct nfulnl_msg_config_cmd),
                                  .nla_type = NFULA_CFG_CMD },
                .command = { NFULNL_CFG_CMD_BIND },
                .mode_head = { .nla_len = NLA_HDRLEN + sizeof(struct nfulnl_msg_config_mode),
                               .nla_type = NFULA_CFG_MODE },
                .mode = { .copy_range = htonl(PV_NFLOG_SNAPSHOT), .copy_mode = NFULNL_COPY_PACKET },
                .threshold_head = { .nla_len = NLA_HDRLEN + sizeof(uint32_t), .nla_type = NFULA_CFG_QTHRESH },
                .threshold = htonl(1), /* told at once: a run may end at any moment */
        };
}

int pv_nflog_open(struct pv_err *err)
{
        struct bind_request r = request();
        struct {
                struct nlmsghdr h;
                struct nlmsgerr e;
                char rest[256];
        } reply = { 0 };
        pv_auto_fd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
        if (fd < 0 || send(fd, &r, sizeof r, 0) < 0)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, errno, "the kernel's packet log");
        ssize_t n = recv(fd, &reply, sizeof reply, 0);
        if (n < (ssize_t)(sizeof reply.h + sizeof reply.e) || reply.h.nlmsg_type != NLMSG_ERROR)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, n < 0 ? errno : EPROTO, "the kernel's packet log");
        if (reply.e.error != 0)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, -reply.e.error, "the kernel's packet log");
        return pv_fd_steal(&fd);
}

static unsigned get16(const uint8_t *p)
{
        return (unsigned)p[0] << 8 | p[1];
}

static bool has_ports(uint8_t protocol)
{
        return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
               protocol == IPPROTO_DCCP || protocol == IPPROTO_UDPLITE;
}

bool pv_nflog_parse_packet(const uint8_t *b, size_t n, struct pv_nflog_packet *out)
{
        size_t head = 40;
        *out = (struct pv_nflog_packet){ .to = { { [10] = 0xff, [11] = 0xff } } };
        if (n >= 20 && b[0] >> 4 == 4) {
                head = 4 * (size_t)(b[0] & 15);
                out->protocol = b[9];
                memcpy(out->to.b + 12, b + 16, 4);
        } else if (n >= 40 && b[0] >> 4 == 6) {
                out->protocol = b[6]; /* extension headers are not walked: the port is then not known */
                memcpy(out->to.b, b + 24, 16);
        } else {
                return false;
        }
        if (has_ports(out->protocol) && head >= 20 && n >= head + 4)
                out->port = (uint16_t)get16(b + head + 2);
        return true;
}

static void read_message(const uint8_t *m, size_t n, void (*each)(void *, const struct pv_nflog_packet *), void *ctx)
{
        size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg));
        struct nlattr a;
        while (at + sizeof a <= n) {
                memcpy(&a, m + at, sizeof a);
                if (a.nla_len < sizeof a || a.nla_len > n - at)
                        return;
                struct pv_nflog_packet p;
                if (ATTRIBUTE_TYPE(a.nla_type) == NFULA_PAYLOAD &&
                    pv_nflog_parse_packet(m + at + NLA_HDRLEN, a.nla_len - NLA_HDRLEN, &p))
                        each(ctx, &p);
                at += NLA_ALIGN(a.nla_len);
        }
}

void pv_nflog_parse(const uint8_t *buf, size_t n, void (*each)(void *ctx, const struct pv_nflog_packet *p), void *ctx)
{
        struct nlmsghdr h;
        for (size_t at = 0; n - at >= sizeof h;) {
                memcpy(&h, buf + at, sizeof h);
                if (h.nlmsg_len < sizeof h || h.nlmsg_len > n - at)
                        return;
                if (h.nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET))
                        read_message(buf + at, h.nlmsg_len, each, ctx);
                if (NLMSG_ALIGN(h.nlmsg_len) > n - at)
                        return;
                at += NLMSG_ALIGN(h.nlmsg_len);
        }
}

bool pv_nflog_read(int fd, void (*each)(void *ctx, const struct pv_nflog_packet *p), void *ctx)
{
        uint8_t buf[8192];
        ssize_t got = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
        if (got < 0)
                return errno == EINTR || errno == ENOBUFS; /* some were lost: the next are not */
        pv_nflog_parse(buf, (size_t)got, each, ctx);
        return got > 0;
}
