/* SPDX-License-Identifier: Apache-2.0 */
#include "job/control_packet.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include "base/json.h"
#include "base/pass_fd.h"

void pv_control_packet_fini(struct pv_control_packet *p)
{
        json_decref(p->body);
        p->body = NULL;
        for (size_t i = 0; i < PV_CONTROL_FDS_MAX; i++)
                pv_fd_closep(&p->fds[i]);
}

static_assert(PV_CONTROL_FDS_MAX <= PV_PASS_FDS, "room for them");

int pv_control_packet_send(int fd, const json_t *body, const int *fds, size_t n_fds, int flags, struct pv_err *err)
{
        union pv_pass_room room;
        pv_auto_free char *text = json_dumps(body, JSON_COMPACT);
        if (!text)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "control packet");
        struct iovec iov = { text, strlen(text) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
        if (iov.iov_len > PV_CONTROL_PACKET_MAX || n_fds > PV_CONTROL_FDS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, E2BIG, "control packet");
        pv_pass_fds(&m, &room, fds, fds ? n_fds : 0);
        while (sendmsg(fd, &m, flags | MSG_NOSIGNAL) < 0)
                if (errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "control packet");
        return 0;
}

int pv_control_packet_receive(int fd, struct pv_control_packet *p, int flags, struct pv_err *err)
{
        union pv_pass_room room;
        json_error_t why;
        ssize_t n;
        pv_auto_free char *text = pv_calloc(1, PV_CONTROL_PACKET_MAX);
        struct iovec iov = { text, PV_CONTROL_PACKET_MAX };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, PV_CONTROL_FDS_MAX);
        bool reset = false;
        while ((n = recvmsg(fd, &m, flags | MSG_CMSG_CLOEXEC)) < 0) {
                if (errno == ECONNRESET && reset)
                        return 0;
                /* The other side closed without having read all; what it said before lies there nevertheless. */
                reset = errno == ECONNRESET;
                if (!reset && errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "control socket");
        }
        (void)pv_pass_take(&m, p->fds, PV_CONTROL_FDS_MAX);
        if (n == 0)
                return 0;
        if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
                return pv_err_set(err, PV_ERR_INPUT, 0, "control socket: a packet with too much in it");
        p->body = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(p->body))
                return pv_err_set(err, PV_ERR_INPUT, 0, "control socket: no JSON object");
        return 1;
}

/* By name, since the two sides may be of different versions. */
static const char *const kinds[] = {
        [PV_ERR_NONE] = "none",
        [PV_ERR_SYS] = "system",
        [PV_ERR_INPUT] = "input",
        [PV_ERR_USAGE] = "usage",
        [PV_ERR_CONFLICT] = "conflict",
        [PV_ERR_NO_JOB] = "no-job",
        [PV_ERR_UNSUPPORTED] = "unsupported",
        [PV_ERR_POLICY] = "policy",
        [PV_ERR_BUSY] = "busy",
        [PV_ERR_STATE] = "state",
        [PV_ERR_NOT_EXEC] = "not-executable",
        [PV_ERR_NOT_FOUND] = "not-found",
};
static_assert(sizeof kinds / sizeof *kinds == PV_ERR_KINDS, "a name for each kind");

json_t *pv_control_error_json(const struct pv_err *failure)
{
        json_t *j = json_pack("{s:b, s:s, s:o}", "ok", 0, "kind", kinds[failure->kind], "error",
                              pv_json_bytes(failure->msg));
        (void)json_object_set_new(j, "hint", failure->hint[0] ? pv_json_bytes(failure->hint) : json_null());
        return j;
}

void pv_control_error_parse(const json_t *answer, struct pv_err *err)
{
        struct pv_err ignored = PV_ERR_INIT;
        const char *name = json_string_value(json_object_get(answer, "kind"));
        pv_auto_free char *msg = NULL;
        pv_auto_free char *hint = NULL;
        int kind = PV_ERR_SYS;
        for (int i = PV_ERR_NONE + 1; name && i < PV_ERR_KINDS; i++)
                if (pv_streq(name, kinds[i]))
                        kind = i;
        (void)pv_json_get_bytes(json_object_get(answer, "error"), &msg, &ignored);
        (void)pv_err_set(err, (enum pv_err_kind)kind, 0, "%s", msg ? msg : "refused");
        if (pv_json_get_bytes(json_object_get(answer, "hint"), &hint, &ignored) == 0)
                (void)pv_err_hint(err, "%s", hint);
}
