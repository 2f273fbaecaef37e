/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the person grants a running job: the verbs `allow` and `publish` of its control socket.
 *
 *   client -> supervisor: deny rules asked -> order to the data plane (net/orders.h) -> its answer
 *          -> event, record, client
 *
 * The data plane answers in order, so the connections that wait for it stand in a queue; one that ends meanwhile
 * leaves its place empty: what it asked for happens all the same, and is recorded.
 */
#include <poll.h>
#include <string.h>
#include "base/clock.h"
#include "base/container.h"
#include "base/json.h"
#include "job/network_internal.h"
#include "job/verbs.h"
#include "net/match.h"
#include "net/orders.h"
#include "policy/network.h"

#define WAITING_MAX 64

/* Freed when it is neither in the queue nor its connection's any more. */
struct waiting {
        struct pv_control_connection *connection; /* NULL: it has ended */
        bool answered;
        json_t *record; /* what is granted, once the data plane says so */
};

struct pv_run_grants {
        struct pv_boundary_watch watch; /* of the data plane's answers */
        struct pv_boundary *boundary;
        const struct pv_job *job;
        struct pv_run_network *network;
        struct waiting *queue[WAITING_MAX];
        size_t n;
};

static void waiting_free(struct waiting *w)
{
        json_decref(w->record);
        free(w);
}

static void forget_connection(struct pv_control_connection *c, void *own)
{
        struct waiting *w = own;
        (void)c;
        w->connection = NULL;
        if (w->answered)
                waiting_free(w);
}

static const struct pv_control_keeper keeper = { .closed = forget_connection };

/* Into the events and the record, and back to whoever asked. */
static void conclude(struct pv_run_grants *g, struct waiting *w, const struct pv_err *failure)
{
        struct pv_run_network *n = g->network;
        char at[PV_CLOCK_TEXT];
        struct timespec now = pv_clock_now();
        if (!failure) {
                pv_clock_format(&now, at);
                pv_job_event(g->job, "network.granted", json_copy(w->record));
                (void)json_object_set_new(w->record, "at", json_string(at));
                n->granted = n->granted ? n->granted : json_array();
                (void)json_array_append(n->granted, w->record);
        }
        if (w->connection && failure)
                pv_control_refuse(w->connection, failure);
        else if (w->connection)
                (void)pv_control_answer(w->connection, json_copy(w->record), NULL, 0);
        if (w->connection)
                pv_control_end(w->connection);
}

/* For the first of the queue. */
static void take_answer(struct pv_run_grants *g, const struct pv_err *failure)
{
        struct waiting *w = g->queue[0];
        memmove(g->queue, g->queue + 1, --g->n * sizeof(struct waiting *));
        conclude(g, w, failure);
        w->answered = true;
        if (!w->connection)
                waiting_free(w);
}

static void answers_ready(struct pv_boundary_watch *watch, short revents)
{
        struct pv_run_grants *g = PV_CONTAINER_OF(watch, struct pv_run_grants, watch);
        struct pv_err err = PV_ERR_INIT;
        pv_auto_json answer = NULL;
        int passed = -1;
        (void)revents;
        if (pv_order_receive(g->network->orders, &answer, &passed, &err) < 0) {
                if (err.kind == PV_ERR_BUSY)
                        return;
                (void)pv_err_set(&err, PV_ERR_STATE, 0, "network: the data plane has ended; the sandbox is closed");
                watch->fd = -1;
                while (g->n > 0)
                        take_answer(g, &err);
                return;
        }
        pv_fd_closep(&passed);
        const char *why = json_string_value(json_object_get(answer, "error"));
        if (why)
                (void)pv_err_set(&err, PV_ERR_SYS, 0, "%s", why);
        if (g->n > 0)
                take_answer(g, why ? &err : NULL);
}

static struct pv_run_grants *grants_of(const struct pv_control_job *j, struct pv_err *err)
{
        struct pv_run_network *n = j->network;
        if (n->grants)
                return n->grants;
        struct pv_run_grants *g = pv_calloc(1, sizeof *g);
        *g = (struct pv_run_grants){
                .watch = { .fd = n->orders, .events = POLLIN, .ready = answers_ready },
                .boundary = j->boundary,
                .job = j->job,
                .network = n,
        };
        if (pv_boundary_watch_add(j->boundary, &g->watch) < 0) {
                free(g);
                (void)pv_err_set(err, PV_ERR_BUSY, 0, "too much is watched already");
                return NULL;
        }
        return n->grants = g;
}

void pv_run_grants_free(struct pv_run_grants *g)
{
        if (!g)
                return;
        pv_boundary_watch_remove(g->boundary, &g->watch);
        for (size_t i = 0; i < g->n; i++)
                waiting_free(g->queue[i]);
        free(g);
}

