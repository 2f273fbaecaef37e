/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beside a running job: what other pvisor processes ask of its supervisor. jobs/<id>/control is a socket (AF_UNIX,
 * SOCK_SEQPACKET, 0600) that the supervisor serves while it watches the command. A request is one packet: a JSON
 * object with "verb", and descriptors (SCM_RIGHTS); the answer is one, too: {"ok": true, ...} or {"ok": false,
 * "kind", "error", "hint"}. Verbs may keep their connection, for more packets either way: what they hold ends with
 * it, so that a client that dies lets go of everything. The theory of operation heads control.c.
 */
#ifndef PV_JOB_CONTROL_H
#define PV_JOB_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "boundary/boundary.h"
#include "job/store.h"

#define PV_JOB_CONTROL             "control"
#define PV_CONTROL_PACKET_MAX      (128U << 10) /* bytes of one packet, either way */
#define PV_CONTROL_FDS_MAX         8            /* descriptors with one packet */
#define PV_CONTROL_CONNECTIONS_MAX 64

/*
 * The server: the supervisor's side. A verb is a row of the table in verbs.c.
 */

struct pv_run_network;

/* What verbs may work on. All borrowed, all alive as long as the command runs. */
struct pv_control_job {
        const struct pv_job *job;
        const struct pv_plan *plan;
        struct pv_boundary *boundary;
        const struct pv_serving *serving; /* who serves the view where the kernel does not */
        struct pv_run_network *network;
        int terminal; /* the master of a detached job's; -1: it has none */
};

struct pv_control_connection; /* opaque */

struct pv_control_verb {
        const char *name;
        /*
         * Serves a request; request is borrowed. Answers with pv_control_answer() and returns 0: the connection ends
         * then, unless it is kept. -1: the error is the answer, and the connection ends, kept or not. Mustn't wait
         * for anything: the command's signals and its end are waiting meanwhile.
         */
        int (*serve)(struct pv_control_connection *c, const json_t *request, struct pv_err *err);
};
extern const struct pv_control_verb *const pv_control_verbs[]; /* NULL-terminated */

/* What a verb that keeps its connection wants to know of it. */
struct pv_control_keeper {
        /* Another packet came; as serve(). NULL: a second packet is an error. */
        int (*packet)(struct pv_control_connection *c, void *own, const json_t *request, struct pv_err *err);
        /* The connection ends, whoever ended it: let go of what is held. Called once, also when the job ends. */
        void (*closed)(struct pv_control_connection *c, void *own);
};
/* keeper: static. own: the verb's, for both functions. */
void pv_control_keep(struct pv_control_connection *c, const struct pv_control_keeper *keeper, void *own);

/* Has the client closed it, though that was not looked at yet? */
bool pv_control_is_gone(const struct pv_control_connection *c);
const struct pv_control_job *pv_control_job_of(const struct pv_control_connection *c);

/* The i-th descriptor that came with the packet being served: the caller's from now on. -1: there is none. */
int pv_control_take_fd(struct pv_control_connection *c, size_t i);

/*
 * Sends an answer; fields (an object, or NULL) are taken, "ok": true is added; descriptors stay the caller's. A client
 * that does not read loses its connection instead of holding the job: -1 then, and the connection is ended once serve()
 * or packet() has returned, or at the loop's next turn.
 */
int pv_control_answer(struct pv_control_connection *c, json_t *fields, const int *fds, size_t n_fds);
/* The error as an answer. */
void pv_control_refuse(struct pv_control_connection *c, const struct pv_err *failure);
/* Ends the connection soon (not within this call): for what happens outside of serve() and packet(). */
void pv_control_end(struct pv_control_connection *c);

struct pv_control; /* opaque */

/*
 * Makes the socket; connections wait until pv_control_serve(). job_dir: of the job, borrowed for as long as the server
 * lives.
 */
int pv_control_open(int job_dir, struct pv_control **out, struct pv_err *err);
/* Once the boundary has started: serves within pv_boundary_wait(). job is copied. */
int pv_control_serve(struct pv_control *s, const struct pv_control_job *job, struct pv_err *err);
/* Ends all connections and removes the socket. Must: before the boundary is freed. NULL is silence. */
void pv_control_close(struct pv_control *s);

/*
 * The client.
 */

/* What goes with a request besides its JSON; zero-initialise. */
struct pv_control_call {
        const int *fds; /* go with it and stay the caller's */
        size_t n_fds;
        int *got; /* room for PV_CONTROL_FDS_MAX descriptors of the answer (-1 where there is none); or NULL */
        unsigned patience_ms; /* for the answer; 0: PV_CONTROL_PATIENCE_MS */
};

/*
 * One request and its answer. request is taken; with may be NULL. *answer (may be NULL) is a new reference. A refusal
 * is the error that the server set. PV_ERR_STATE: the job does not run any more; PV_ERR_BUSY: its supervisor does not
 * answer.
 */
int pv_control_call(int job_dir, json_t *request, const struct pv_control_call *with, json_t **answer,
                    struct pv_err *err);

/* The same, and the connection stays open: *conn is the caller's, close it to end what the verb holds. */
int pv_control_begin(int job_dir, json_t *request, const struct pv_control_call *with, int *conn, json_t **answer,
                     struct pv_err *err);

/* One more packet to the server. request is taken. */
int pv_control_send(int conn, json_t *request, const int *fds, size_t n_fds, struct pv_err *err);
/*
 * Waits for one more packet. PV_ERR_STATE when the server has closed the connection. got: as above. How long it waits
 * (for ever: 0) is set with pv_control_patience(); until then PV_CONTROL_PATIENCE_MS.
 */
int pv_control_receive(int conn, json_t **answer, int *got, struct pv_err *err);
#define PV_CONTROL_PATIENCE_MS 10000
void pv_control_patience(int conn, unsigned ms);

/* A request {"verb": verb}, for more members. */
json_t *pv_control_request(const char *verb);

#endif
