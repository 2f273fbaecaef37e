/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/report.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/pass_fd.h"
#include "base/str.h"
#include "boundary/boundary.h"

enum kind {
        REPORT_OBSERVATIONS = 1,
        REPORT_ERROR,
        REPORT_VIEW,
        REPORT_NET,
        REPORT_NETNS,
        REPORT_HELPER,
        REPORT_TERMINAL
};

struct head {
        int kind;
        unsigned index; /* of the view or network descriptor, of the first observation */
        unsigned count; /* of observations */
};

/* Many in one message, since each wakes the supervisor once more; few enough for any socket buffer. */
#define OBSERVATIONS_A_MESSAGE 16

static int send_parts(int fd, struct head head, const void *body, size_t len, int pass)
{
        struct iovec iov[2] = { { &head, sizeof head }, { (void *)body, len } };
        union pv_pass_room room;
        struct msghdr msg = { .msg_iov = iov, .msg_iovlen = body ? 2 : 1 };
        ssize_t sent;
        pv_pass_fds(&msg, &room, &pass, pass >= 0);
        while ((sent = sendmsg(fd, &msg, MSG_NOSIGNAL)) < 0 && errno == EINTR)
                ;
        return sent < 0 ? -1 : 0;
}

static int send_descriptor(int fd, enum kind kind, size_t index, int pass, struct pv_err *err)
{
        if (send_parts(fd, (struct head){ .kind = kind, .index = (unsigned)index }, NULL, 0, pass) == 0)
                return 0;
        (void)pv_err_set(err, PV_ERR_SYS, errno, "hand a descriptor to the supervisor");
        return pv_pass_hint(err);
}

void pv_report_observations(int fd, const struct pv_observations *obs)
{
        for (unsigned i = 0; i < obs->n; i += OBSERVATIONS_A_MESSAGE) {
                unsigned n = obs->n - i < OBSERVATIONS_A_MESSAGE ? obs->n - i : OBSERVATIONS_A_MESSAGE;
                struct head head = { .kind = REPORT_OBSERVATIONS, .index = i, .count = n };
                (void)send_parts(fd, head, &obs->item[i], n * sizeof obs->item[i], -1);
        }
}

void pv_report_error(int fd, const struct pv_err *failure)
{
        (void)send_parts(fd, (struct head){ .kind = REPORT_ERROR }, failure, sizeof *failure, -1);
}

int pv_report_view(int fd, size_t index, int view, struct pv_err *err)
{
        return send_descriptor(fd, REPORT_VIEW, index, view, err);
}

int pv_report_net(int fd, size_t index, int net, struct pv_err *err)
{
        return send_descriptor(fd, REPORT_NET, index, net, err);
}

int pv_report_netns(int fd, int netns, struct pv_err *err)
{
        return send_descriptor(fd, REPORT_NETNS, 0, netns, err);
}

int pv_report_helper(int fd, int pidfd, struct pv_err *err)
{
        return send_descriptor(fd, REPORT_HELPER, 0, pidfd, err);
}

int pv_report_terminal(int fd, int master, struct pv_err *err)
{
        return send_descriptor(fd, REPORT_TERMINAL, 0, master, err);
}

union body {
        struct pv_observation observations[OBSERVATIONS_A_MESSAGE];
        struct pv_err failure;
};

