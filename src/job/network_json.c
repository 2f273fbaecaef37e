/* SPDX-License-Identifier: Apache-2.0 */
#include "job/network_json.h"

/* Names of layers are static in a policy; these are all there are. */
static const char *const layer_names[] = { "configuration", "command line", "deny-all", "profile" };

static json_t *rules_json(const struct pv_netrule *rules, size_t n)
{
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) {
                pv_auto_str text = { 0 };
                pv_netrule_put(&text, &rules[i]);
                (void)json_array_append_new(list, json_string(text.s));
        }
        return list;
}

static json_t *publication_json(const struct pv_publication *p)
{
        pv_auto_str addr = { 0 };
        pv_netaddr_put(&addr, &p->addr);
        return json_pack("{s:s, s:i, s:i}", "address", addr.s, "host_port", (int)p->host_port, "port", (int)p->port);
}

json_t *pv_job_network_json(const struct pv_plan *p)
{
        json_t *layers = json_array(), *limits = json_array(), *publish = json_array();
        for (size_t i = 0; i < p->netpolicy.n_layers; i++) {
                const struct pv_netlayer *l = &p->netpolicy.layer[i];
                (void)json_array_append_new(layers, json_pack("{s:s, s:o, s:o}", "name", l->name, "allow",
                                                              rules_json(l->allow, l->n_allow), "deny",
                                                              rules_json(l->deny, l->n_deny)));
        }
        for (size_t i = 0; i < p->netpolicy.n_limits; i++) {
                pv_auto_str target = { 0 };
                pv_netrule_put(&target, &p->netpolicy.limits[i].rule);
                (void)json_array_append_new(limits, json_pack("{s:s, s:I}", "target", target.s, "bytes_per_second",
                                                              (json_int_t)p->netpolicy.limits[i].bytes_per_second));
        }
        for (size_t i = 0; i < p->n_publications; i++)
                (void)json_array_append_new(publish, publication_json(&p->publications[i]));
        return json_pack("{s:o, s:o, s:b, s:o}", "layers", layers, "limits", limits, "allow_private_ips",
                         p->netpolicy.allow_private_ips, "publish", publish);
}

static int get_texts(const json_t *object, const char *key, struct pv_strv *out, struct pv_err *err)
{
        json_t *list = NULL;
        if (pv_json_get_array(object, key, PV_NETPOLICY_RULES, &list, err) < 0)
                return -1;
        for (size_t i = 0; i < json_array_size(list); i++) {
                const char *text = json_string_value(json_array_get(list, i));
                if (!text)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" holds what is no text", key);
                pv_strv_add(out, text);
        }
        return 0;
}

static int read_layer(const json_t *j, struct pv_netpolicy *p, struct pv_err *err)
{
        pv_auto_strv allow = { 0 }, deny = { 0 };
        const char *name = NULL, *known = NULL;
        if (pv_json_get_str(j, "name", &name, err) < 0 || get_texts(j, "allow", &allow, err) < 0 ||
            get_texts(j, "deny", &deny, err) < 0)
                return -1;
        for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
                if (pv_streq(name, layer_names[i]))
                        known = layer_names[i];
        if (!known)
                return pv_err_set(err, PV_ERR_INPUT, 0, "layer \"%s\" is not known", name);
        return pv_netpolicy_add_layer(p, known, &allow, &deny, err);
}

static int read_limit(const json_t *j, struct pv_netpolicy *p, struct pv_err *err)
{
        struct pv_netlimit l = { 0 };
        const char *target = NULL;
        int64_t rate = 0;
        if (pv_json_get_str(j, "target", &target, err) < 0 || pv_netrule_parse(target, &l.rule, err) < 0 ||
            pv_json_get_int(j, "bytes_per_second", 1, INT64_MAX, &rate, err) < 0)
                return -1;
        l.bytes_per_second = (uint64_t)rate;
        p->limits = pv_realloc(p->limits, p->n_limits + 1, sizeof *p->limits);
        p->limits[p->n_limits++] = l;
        return 0;
}

static int read_publication(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        struct pv_publication pub;
        const char *addr = NULL;
        int64_t host_port = 0, port = 0;
        if (pv_json_get_str(j, "address", &addr, err) < 0 ||
            pv_json_get_int(j, "host_port", 1, 65535, &host_port, err) < 0 ||
            pv_json_get_int(j, "port", 1, 65535, &port, err) < 0)
                return -1;
        if (!pv_netaddr_parse(addr, &pub.addr))
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"address\" is none");
        pub.host_port = (uint16_t)host_port;
        pub.port = (uint16_t)port;
        p->publications = pv_realloc(p->publications, p->n_publications + 1, sizeof *p->publications);
        p->publications[p->n_publications++] = pub;
        return 0;
}

int pv_job_network_read(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        json_t *layers = NULL, *limits = NULL, *publish = NULL;
        if (!j) /* a job from before there were rules */
                return 0;
        if (pv_json_get_array(j, "layers", PV_NETPOLICY_LAYERS, &layers, err) < 0 ||
            pv_json_get_array(j, "limits", PV_NETPOLICY_RULES, &limits, err) < 0 ||
            pv_json_get_array(j, "publish", 256, &publish, err) < 0)
                return -1;
        p->netpolicy.allow_private_ips = json_is_true(json_object_get(j, "allow_private_ips"));
        for (size_t i = 0; i < json_array_size(layers); i++)
                if (read_layer(json_array_get(layers, i), &p->netpolicy, err) < 0)
                        return -1;
        for (size_t i = 0; i < json_array_size(limits); i++)
                if (read_limit(json_array_get(limits, i), &p->netpolicy, err) < 0)
                        return -1;
        for (size_t i = 0; i < json_array_size(publish); i++)
                if (read_publication(json_array_get(publish, i), p, err) < 0)
                        return -1;
        return 0;
}
