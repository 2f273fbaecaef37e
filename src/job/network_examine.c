/* SPDX-License-Identifier: Apache-2.0 */
/* Do network rules work here: the namespace of a run is furnished in a child, as job/network.c does it. */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include "job/network.h"
#include "net/nflog.h"
#include "net/nfmsg.h"
#include "net/nft.h"

static void try_rules(struct pv_str *out)
{
        static const struct pv_netpolicy everything = { .n_layers = 0 };
        struct pv_err err = PV_ERR_INIT;
        struct pv_netns_sockets s;
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
                return; /* without namespaces there is nothing to have rules in: the boundary says so */
        if (pv_netns_set_up_loopback(&err) < 0 || pv_netns_listen(&s, &err) < 0) {
                pv_str_putf(out, "network rules cannot be enforced here: %s", err.msg);
                return;
        }
        s.log = pv_nflog_open(&err);
        if (s.log < 0)
                pv_str_putf(out,
                            "what network rules refuse in connect is not recorded (%s): a kernel with "
                            "CONFIG_NETFILTER_NETLINK_LOG, `sudo modprobe nfnetlink_log`",
                            err.msg);
        pv_err_clear(&err);
        s.rules = pv_nfmsg_open(&err);
        if (s.rules >= 0 && pv_nft_load(s.rules, &everything, &s, &err) == 0)
                return;
        pv_str_putf(out, "%snetwork rules let nothing out but what uses pVisor's proxy (%s): %s", out->len ? "\n" : "",
                    err.msg,
                    "a kernel with nf_tables and its nat, `sudo modprobe -a nft_chain_nat nft_ct nft_redir "
                    "nft_reject_inet`");
}

int pv_run_network_examine(struct pv_strv *fix, struct pv_err *err)
{
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a pipe");
        pv_auto_fd in = pair[0];
        pv_auto_fd out = pair[1];
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "fork");
        if (pid == 0) {
                struct pv_err ignored = PV_ERR_INIT;
                pv_auto_str text = { 0 };
                try_rules(&text);
                if (text.len > 0)
                        (void)pv_fd_write_all(out, text.s, text.len, "the examiner's pipe", &ignored);
                _exit(0);
        }
        pv_fd_closep(&out);
        pv_auto_free char *text = NULL;
        int r = pv_fd_read_all(in, 4096, "the examiner's words", &text, NULL, err);
        (void)waitpid(pid, NULL, 0);
        for (char *line = r == 0 ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n"))
                pv_strv_add(fix, line);
        return r;
}