/* 1: a message; 0: the end; -1: error. */
static ssize_t receive(int fd, struct head *head, union body *body, int flags, int *passed)
{
        struct iovec iov[2] = { { head, sizeof *head }, { body, sizeof *body } };
        union pv_pass_room room;
        struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
        ssize_t n;
        *passed = -1;
        pv_pass_accept(&msg, &room, 1);
        while ((n = recvmsg(fd, &msg, flags | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
                ;
        if (n > 0)
                (void)pv_pass_take(&msg, passed, 1);
        return n;
}

static void take_observations(const struct head *head, const union body *body, size_t len, struct pv_observations *obs)
{
        if (head->count > OBSERVATIONS_A_MESSAGE || head->index > PV_CONTROLS_MAX - head->count ||
            len != head->count * sizeof *body->observations)
                return;
        memcpy(&obs->item[head->index], body->observations, len);
        if (obs->n < head->index + head->count)
                obs->n = head->index + head->count;
}

/* The place of a descriptor that came; NULL: there is none for it. */
static int *place_of(const struct pv_report_sink *sink, const struct head *head)
{
        if (head->kind == REPORT_VIEW && head->index < sink->n_views)
                return &sink->views[head->index];
        if (head->kind == REPORT_NET && sink->net && head->index < PV_BOUNDARY_NET_FDS)
                return &sink->net[head->index];
        if (head->kind == REPORT_NETNS)
                return sink->netns;
        return head->kind == REPORT_HELPER ? sink->helper : head->kind == REPORT_TERMINAL ? sink->terminal : NULL;
}

static void take(const struct pv_report_sink *sink, const struct head *head, const union body *body, size_t len,
                 int *passed, struct pv_err *failure)
{
        int *place = *passed >= 0 ? place_of(sink, head) : NULL;
        if (head->kind == REPORT_OBSERVATIONS) {
                if (sink->obs)
                        take_observations(head, body, len, sink->obs);
        } else if (head->kind == REPORT_ERROR && len == sizeof body->failure && failure->kind == PV_ERR_NONE) {
                *failure = body->failure;
        } else if (place) {
                pv_fd_closep(place);
                *place = pv_fd_steal(passed);
        }
}

int pv_report_take(int fd, const struct pv_report_sink *sink, int flags, struct pv_err *failure)
{
        struct head head = { 0 };
        pv_auto_free union body *body = pv_calloc(1, sizeof *body);
        pv_auto_fd passed = -1;
        ssize_t n = receive(fd, &head, body, flags, &passed);
        if (n <= 0)
                return (int)n;
        if ((size_t)n >= sizeof head)
                take(sink, &head, body, (size_t)n - sizeof head, &passed, failure);
        return 1;
}

int pv_message_send_about(int fd, int kind, unsigned number, int value)
{
        const struct pv_message c = { kind, value, number };
        return pv_message_send_fds(fd, &c, NULL, 0);
}

int pv_message_send(int fd, int kind, int value)
{
        return pv_message_send_about(fd, kind, 0, value);
}

static_assert(PV_MESSAGE_FDS <= PV_PASS_FDS, "room for them");

int pv_message_send_fds(int fd, const struct pv_message *m, const int *fds, size_t n)
{
        union pv_pass_room room;
        struct iovec iov = { (void *)m, sizeof *m };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t sent;
        pv_pass_fds(&msg, &room, fds, n <= PV_MESSAGE_FDS ? n : 0);
        while ((sent = sendmsg(fd, &msg, MSG_NOSIGNAL)) < 0 && errno == EINTR)
                ;
        return sent == sizeof *m ? 0 : -1;
}

int pv_message_hand_over(int fd, const struct pv_message *m, const int *fds, size_t n, struct pv_err *err)
{
        if (pv_message_send_fds(fd, m, fds, n) == 0 || errno == EPIPE || errno == ECONNRESET)
                return 0;
        (void)pv_err_set(err, PV_ERR_SYS, errno, "hand descriptors to the sandbox");
        return pv_pass_hint(err);
}

int pv_message_receive_fds(int fd, struct pv_message *out, int *got, int flags)
{
        struct pv_message m;
        union pv_pass_room room;
        struct iovec iov = { &m, sizeof m };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t n;
        pv_pass_accept(&msg, &room, PV_MESSAGE_FDS);
        for (size_t i = 0; i < PV_MESSAGE_FDS; i++)
                got[i] = -1;
        while ((n = recvmsg(fd, &msg, flags | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
                ;
        if (n == 0 || (n < 0 && errno == ECONNRESET))
                return 0;
        if (n > 0)
                (void)pv_pass_take(&msg, got, PV_MESSAGE_FDS);
        if (n != sizeof m)
                return -1;
        *out = m;
        return 1;
}

int pv_message_receive(int fd, struct pv_message *out, int flags)
{
        struct pv_message c;
        ssize_t n;
        while ((n = recv(fd, &c, sizeof c, flags)) < 0 && errno == EINTR)
                ;
        if (n == 0 || (n < 0 && errno == ECONNRESET))
                return 0;
        if (n != sizeof c)
                return -1;
        *out = c;
        return 1;
}
