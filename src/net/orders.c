/* SPDX-License-Identifier: Apache-2.0 */
#include "net/orders.h"

#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/pass_fd.h"
#include "net/nft.h"
#include "net/plane_internal.h"

int pv_order_send(int fd, const json_t *order, int pass, struct pv_err *err)
{
        pv_auto_free char *text = json_dumps(order, JSON_COMPACT);
        union pv_pass_room room;
        struct iovec data = { text, text ? strlen(text) : 0 };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        if (!text || data.iov_len > PV_ORDER_MAX)
                return pv_err_set(err, PV_ERR_SYS, EMSGSIZE, "order to the data plane");
        pv_pass_fds(&m, &room, &pass, pass >= 0);
        return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0
                       ? pv_err_set(err, PV_ERR_SYS, errno, "order to the data plane")
                       : 0;
}

int pv_order_receive(int fd, json_t **out, int *passed, struct pv_err *err)
{
        pv_auto_free char *text = pv_calloc(PV_ORDER_MAX + 1, 1);
        union pv_pass_room room;
        struct iovec data = { text, PV_ORDER_MAX };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, 1);
        *passed = -1;
        ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n <= 0)
                return pv_err_set(err, n < 0 && errno == EAGAIN ? PV_ERR_BUSY : PV_ERR_STATE, n < 0 ? errno : 0,
                                  "the data plane's orders");
        (void)pv_pass_take(&m, passed, 1);
        *out = json_loadb(text, (size_t)n, 0, NULL);
        if (*out)
                return 0;
        pv_fd_closep(passed);
        return pv_err_set(err, PV_ERR_INPUT, 0, "the data plane's orders: no JSON");
}

/* First in the kernel, then here: what connect(2) lets through is asked for again when it arrives. */
static int allow(struct pv_plane *p, const json_t *order, struct pv_err *err)
{
        pv_auto_netrules rules = { 0 };
        json_t *texts = NULL;
        if (pv_json_get_array(order, "rules", PV_NETPOLICY_RULES, &texts, err) < 0)
                return -1;
        for (size_t i = 0; i < json_array_size(texts); i++) {
                const char *text = json_string_value(json_array_get(texts, i));
                uint64_t unused = 0;
                if (!text || pv_netrules_add(&rules, text, NULL, &unused, err) < 0)
                        return text ? -1 : pv_err_set(err, PV_ERR_INPUT, 0, "\"rules\" holds what is no text");
        }
        if (rules.n == 0)
                return 0;
        if (p->policy.granted.n + rules.n > PV_NETPOLICY_RULES)
                return pv_err_set(err, PV_ERR_USAGE, 0, "more than %d grants", PV_NETPOLICY_RULES);
        if (p->spec->sockets.rules >= 0 && pv_nft_grant(p->spec->sockets.rules, rules.v, rules.n, err) < 0)
                return -1;
        struct pv_netrules *all = &p->policy.granted;
        all->v = pv_realloc(all->v, all->n + rules.n, sizeof *all->v);
        memcpy(all->v + all->n, rules.v, rules.n * sizeof *rules.v);
        all->n += rules.n;
        return 0;
}

static int publish(struct pv_plane *p, const json_t *order, int *listener, struct pv_err *err)
{
        int64_t port = 0;
        if (*listener < 0)
                return pv_err_set(err, PV_ERR_INPUT, 0, "no socket to publish at");
        if (pv_json_get_int(order, "port", 1, 65535, &port, err) < 0 ||
            pv_plane_publish(p, *listener, (uint16_t)port, err) < 0)
                return -1;
        *listener = -1;
        return 0;
}

static int obey(struct pv_plane *p, const json_t *order, int *passed, struct pv_err *err)
{
        const char *what = NULL;
        if (pv_json_get_str(order, "order", &what, err) < 0)
                return -1;
        if (pv_streq(what, "allow"))
                return allow(p, order, err);
        if (pv_streq(what, "publish"))
                return publish(p, order, passed, err);
        return pv_err_set(err, PV_ERR_INPUT, 0, "no such order");
}

bool pv_plane_obey(struct pv_plane *p, int fd)
{
        struct pv_err err = PV_ERR_INIT, ignored = PV_ERR_INIT;
        pv_auto_json order = NULL;
        pv_auto_fd passed = -1;
        if (pv_order_receive(fd, &order, &passed, &err) < 0)
                return err.kind != PV_ERR_STATE;
        bool ok = obey(p, order, &passed, &err) == 0;
        pv_auto_json answer = ok ? json_pack("{s:b}", "ok", 1) : json_pack("{s:b, s:s}", "ok", 0, "error", err.msg);
        (void)pv_order_send(fd, answer, -1, &ignored);
        return true;
}
