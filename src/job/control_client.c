/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of control.h. */
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include "base/json.h"
#include "job/control.h"
#include "job/control_packet.h"

json_t *pv_control_request(const char *verb)
{
        return json_pack("{s:s}", "verb", verb);
}

void pv_control_patience(int conn, unsigned ms)
{
        const struct timeval t = { .tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000 };
        (void)setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        (void)setsockopt(conn, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static int no_longer(struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_STATE, 0, "the job does not run any more");
}

static int silent(struct pv_err *err)
{
        pv_err_clear(err);
        (void)pv_err_set(err, PV_ERR_BUSY, 0, "the job's supervisor does not answer");
        return pv_err_hint(err, "is it stopped? `fg` in its terminal lets it go on");
}

static int connect_to(int job_dir, int *conn, struct pv_err *err)
{
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        pv_auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "control socket");
        (void)snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/" PV_JOB_CONTROL, job_dir);
        pv_control_patience(fd, PV_CONTROL_PATIENCE_MS);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
                if (errno == ENOENT || errno == ECONNREFUSED)
                        return no_longer(err);
                return errno == EAGAIN ? silent(err) : pv_err_set(err, PV_ERR_SYS, errno, "control socket of the job");
        }
        *conn = pv_fd_steal(&fd);
        return 0;
}

int pv_control_send(int conn, json_t *request, const int *fds, size_t n_fds, struct pv_err *err)
{
        pv_auto_json taken = request;
        if (!taken)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "control packet");
        if (pv_control_packet_send(conn, taken, fds, n_fds, 0, err) == 0)
                return 0;
        if (err->kind != PV_ERR_SYS)
                return -1;
        int sys = err->sys;
        if (sys == EAGAIN)
                return silent(err);
        if (sys != EPIPE && sys != ECONNRESET)
                return -1;
        pv_err_clear(err);
        return no_longer(err);
}

int pv_control_receive(int conn, json_t **answer, int *got, struct pv_err *err)
{
        pv_auto_control_packet p = PV_CONTROL_PACKET_INIT;
        int r = pv_control_packet_receive(conn, &p, 0, err);
        if (r < 0)
                return err->kind == PV_ERR_SYS && err->sys == EAGAIN ? silent(err) : -1;
        if (r == 0)
                return no_longer(err);
        if (!json_is_true(json_object_get(p.body, "ok"))) {
                pv_control_error_parse(p.body, err);
                return -1;
        }
        for (size_t i = 0; got && i < PV_CONTROL_FDS_MAX; i++)
                got[i] = pv_fd_steal(&p.fds[i]);
        if (answer)
                *answer = pv_steal(&p.body);
        return 0;
}

int pv_control_begin(int job_dir, json_t *request, const struct pv_control_call *with, int *conn, json_t **answer,
                     struct pv_err *err)
{
        static const struct pv_control_call plain = { 0 };
        pv_auto_json taken = request;
        pv_auto_fd fd = -1;
        struct pv_err refusal = PV_ERR_INIT;
        if (!with)
                with = &plain;
        if (connect_to(job_dir, &fd, err) < 0)
                return -1;
        if (with->patience_ms)
                pv_control_patience(fd, with->patience_ms);
        if (pv_control_send(fd, json_incref(taken), with->fds, with->n_fds, err) < 0) {
                /* Who is refused at the door finds it closed already; why lies there nevertheless. */
                if (err->kind == PV_ERR_STATE && pv_control_receive(fd, NULL, NULL, &refusal) < 0)
                        *err = refusal;
                return -1;
        }
        if (pv_control_receive(fd, answer, with->got, err) < 0)
                return -1;
        *conn = pv_fd_steal(&fd);
        return 0;
}

int pv_control_call(int job_dir, json_t *request, const struct pv_control_call *with, json_t **answer,
                    struct pv_err *err)
{
        pv_auto_fd conn = -1;
        return pv_control_begin(job_dir, request, with, &conn, answer, err);
}