/* What can be granted at all. */
static int check_network(const struct pv_control_job *j, struct pv_err *err)
{
        if (j->network->plane > 0 && j->network->orders >= 0)
                return 0;
        if (j->plan->net == PV_NET_DENY_ALL) {
                (void)pv_err_set(err, PV_ERR_STATE, 0,
                                 "job %s has no network to grant anything of: it was run with --overlaynet-deny-all",
                                 j->job->id);
                return pv_err_hint(err, "run --safe without it; nothing is allowed then either, until it is granted");
        }
        return pv_err_set(err, PV_ERR_STATE, 0, "job %s has the host's own network: there is nothing to grant",
                          j->job->id);
}

/* Sends the order and lets the connection wait for the answer. record is taken. */
static int give_order(struct pv_control_connection *c, json_t *order, int pass, json_t *record, struct pv_err *err)
{
        pv_auto_json owned_order = order;
        pv_auto_json owned = record;
        struct pv_run_grants *g = grants_of(pv_control_job_of(c), err);
        if (!g)
                return -1;
        if (g->n == WAITING_MAX)
                return pv_err_set(err, PV_ERR_BUSY, 0, "too many grants at once");
        if (pv_order_send(g->network->orders, order, pass, err) < 0)
                return -1;
        struct waiting *w = pv_calloc(1, sizeof *w);
        *w = (struct waiting){ .connection = c, .record = pv_steal(&owned) };
        g->queue[g->n++] = w;
        pv_control_keep(c, &keeper, w);
        return 0;
}

/* A grant never lifts a denial: it is refused where one holds all of it. */
static int check_denials(const struct pv_plan *plan, const struct pv_netrules *rules, struct pv_err *err)
{
        for (size_t i = 0; i < rules->n; i++) {
                const char *layer = NULL;
                pv_auto_str target = { 0 }, by = { 0 };
                const struct pv_netrule *denial = pv_match_denial(&plan->netpolicy, &rules->v[i], &layer);
                if (!denial)
                        continue;
                pv_netrule_put(&target, &rules->v[i]);
                pv_netrule_put(&by, denial);
                (void)pv_err_set(err, PV_ERR_POLICY, 0, "%s is denied by the rule %s (%s)", target.s, by.s, layer);
                return pv_err_hint(err, "a grant never lifts a denial: run it again without that rule");
        }
        return 0;
}

/* {"rules": [text, ...], "asked": ["@npm"]}: rules without groups, and what the person wrote. */
static int serve_allow(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        const struct pv_control_job *j = pv_control_job_of(c);
        pv_auto_netrules rules = { 0 };
        json_t *texts = NULL, *asked = NULL;
        if (check_network(j, err) < 0 || pv_json_get_array(request, "rules", PV_NETPOLICY_RULES, &texts, err) < 0 ||
            pv_json_get_array(request, "asked", PV_NETPOLICY_RULES, &asked, err) < 0)
                return -1;
        for (size_t i = 0; i < json_array_size(texts); i++) {
                const char *text = json_string_value(json_array_get(texts, i));
                uint64_t rate = 0;
                if (!text)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "\"rules\" holds what is no text");
                if (pv_netrules_add(&rules, text, NULL, &rate, err) < 0)
                        return -1;
                if (rate)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "a grant has no rate; limits are set at the start");
        }
        if (rules.n == 0)
                return pv_err_set(err, PV_ERR_USAGE, 0, "allow: nothing is named");
        if (check_denials(j->plan, &rules, err) < 0)
                return -1;
        return give_order(c, json_pack("{s:s, s:O}", "order", "allow", "rules", texts), -1,
                          json_pack("{s:s, s:O, s:O}", "kind", "allow", "asked", asked, "rules", texts), err);
}

/* {"publish": "[ADDR:]HOSTPORT[:PORT]"} */
static int serve_publish(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        const struct pv_control_job *j = pv_control_job_of(c);
        struct pv_publication p;
        const char *text = NULL;
        uint16_t port = 0;
        pv_auto_str addr = { 0 };
        if (check_network(j, err) < 0 || pv_json_get_str(request, "publish", &text, err) < 0 ||
            pv_publication_parse(text, &p, err) < 0)
                return -1;
        pv_auto_fd listener = pv_run_network_listen(&p.addr, p.host_port, &port, err);
        if (listener < 0 || pv_run_network_start_maker(j->network, err) < 0)
                return -1;
        pv_netaddr_put(&addr, &p.addr);
        return give_order(c, json_pack("{s:s, s:i}", "order", "publish", "port", (int)p.port), listener,
                          json_pack("{s:s, s:s, s:i, s:i}", "kind", "publish", "address", addr.s, "host_port",
                                    (int)p.host_port, "port", (int)p.port),
                          err);
}

const struct pv_control_verb pv_control_allow = { "allow", serve_allow };
const struct pv_control_verb pv_control_publish = { "publish", serve_publish };
