/* SPDX-License-Identifier: Apache-2.0 */
#include "net/nft.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "net/names.h"
#include "net/nflog.h"

/* Where Debian and others install it; PATH is the person's and may hold anything. */
static const char *const nft_programs[] = { "/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft" };

static void put_ports(struct pv_str *out, const struct pv_netrule *r)
{
        if (r->port_first == 1 && r->port_last == 65535)
                pv_str_put(out, "meta l4proto tcp");
        else
                pv_str_putf(out, "tcp dport %u-%u", r->port_first, r->port_last);
}

static void put_prefix(struct pv_str *out, const struct pv_netaddr *addr, unsigned prefix)
{
        bool v4 = pv_netaddr_is_v4(addr) && prefix >= 96;
        pv_str_put(out, v4 ? "ip daddr " : "ip6 daddr ");
        pv_netaddr_put(out, addr);
        pv_str_putf(out, "/%u", v4 ? prefix - 96 : prefix);
}

/* One line: match of an address rule, then the verdict. ::/0 and shorter than /96 hold IPv4 in no packet. */
static void put_address_rule(struct pv_str *out, const struct pv_netrule *r, const char *verdict)
{
        pv_str_put(out, "    ");
        put_prefix(out, &r->addr, r->prefix);
        pv_str_putc(out, ' ');
        put_ports(out, r);
        pv_str_putf(out, " %s\n", verdict);
}

/*
 * One layer as a chain that returns what it may allow. Names are not known here: towards the synthetic addresses only
 * ports are asked, and the name is asked when the connection arrives.
 */
static void put_layer(struct pv_str *out, const struct pv_netlayer *l, size_t i)
{
        pv_str_putf(out, "  chain layer%zu {\n", i);
        for (size_t k = 0; k < l->n_deny; k++) {
                const struct pv_netrule *r = &l->deny[k];
                if (r->kind == PV_NETRULE_PREFIX)
                        put_address_rule(out, r, "goto refuse");
                if (r->kind == PV_NETRULE_ANY) {
                        pv_str_put(out, "    ");
                        put_ports(out, r);
                        pv_str_put(out, " goto refuse\n");
                }
        }
        for (size_t k = 0; k < l->n_allow; k++) {
                const struct pv_netrule *r = &l->allow[k];
                if (r->kind == PV_NETRULE_PREFIX) {
                        put_address_rule(out, r, "return");
                        continue;
                }
                if (r->kind != PV_NETRULE_ANY) { /* a name: through its synthetic address only */
                        pv_str_put(out, "    ip daddr @synthetic4 ");
                        put_ports(out, r);
                        pv_str_put(out, " return\n    ip6 daddr @synthetic6 ");
                        put_ports(out, r);
                        pv_str_put(out, " return\n");
                        continue;
                }
                pv_str_put(out, "    ");
                put_ports(out, r);
                pv_str_put(out, " return\n");
        }
        if (l->n_allow > 0)
                pv_str_put(out, "    goto refuse\n");
        pv_str_put(out, "  }\n");
}

void pv_nft_write_rules(struct pv_str *out, const struct pv_netpolicy *p, const struct pv_netns_sockets *s)
{
        pv_str_putf(out,
                    "table inet pvisor {\n"
                    "  set synthetic4 { type ipv4_addr; flags interval; elements = { %s } }\n"
                    "  set synthetic6 { type ipv6_addr; flags interval; elements = { %s } }\n"
                    "  set own4 { type ipv4_addr; flags interval; elements = { 127.0.0.0/8, " PV_NETNS_V4 " } }\n"
                    "  set own6 { type ipv6_addr; elements = { ::1, " PV_NETNS_V6 " } }\n"
                    "  chain refuse {\n",
                    PV_NAMES_V4_PREFIX, PV_NAMES_V6_PREFIX);
        if (s->log >= 0)
                pv_str_putf(out, "    limit rate %d/second burst %d packets log group %d snaplen %d\n",
                            PV_NFLOG_PER_SEC, PV_NFLOG_BURST, PV_NFLOG_GROUP, PV_NFLOG_SNAPSHOT);
        pv_str_put(out, "    meta l4proto tcp reject with tcp reset\n"
                        "    reject with icmpx type admin-prohibited\n"
                        "  }\n");
        /* Nothing but redirection leads to pVisor's own ports; the other services of the sandbox are its own affair. */
        pv_str_putf(out,
                    "  chain own {\n"
                    "    tcp dport { %u, %u } goto refuse\n"
                    "    udp dport %u goto refuse\n"
                    "  }\n",
                    s->port[PV_NETNS_TCP4], s->port[PV_NETNS_DNS_TCP4], s->port[PV_NETNS_DNS_UDP4]);
        for (size_t i = 0; i < p->n_layers; i++)
                put_layer(out, &p->layer[i], i);
        /* Before the destination is rewritten (-100), so that it sees what the program asked for. */
        pv_str_put(out, "  chain decide {\n"
                        "    type filter hook output priority -150; policy accept;\n"
                        "    udp dport 53 accept\n"
                        "    tcp dport 53 accept\n"
                        "    ct state established,related accept\n"
                        "    ip daddr @own4 goto own\n"
                        "    ip6 daddr @own6 goto own\n"
                        "    meta l4proto != tcp goto refuse\n");
        for (size_t i = 0; i < p->n_layers; i++)
                pv_str_putf(out, "    jump layer%zu\n", i);
        pv_str_putf(out,
                    "  }\n"
                    "  chain hand_over {\n"
                    "    type nat hook output priority -100; policy accept;\n"
                    "    udp dport 53 redirect to :%u\n"
                    "    tcp dport 53 redirect to :%u\n"
                    "    ip daddr @own4 accept\n"
                    "    ip6 daddr @own6 accept\n"
                    "    meta l4proto tcp redirect to :%u\n"
                    "  }\n"
                    "}\n",
                    s->port[PV_NETNS_DNS_UDP4], s->port[PV_NETNS_DNS_TCP4], s->port[PV_NETNS_TCP4]);
}

/*
 * An ordinary user's uid is not 0 in the namespace, so execve(2) would take nft's privileges over it away: they go along
 * as ambient capabilities (capabilities(7)).
 */
static int keep_net_admin_over_exec(void)
{
        struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];
        if (syscall(SYS_capget, &h, d) < 0)
                return -1;
        d[CAP_TO_INDEX(CAP_NET_ADMIN)].inheritable |= CAP_TO_MASK(CAP_NET_ADMIN);
        if (syscall(SYS_capset, &h, d) < 0)
                return -1;
        return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0);
}

/* In the child: stdin is the rules, stderr a pipe; nothing of the person's environment goes along. */
static void exec_nft(int in, int errors)
{
        char *const argv[] = { (char[]){ "nft" }, (char[]){ "-f" }, (char[]){ "-" }, NULL };
        char *const envp[] = { NULL };
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (dup2(in, 0) < 0 || dup2(null, 1) < 0 || dup2(errors, 2) < 0 || keep_net_admin_over_exec() < 0)
                _exit(126);
        for (size_t i = 0; i < sizeof nft_programs / sizeof *nft_programs; i++)
                (void)execve(nft_programs[i], argv, envp);
        _exit(127);
}

int pv_nft_load(const char *rules, size_t len, struct pv_err *err)
{
        pv_auto_fd in = memfd_create("nft-rules", MFD_CLOEXEC);
        int pair[2] = { -1, -1 };
        if (in < 0 || pv_fd_write_all(in, rules, len, "nft's rules", err) < 0 || lseek(in, 0, SEEK_SET) < 0 ||
            pipe2(pair, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "nftables: prepare");
        pv_auto_fd said = pair[0];
        pv_auto_fd say = pair[1];
        pv_auto_pid pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "nftables: fork");
        if (pid == 0)
                exec_nft(in, say);
        pv_fd_closep(&say);
        pv_auto_free char *text = NULL;
        int status = 0;
        (void)pv_fd_read_all(said, 65536, "nft's errors", &text, NULL, err);
        pid_t child = pid;
        pid = -1;
        while (waitpid(child, &status, 0) < 0)
                if (errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "nftables: wait");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "nftables: nft is not installed");
                return pv_err_hint(err, "apt-get install nftables");
        }
        size_t line = text ? strcspn(text, "\n") : 0;
        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "nftables: %.*s", (int)line, text ? text : "");
}
